// influence.cpp: how much each token changes each row, binned.
#include "audit/influence.h"

#include <algorithm>
#include <array>

#include "audit/compare.h"

namespace checkvalve::audit_detail {
namespace {

constexpr std::array kPerturbations{Perturbation::kHuge20, Perturbation::kTiny};

InfluenceMatrix empty_matrix(std::int64_t s, std::int64_t bins) {
  InfluenceMatrix matrix;
  if (bins > 0) {
    matrix.tokens_per_bin = (s + bins - 1) / bins;
    matrix.bins = (s + matrix.tokens_per_bin - 1) / matrix.tokens_per_bin;
    const auto size = static_cast<std::size_t>(matrix.bins * matrix.bins);
    matrix.changed.assign(size, 0.0);
    matrix.leaked.assign(size, 0.0);
  }
  return matrix;
}

}  // namespace

std::int64_t influence_runs(std::int64_t s, std::int64_t bins) {
  return empty_matrix(s, bins).bins * static_cast<std::int64_t>(kPerturbations.size());
}

InfluenceMatrix influence_matrix(Session& session, Examiner& examiner, std::int64_t bins,
                                 const std::function<void()>& step) {
  const std::int64_t s = session.problem().s_q;
  InfluenceMatrix matrix = empty_matrix(s, bins);
  for (std::int64_t c = 0; c < matrix.bins; ++c) {
    const std::int64_t token = std::min((c + 1) * matrix.tokens_per_bin, s) - 1;
    for (const Perturbation perturbation : kPerturbations) {
      const Probe probe{.property = Property::kCausal,
                        .cut = token - 1,
                        .operands = {Operand::kQ, Operand::kK, Operand::kV},
                        .tokens = {.first = token, .last = token},
                        .perturbation = perturbation};
      const Result& base = examiner.base_forward();
      const Result result = session.run(request_of(probe, session.problem()));
      if (token > 0) {
        examiner.inspect(probe, base, result);
      }
      for (std::int64_t row = 0; row < s; ++row) {
        const double change = relative_change(base.rows(Output::kOut), result.rows(Output::kOut), row);
        const auto at = static_cast<std::size_t>(row / matrix.tokens_per_bin * matrix.bins + c);
        matrix.changed[at] = std::max(matrix.changed[at], change);
        if (row < token) {
          matrix.leaked[at] = std::max(matrix.leaked[at], change);
        }
      }
      step();
    }
  }
  return matrix;
}

}  // namespace checkvalve::audit_detail
