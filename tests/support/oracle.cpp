// oracle.cpp: the brute-force definition of the recipes that the backends are tested against.
#include "support/oracle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "numerics/element.h"
#include "numerics/hadamard.h"
#include "numerics/quantize.h"
#include "numerics/scale_rule.h"

namespace checkvalve::test {
namespace {

using numerics::load_element;
using numerics::offset_of;

using Row = std::vector<double>;

// Relative and absolute halves of a rounding step: |round(x) - x| <= max(relative |x|, absolute).
struct Step {
  double relative;
  double absolute;
};

Step step_of(Format format) {
  switch (format) {
    case Format::kE4M3:
      return {0x1p-4, 0x1p-10};
    case Format::kBFloat16:
      return {0x1p-8, 0x1p-134};
    case Format::kFloat16:
      return {0x1p-11, 0x1p-25};
    default:
      return {0x1p-24, 0x1p-150};
  }
}

// One row of a quantised operand, decoded: byte * scale.
Row decode(const TensorView& data, const TensorView& scale, ScaleScope scope, std::int64_t b, std::int64_t h,
           std::int64_t s) {
  Row row(static_cast<std::size_t>(data.shape[3]));
  for (std::size_t at = 0; at < row.size(); ++at) {
    const auto c = static_cast<std::int64_t>(at);
    double factor = 1.0;
    if (scope == ScaleScope::kTensor) factor = load_element(scale, 0);
    if (scope == ScaleScope::kRow32) factor = load_element(scale, offset_of(scale, b, h, s, c / 32));
    if (scope == ScaleScope::kColumn32) factor = load_element(scale, offset_of(scale, b, h, s / 32, c));
    if (scope == ScaleScope::kToken) factor = load_element(scale, offset_of(scale, b, h, s));
    if (scope == ScaleScope::kBlock) factor = load_element(scale, offset_of(scale, b, h, s / 32));
    row[at] = load_element(data, offset_of(data, b, h, s, c)) * factor;
  }
  return row;
}

// The power of two that folding takes out of V_j: P is rounded relative to what the token contributes.
double folded_scale(const TensorView& scale, ScaleScope scope, std::int64_t b, std::int64_t h, std::int64_t s) {
  if (scope == ScaleScope::kToken) return load_element(scale, offset_of(scale, b, h, s));
  if (scope == ScaleScope::kBlock) return load_element(scale, offset_of(scale, b, h, s / 32));
  double largest = 0x1p-40;
  for (std::int64_t c = 0; c < scale.shape[3]; ++c) {
    largest = std::max(largest, load_element(scale, offset_of(scale, b, h, s / 32, c)));
  }
  return std::min(largest, 0x1p60);
}

bool token_copy(TokenCopyRule rule, std::int64_t position, std::int64_t j, std::int64_t window_begin) {
  switch (rule) {
    case TokenCopyRule::kAll:
      return true;
    case TokenCopyRule::kOwnBlock:
      return j / 32 == position / 32 || (window_begin % 32 != 0 && j / 32 == window_begin / 32) || j > position;
    case TokenCopyRule::kFirstAndOwnSpan:
      return j < 128 || j / 128 == position / 128 || (window_begin % 128 != 0 && j / 128 == window_begin / 128) ||
             j > position;
  }
  return true;
}

double dot(const Row& a, const Row& b) {
  double sum = 0.0;
  for (std::size_t c = 0; c < a.size(); ++c) {
    sum += a[c] * b[c];
  }
  return sum;
}

double norm(const Row& a) { return std::sqrt(dot(a, a)); }

// A (b, s, h, d) result that is summed up row by row.
struct Accumulator {
  RowsWithBound rows;
  std::int64_t s, h;

