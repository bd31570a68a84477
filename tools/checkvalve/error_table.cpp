// error_table.cpp: run each recipe, compare with exact_forward row by row.
#include "error_table.h"

#include <cmath>
#include <limits>

#include "checkvalve/error.h"

namespace checkvalve::cli {
namespace {

RecipeError compare(const AttentionProblem& problem, const std::vector<float>& out, const std::vector<double>& exact) {
  RecipeError error;
  double difference_sum = 0.0;
  double exact_sum = 0.0;
  std::size_t at = 0;
  for (std::int64_t b = 0; b < problem.b; ++b) {
    for (std::int64_t token = 0; token < problem.s_q; ++token) {
      for (std::int64_t head = 0; head < problem.h_q; ++head) {
        double row_difference = 0.0;
        double row_exact = 0.0;
        for (std::int64_t d = 0; d < problem.d_v; ++d, ++at) {
          const double difference = static_cast<double>(out[at]) - exact[at];
          row_difference += difference * difference;
          row_exact += exact[at] * exact[at];
        }
        if (!std::isfinite(row_exact)) {
          ++error.rows_left_out;
          continue;
        }
        ++error.rows;
        difference_sum += row_difference;
        exact_sum += row_exact;
        const bool finite = std::isfinite(row_difference);
        const double relative = row_difference == 0.0 ? 0.0
                                : finite              ? std::sqrt(row_difference / row_exact)
                                                      : std::numeric_limits<double>::infinity();
        if (relative > error.worst_row) {
          error.worst_row = relative;
          error.worst_b = b;
          error.worst_token = token;
          error.worst_head = head;
        }
      }
    }
  }
  error.frobenius = difference_sum == 0.0           ? 0.0
                    : std::isfinite(difference_sum) ? std::sqrt(difference_sum / exact_sum)
                                                    : std::numeric_limits<double>::infinity();
  return error;
}

}  // namespace

std::vector<RecipeError> measure_errors(const Qkv& data, std::span<const Recipe> recipes, const Options& options,
                                        const std::function<void(double)>& progress) {
  AttentionProblem problem = data.problem();
  problem.out_dtype = DType::kFloat32;
  const auto n = static_cast<std::size_t>(problem.b * problem.s_q * problem.h_q * problem.d_v);
  std::vector<double> exact(n);
  const auto view = [&](void* storage, DType dtype) {
    return make_view(storage, dtype, Layout::kBshd, problem.b, problem.s_q, problem.h_q, problem.d_v);
  };
  exact_forward(problem, data.q, data.k, data.v, view(exact.data(), DType::kFloat64), {});

  Options leaky_allowed = options;
  leaky_allowed.allow_leak = true;
  std::vector<RecipeError> errors;
  for (const Recipe& recipe : recipes) {
    std::vector<float> out(n);
    RecipeError error;
    try {
      forward(problem, recipe, data.q, data.k, data.v, view(out.data(), DType::kFloat32), {}, leaky_allowed);
      error = compare(problem, out, exact);
    } catch (const Unsupported& e) {
      error.unsupported = e.what();
    }
    error.recipe = recipe;
    errors.push_back(std::move(error));
    if (progress) {
      progress(static_cast<double>(errors.size()) / static_cast<double>(recipes.size()));
    }
  }
  return errors;
}

}  // namespace checkvalve::cli
