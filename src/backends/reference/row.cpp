// row.cpp: the online-softmax recurrence of docs/numerics.md over 128-key tiles, in float64.
#include "backends/reference/row.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "numerics/element.h"

namespace checkvalve::reference {
namespace {

using numerics::kBlockTokens;
using numerics::kSpanTokens;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// P is rounded as P_ij = round(C * p_ij). 256 puts the largest P at 2^8, the top octave of E4M3 that no P exceeds.
double probability_factor(Format p) { return p == Format::kE4M3 ? 256.0 : 1.0; }

}  // namespace

RowPlace place_of(const AttentionProblem& problem, const Sequence& seq, std::int64_t row) {
  RowPlace place{.position = row + seq.s_kv - seq.s_q, .visible = {}};
  place.visible = numerics::visible_keys(place.position, seq.s_kv, problem.causal, problem.window_left);
  return place;
}

double round_to(Format format, double x) {
  const auto narrow = static_cast<float>(x);
  switch (format) {
    case Format::kE4M3:
      return static_cast<double>(numerics::round_to_e4m3(narrow));
    case Format::kBFloat16:
      return static_cast<double>(numerics::round_to_bf16(narrow));
    case Format::kFloat16:
      return static_cast<double>(numerics::round_to_fp16(narrow));
    default:
      return static_cast<double>(narrow);
  }
}

void row_logits(const KeyValue& kv, const RowPlace& place, const double* q, double factor, std::int64_t begin,
                std::int64_t end, double* logits) {
  const std::int64_t d = kv.k[0].rows.d;
  for (std::int64_t block = begin / kBlockTokens; block * kBlockTokens < end; ++block) {
    const std::int64_t first = block * kBlockTokens;
    const KeyCopy& copy = kv.k[copy_of(kv.k_rule, place, first)];
    std::array<double, kBlockTokens> sums{};
    for (std::int64_t c = 0; c < d; ++c) {
      const double* keys = copy.by_block.data() + (block * d + c) * kBlockTokens;
      for (std::size_t t = 0; t < sums.size(); ++t) {
        sums[t] += q[c] * keys[t];
      }
    }
    for (std::int64_t j = std::max(first, begin); j < std::min(first + kBlockTokens, end); ++j) {
      logits[j - begin] = sums[static_cast<std::size_t>(j - first)] * factor;
    }
  }
}

double forward_row(const KeyValue& kv, const RowPlace& place, const double* q, double scale, const RowMode& mode,
                   std::span<double> out) {
  const double c_p = probability_factor(mode.p);
  const double factor = scale * std::numbers::log2e;
  const auto [begin, end] = place.visible;
  std::ranges::fill(out, 0.0);
  double m = -kInfinity;
  double l = 0.0;
  bool any = false;

  const std::int64_t first_tile = begin / kSpanTokens;
  const std::int64_t tiles = end > begin ? (end - 1) / kSpanTokens - first_tile + 1 : 0;
  for (std::int64_t t = 0; t < tiles; ++t) {
    const std::int64_t tile = first_tile + (mode.order == TileOrder::kFirstToLast ? t : tiles - 1 - t);
    const std::int64_t j0 = std::max(begin, tile * kSpanTokens);
    const std::int64_t j1 = std::min(end, (tile + 1) * kSpanTokens);
    std::array<double, kSpanTokens> y{};
    std::array<double, kSpanTokens> e{};
    std::array<int, kSpanTokens> copy{};
    row_logits(kv, place, q, factor, j0, j1, y.data());

    // Running maximum of what each token contributes; NaN stays NaN.
    double m_new = m;
    for (std::int64_t j = j0; j < j1; ++j) {
      const auto at = static_cast<std::size_t>(j - j0);
      copy[at] = copy_of(kv.v_rule, place, j);
      e[at] = kv.v[copy[at]].exponent[static_cast<std::size_t>(j)];
      if (mode.only_copy >= 0 && copy[at] != mode.only_copy) {
        continue;
      }
      // A NaN scale contains its token: the row becomes NaN even where the scale does not enter the logit.
      y[at] += mode.folded ? e[at] : 0.0 * e[at];
      m_new = std::isnan(y[at]) || y[at] > m_new ? y[at] : m_new;
      any = true;
    }
    if (std::isnan(m_new)) {
      std::ranges::fill(out, m_new);
      return m_new;
    }

    // Rescale, then add the tile.
    const double alpha = m == m_new ? 1.0 : std::exp2(m - m_new);
    std::ranges::for_each(out, [alpha](double& x) { x *= alpha; });
    l *= alpha;
    for (std::int64_t j = j0; j < j1; ++j) {
      const auto at = static_cast<std::size_t>(j - j0);
      if (mode.only_copy >= 0 && copy[at] != mode.only_copy) {
        continue;
      }
      const double p = m_new == -kInfinity ? 0.0 : std::exp2(y[at] - m_new);
      l += mode.folded ? p * std::exp2(-e[at]) : p;
      const double weight = round_to(mode.p, c_p * p) * (mode.folded ? 1.0 : std::exp2(e[at]));
      const double* vhat = kv.v[copy[at]].vhat.row(j);
      for (std::size_t c = 0; c < out.size(); ++c) {
        out[c] += weight * vhat[c];
      }
    }
    m = m_new;
  }

  if (!any) {
    return -kInfinity;
  }
  std::ranges::for_each(out, [&](double& x) { x /= c_p * l; });
  return (m + std::log2(l)) * std::numbers::ln2;
}

}  // namespace checkvalve::reference