  Accumulator(std::int64_t b, std::int64_t s_, std::int64_t h_, std::int64_t d) : rows{d, {}, {}, {}}, s(s_), h(h_) {
    rows.values.assign(static_cast<std::size_t>(b * s * h * d), 0.0);
    rows.bound.assign(static_cast<std::size_t>(b * s * h), 0.0);
    rows.magnitude = rows.bound;
  }
  void add(std::int64_t n, std::int64_t i, std::int64_t head, const Row& x, double factor, double bound,
           double magnitude) {
    const auto at = static_cast<std::size_t>((n * s + i) * h + head);
    for (std::size_t c = 0; c < x.size(); ++c) {
      rows.values[at * x.size() + c] += factor * x[c];
    }
    rows.bound[at] += bound;
    rows.magnitude[at] += magnitude;
  }
  void rotate() {
    for (std::size_t at = 0; at < rows.bound.size(); ++at) {
      numerics::rotate_row(rows.values.data() + at * static_cast<std::size_t>(rows.d), static_cast<int>(rows.d));
    }
  }
};

// dO as it enters dP, and as it enters dV.
struct GradientRow {
  Row for_dp, for_dv;
};

double to_product_format(double x, Format format) {
  const auto narrow = static_cast<float>(x);
  if (format == Format::kBFloat16) return static_cast<double>(numerics::round_to_bf16(narrow));
  if (format == Format::kFloat16) return static_cast<double>(numerics::round_to_fp16(narrow));
  return x;
}

GradientRow gradient_row(const Inputs& in, const Options& options, Format format, std::int64_t n, std::int64_t i,
                         std::int64_t h) {
  GradientRow g;
  std::vector<float> row;
  for (std::int64_t c = 0; c < in.problem.d_v; ++c) {
    const double x = in.d_out.at(n, i, h, c);
    row.push_back(static_cast<float>(x));
    g.for_dv.push_back(to_product_format(x, format));
  }
  g.for_dp = g.for_dv;
  if (options.backward == BackwardPrecision::kHybrid) {
    std::vector<std::uint8_t> bytes(row.size());
    const std::uint8_t scale = numerics::quantize_row_e4m3(row.data(), in.problem.d_v, -127, 127, bytes.data());
    for (std::size_t c = 0; c < row.size(); ++c) {
      g.for_dp[c] =
          static_cast<double>(numerics::decode_e4m3(bytes[c])) * static_cast<double>(numerics::decode_e8m0(scale));
    }
  }
  return g;
}

}  // namespace

Expected expect(const Inputs& in, const Recipe& recipe, const Options& options) {
  const AttentionProblem& p = in.problem;
  const HostQuantizedQKV quantized = allocate_quantized(p, recipe);
  Options quantize_options;
  quantize_options.allow_leak = true;
  quantize(p, recipe, in.q.view, in.k.view, in.v.view, quantized.tensors, quantize_options);
  const QuantizedQKV& t = quantized.tensors;

  const double scale = static_cast<double>(p.scale());
  const bool quantised = recipe.qk != Format::kAsGiven;
  const Step p_step = step_of(recipe.p);
  const Format product_format = quantised ? Format::kBFloat16 : recipe.p;
  const Step product_step = step_of(product_format);
  const double c_p = recipe.p == Format::kE4M3 ? 256.0 : 1.0;

  Accumulator out(p.b, p.s_q, p.h_q, p.d_v);
  Accumulator dq(p.b, p.s_q, p.h_q, p.d_qk);
  Accumulator dk(p.b, p.s_kv, p.h_kv, p.d_qk);
  Accumulator dv(p.b, p.s_kv, p.h_kv, p.d_v);
  std::vector<double> lse(static_cast<std::size_t>(p.b * p.h_q * p.s_q), -std::numeric_limits<double>::infinity());

  for (std::int64_t n = 0; n < p.b; ++n) {
    for (std::int64_t h = 0; h < p.h_q; ++h) {
      const std::int64_t g = h / (p.h_q / p.h_kv);
      for (std::int64_t i = 0; i < p.s_q; ++i) {
        const std::int64_t position = i + p.s_kv - p.s_q;
        const std::int64_t end = p.causal ? std::min(position + 1, p.s_kv) : p.s_kv;
        const std::int64_t begin = p.window_left < 0 ? 0 : std::max<std::int64_t>(0, position - p.window_left);
        if (end <= begin) {
          continue;
        }
        const Row q = decode(t.q, t.q_scale, recipe.qk_scale, n, h, i);
        std::vector<Row> keys;
        std::vector<Row> values;
        Row s;
        Row fold;
        for (std::int64_t j = begin; j < end; ++j) {
          const bool near = token_copy(recipe.token_copy, position, j, begin);
          const bool k_near = near || recipe.k_shared_scale == ScaleScope::kNone;
          keys.push_back(k_near ? decode(t.k, t.k_scale, recipe.qk_scale, n, g, j)
                                : decode(t.k_shared, t.k_shared_scale, recipe.k_shared_scale, n, g, j));
          values.push_back(near ? decode(t.v, t.v_scale, recipe.v_scale, n, g, j)
                                : decode(t.v_shared, t.v_shared_scale, recipe.v_shared_scale, n, g, j));
          fold.push_back(!recipe.folded ? 1.0
                         : near         ? folded_scale(t.v_scale, recipe.v_scale, n, g, j)
                                        : folded_scale(t.v_shared_scale, recipe.v_shared_scale, n, g, j));
          s.push_back(dot(q, keys.back()) * scale);
        }

        // Softmax, and the bound of the forward: P is rounded relative to max_j p_j fold_j.
        const double top = *std::max_element(s.begin(), s.end());
        double sum = 0.0;
        double contribution_top = 0.0;
        Row prob(s.size());
        for (std::size_t j = 0; j < s.size(); ++j) {
          prob[j] = std::exp(s[j] - top);
          sum += prob[j];
          contribution_top = std::max(contribution_top, prob[j] * fold[j]);
        }
        double bound = 0.0;
        double magnitude = 0.0;
        Row o(static_cast<std::size_t>(p.d_v));
        for (std::size_t j = 0; j < s.size(); ++j) {
          const double relative_p = prob[j] * fold[j] / contribution_top;
          const double error = std::max(p_step.relative * relative_p, p_step.absolute / c_p);
          bound += error * contribution_top / fold[j] / sum * norm(values[j]);
          prob[j] /= sum;
          magnitude += prob[j] * norm(values[j]);
          for (std::size_t c = 0; c < o.size(); ++c) {
            o[c] += prob[j] * values[j][c];
          }
        }
        out.add(n, i, h, o, 1.0, bound, magnitude);
        lse[static_cast<std::size_t>((n * p.h_q + h) * p.s_q + i)] = top + std::log(sum);

        // Gradient. P, dS and each operand of the products over tokens are rounded once.
        const GradientRow d_out = gradient_row(in, options, product_format, n, i, h);
        Row dp(s.size());
        double delta = 0.0;
        for (std::size_t j = 0; j < s.size(); ++j) {
          dp[j] = dot(d_out.for_dp, values[j]);
          delta += prob[j] * dp[j];
        }
        const double two = 2.0 * product_step.relative;
        for (std::size_t at = 0; at < s.size(); ++at) {
          const std::int64_t j = begin + static_cast<std::int64_t>(at);
          const double ds = prob[at] * (dp[at] - delta);
          const double ds_bound = two * std::fabs(ds) + product_step.absolute;
          const double ds_size = prob[at] * (std::fabs(dp[at]) + std::fabs(delta));
          dq.add(n, i, h, keys[at], ds * scale, ds_bound * norm(keys[at]) * scale, ds_size * norm(keys[at]) * scale);
          dk.add(n, j, g, q, ds * scale, ds_bound * norm(q) * scale, ds_size * norm(q) * scale);
          dv.add(n, j, g, d_out.for_dv, prob[at], (two * prob[at] + product_step.absolute) * norm(d_out.for_dv),
                 prob[at] * norm(d_out.for_dv));
        }
      }
    }
  }
  if (recipe.rotate_qk) {
    dq.rotate();
    dk.rotate();
  }
  return {.out = out.rows, .dq = dq.rows, .dk = dk.rows, .dv = dv.rows, .lse = std::move(lse)};
}

std::string check_rows(const char* name, const HostTensor& got, const RowsWithBound& expected, double slack,
                       double* largest) {
  const auto& shape = got.view.shape;
  for (std::int64_t n = 0; n < shape[0]; ++n) {
    for (std::int64_t i = 0; i < shape[1]; ++i) {
      for (std::int64_t h = 0; h < shape[2]; ++h) {
        const auto at = static_cast<std::size_t>((n * shape[1] + i) * shape[2] + h);
        double error = 0.0;
        for (std::int64_t c = 0; c < shape[3]; ++c) {
          const double want = expected.values[at * static_cast<std::size_t>(expected.d) + static_cast<std::size_t>(c)];
          error += (got.at(n, i, h, c) - want) * (got.at(n, i, h, c) - want);
        }
        error = std::sqrt(error);
        const double allowed = expected.bound[at] + slack * expected.magnitude[at];
        if (allowed > 0.0) {
          *largest = std::max(*largest, error / allowed);
        }
        const bool ok = error <= allowed;
        if (!ok) {
          return fmt::format("{}[b={}, s={}, h={}]: error {:.3e}, allowed {:.3e}", name, n, i, h, error, allowed);
        }
      }
    }
  }
  return "";
}

}  // namespace checkvalve::test
