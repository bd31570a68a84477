// attention.cpp: validate, select a backend, call it. No arithmetic.
#include "checkvalve/attention.h"

#include <fmt/format.h>

#include <iterator>
#include <string>

#include "api/sequences.h"
#include "api/validate.h"
#include "backends/backend.h"
#include "checkvalve/backend.h"
#include "checkvalve/error.h"

namespace checkvalve {
namespace {

const Backend& select(const AttentionProblem& problem, const Recipe& recipe, const Options& options, Device device) {
  std::string reasons;
  std::string names;
  bool known = options.backend.empty();
  for (const Backend* backend : all_backends()) {
    fmt::format_to(std::back_inserter(names), "{}{}", names.empty() ? "" : ", ", backend->name());
    if (!options.backend.empty() && options.backend != backend->name()) {
      continue;
    }
    known = true;
    const auto why_not = backend->why_not(problem, recipe, options, device);
    if (why_not.empty()) {
      return *backend;
    }
    for (const std::string& reason : why_not) {
      fmt::format_to(std::back_inserter(reasons), "; {}: {}", backend->name(), reason);
    }
  }
  if (!known) {
    throw InvalidArgument(fmt::format("backend '{}' is not known (accepted: {})", options.backend, names));
  }
  throw Unsupported(fmt::format("{} can serve recipe '{}' on {}{}",
                                options.backend.empty()
                                    ? std::string("no backend")
                                    : fmt::format("backend '{}' cannot: it is forced, so no other", options.backend),
                                recipe.name, problem.to_string(), reasons));
}

void validate_inputs(const AttentionProblem& problem, const Recipe& recipe, const Options& options,
                     const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v) {
  validate_problem(problem, recipe, options);
  if (q.device == Device::kHost) {
    validate_lengths(problem);
  }
  validate_tensor("q", q, problem, RowsOf::kQuery, problem.d_qk, problem.dtype, q.device);
  validate_tensor("k", k, problem, RowsOf::kKeyValue, problem.d_qk, problem.dtype, q.device);
  validate_tensor("v", v, problem, RowsOf::kKeyValue, problem.d_v, problem.dtype, q.device);
}

void validate_outputs(const AttentionProblem& problem, const TensorView& out, const TensorView& lse, Device device) {
  validate_tensor("out", out, problem, RowsOf::kQuery, problem.d_v, problem.out_dtype, device);
  if (lse) {
    validate_lse(lse, problem, DType::kFloat32, device);
  }
}

Report report_of(const Backend& backend, const Recipe& recipe) {
  return {.backend_used = std::string(backend.name()), .recipe_used = recipe.name, .leaks = recipe.leaks()};
}

}  // namespace

Report quantize(const AttentionProblem& problem, const Recipe& recipe, const ConstTensorView& q,
                const ConstTensorView& k, const ConstTensorView& v, const QuantizedQKV& out, const Options& options) {
  validate_inputs(problem, recipe, options, q, k, v);
  validate_quantized(out, problem, recipe);
  const Backend& backend = select(problem, recipe, options, q.device);
  backend.quantize(problem, recipe, q, k, v, out, options);
  return report_of(backend, recipe);
}

Report forward(const AttentionProblem& problem, const Recipe& recipe, const ConstTensorView& q,
               const ConstTensorView& k, const ConstTensorView& v, const TensorView& out, const TensorView& lse,
               const Options& options) {
  validate_inputs(problem, recipe, options, q, k, v);
  validate_outputs(problem, out, lse, q.device);
  const Backend& backend = select(problem, recipe, options, q.device);
  backend.forward(problem, recipe, q, k, v, out, lse, options);
  return report_of(backend, recipe);
}

Report forward(const AttentionProblem& problem, const Recipe& recipe, const QuantizedQKV& operands,
               const TensorView& out, const TensorView& lse, const Options& options) {
  validate_problem(problem, recipe, options);
  if (operands.q.device == Device::kHost) {
    validate_lengths(problem);
  }
  validate_quantized(operands, problem, recipe);
  validate_outputs(problem, out, lse, operands.q.device);
  const Backend& backend = select(problem, recipe, options, operands.q.device);
  backend.forward(problem, recipe, operands, out, lse, options);
  return report_of(backend, recipe);
}

Report backward(const AttentionProblem& problem, const Recipe& recipe, const ConstTensorView& q,
                const ConstTensorView& k, const ConstTensorView& v, const ConstTensorView& out,
                const ConstTensorView& lse, const ConstTensorView& d_out, const TensorView& dq, const TensorView& dk,
                const TensorView& dv, const Options& options) {
  validate_inputs(problem, recipe, options, q, k, v);
  if (out) {
    if (out.dtype != DType::kFloat32) {
      throw InvalidArgument(fmt::format(
          "out is {}; backward takes delta from a float32 output: set problem.out_dtype to float32 in the forward, or "
          "pass no out to have delta recomputed",
          name_of(out.dtype)));
    }
    validate_tensor("out", out, problem, RowsOf::kQuery, problem.d_v, DType::kFloat32, q.device);
  }
  validate_lse(lse, problem, DType::kFloat32, q.device);
  if (d_out.dtype != problem.dtype && d_out.dtype != DType::kFloat32) {
    throw InvalidArgument(
        fmt::format("d_out is {}; accepted: {} (that of q) or float32", name_of(d_out.dtype), name_of(problem.dtype)));
  }
  validate_tensor("d_out", d_out, problem, RowsOf::kQuery, problem.d_v, d_out.dtype, q.device);
  validate_tensor("dq", dq, problem, RowsOf::kQuery, problem.d_qk, problem.out_dtype, q.device);
  validate_tensor("dk", dk, problem, RowsOf::kKeyValue, problem.d_qk, problem.out_dtype, q.device);
  validate_tensor("dv", dv, problem, RowsOf::kKeyValue, problem.d_v, problem.out_dtype, q.device);
  if (options.backward == BackwardPrecision::kHybrid && recipe.qk == Format::kAsGiven) {
    throw InvalidArgument(fmt::format(
        "backward precision 'hybrid' needs 8-bit operands, which recipe '{}' does not have; use 'bf16'", recipe.name));
  }
  const Backend& backend = select(problem, recipe, options, q.device);
  backend.backward(problem, recipe, q, k, v, out, lse, d_out, dq, dk, dv, options);
  return report_of(backend, recipe);
}

std::size_t workspace_bytes(const AttentionProblem& problem, const Recipe& recipe, const Options& options) {
  validate_problem(problem, recipe, options);
  return select(problem, recipe, options, Device::kHost).workspace_bytes(problem, recipe, options);
}

std::vector<BackendVerdict> explain(const AttentionProblem& problem, const Recipe& recipe, const Options& options,
                                    Device device) {
  validate_problem(problem, recipe, options);
  std::vector<BackendVerdict> verdicts = list_backends();
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    verdicts[i].reasons = all_backends()[i]->why_not(problem, recipe, options, device);
  }
  return verdicts;
}

std::vector<BackendVerdict> list_backends() {
  std::vector<BackendVerdict> verdicts;
  for (const Backend* backend : all_backends()) {
    verdicts.push_back({.name = std::string(backend->name()), .description = backend->describe(), .reasons = {}});
  }
  return verdicts;
}

}  // namespace checkvalve
