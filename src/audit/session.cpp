// session.cpp: runs one callable on edited copies of the inputs.
#include "audit/session.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "audit/compare.h"
#include "audit/perturb.h"
#include "numerics/element.h"

namespace checkvalve::audit_detail {
namespace {

constexpr std::array<Operand, kOperands> kAllOperands{Operand::kQ, Operand::kK, Operand::kV, Operand::kDOut};

std::size_t bytes_of(const ConstTensorView& view) {
  return static_cast<std::size_t>(view.numel()) * size_of(view.dtype);
}

// The first `tokens` tokens of `source` (b, s, h, d), dense.
void copy_dense(const ConstTensorView& source, const TensorView& target) {
  for (std::int64_t b = 0; b < target.shape[0]; ++b) {
    for (std::int64_t s = 0; s < target.shape[1]; ++s) {
      for (std::int64_t h = 0; h < target.shape[2]; ++h) {
        for (std::int64_t d = 0; d < target.shape[3]; ++d) {
          numerics::store_element(target, numerics::offset_of(target, b, s, h, d),
                                  numerics::load_element(source, numerics::offset_of(source, b, s, h, d)));
        }
      }
    }
  }
}

void fill_random(const TensorView& tensor, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  for (std::int64_t i = 0; i < tensor.numel(); ++i) {
    // 53 random bits in [-1, 1): the same on every standard library.
    const double unit = static_cast<double>(generator() >> 11) * 0x1p-53;
    numerics::store_element(tensor, i, 2.0 * unit - 1.0);
  }
}

}  // namespace

std::string_view name_of(Operand operand) {
  constexpr std::array<std::string_view, kOperands> kNames{"q", "k", "v", "d_out"};
  return kNames[static_cast<std::size_t>(operand)];
}

std::string_view name_of(Output output) {
  constexpr std::array<std::string_view, kOutputs> kNames{"out", "lse", "dq", "dk", "dv"};
  return kNames[static_cast<std::size_t>(output)];
}

ConstTensorView Result::rows(Output output) const {
  ConstTensorView view = at(output).view;
  view.data = at(output).bytes.data();
  if (output == Output::kLse) {  // (b, h, s) seen as (b, s, h, 1)
    view.rank = 4;
    view.shape = {view.shape[0], view.shape[2], view.shape[1], 1};
    view.strides = {view.strides[0], view.strides[2], view.strides[1], 0};
  }
  return view;
}

Session::Session(const AttentionCallable& callable, const AttentionProblem& problem, const ConstTensorView& q,
                 const ConstTensorView& k, const ConstTensorView& v, const AuditOptions& options)
    : callable_(callable), problem_(problem), lse_(options.lse) {
  const std::array<const ConstTensorView*, 3> sources{&q, &k, &v};
  for (const Operand operand : kAllOperands) {
    Input& input = pristine_[static_cast<std::size_t>(operand)];
    const bool is_d_out = operand == Operand::kDOut;
    const std::array<std::int64_t, kMaxRank> d_out_shape{problem.b, problem.s_q, problem.h_q, problem.d_v};
    const auto shape = is_d_out ? d_out_shape : sources[static_cast<std::size_t>(operand)]->shape;
    input.view = make_dense(static_cast<void*>(nullptr), problem.dtype, 4, shape);
    input.bytes.resize(bytes_of(input.view));
    input.view.data = input.bytes.data();
    if (is_d_out) {
      fill_random(input.view, options.seed);
    } else {
      copy_dense(*sources[static_cast<std::size_t>(operand)], input.view);
    }
  }
}

Session::Input Session::edited(Operand operand, const RunRequest& request) const {
  const Input& source = pristine_[static_cast<std::size_t>(operand)];
  Input input;
  auto shape = source.view.shape;
  shape[1] = request.tokens;
  input.view = make_dense(static_cast<void*>(nullptr), problem_.dtype, 4, shape);
  input.bytes.resize(bytes_of(input.view));
  input.view.data = input.bytes.data();
  const std::size_t sequence = input.bytes.size() / static_cast<std::size_t>(shape[0]);
  const std::size_t source_sequence = source.bytes.size() / static_cast<std::size_t>(shape[0]);
  for (std::size_t b = 0; b < static_cast<std::size_t>(shape[0]); ++b) {
    std::memcpy(input.bytes.data() + b * sequence, source.bytes.data() + b * source_sequence, sequence);
  }
  for (const Edit& edit : request.edits) {
    if (edit.operand == operand) {
      perturb(input.view, edit.tokens, edit.perturbation);
    }
  }
  if (operand == Operand::kDOut && request.d_out_end < request.tokens) {
    const std::size_t row = sequence / static_cast<std::size_t>(shape[1]);
    const std::size_t kept = row * static_cast<std::size_t>(request.d_out_end);
    for (std::size_t b = 0; b < static_cast<std::size_t>(shape[0]); ++b) {
      std::memset(input.bytes.data() + b * sequence + kept, 0, sequence - kept);
    }
  }
  return input;
}

Result Session::run(const RunRequest& request) {
  // Edit the inputs.
  std::array<Input, kOperands> inputs;
  std::array<std::vector<std::byte>, kOperands> before;
  for (const Operand operand : kAllOperands) {
    if (operand != Operand::kDOut || request.gradients) {
      const auto at = static_cast<std::size_t>(operand);
      inputs[at] = edited(operand, request);
      before[at] = inputs[at].bytes;
    }
  }
  AuditRun run{.problem = problem_,
               .q = inputs[0].view,
               .k = inputs[1].view,
               .v = inputs[2].view,
               .d_out = inputs[3].view,
               .out = {},
               .lse = {},
               .dq = {},
               .dk = {},
               .dv = {}};
  run.problem.s_q = request.tokens;
  run.problem.s_kv = request.tokens;

  // Poison the outputs.
  Result result;
  const auto allocate = [&](Output output, DType dtype, int rank, std::array<std::int64_t, kMaxRank> shape) {
    Result::Stored& stored = result.stored_[static_cast<std::size_t>(output)];
    stored.view = make_dense(static_cast<const void*>(nullptr), dtype, rank, shape);
    stored.bytes.assign(bytes_of(stored.view), static_cast<std::byte>(request.poison));
    return make_dense(static_cast<void*>(stored.bytes.data()), dtype, rank, shape);
  };
  run.out = allocate(Output::kOut, problem_.out_dtype, 4, {problem_.b, request.tokens, problem_.h_q, problem_.d_v});
  if (lse_) {
    run.lse = allocate(Output::kLse, DType::kFloat32, 3, {problem_.b, problem_.h_q, request.tokens});
  }
  if (request.gradients) {
    run.dq = allocate(Output::kDq, problem_.out_dtype, 4, run.q.shape);
    run.dk = allocate(Output::kDk, problem_.out_dtype, 4, run.k.shape);
    run.dv = allocate(Output::kDv, problem_.out_dtype, 4, run.v.shape);
  }

  ++runs_;
  callable_(run);
  check_unchanged(inputs, before);
  return result;
}

void Session::check_unchanged(const std::array<Input, kOperands>& inputs,
                              const std::array<std::vector<std::byte>, kOperands>& before) {
  for (const Operand operand : kAllOperands) {
    const auto at = static_cast<std::size_t>(operand);
    const std::string name(name_of(operand));
    const bool known = std::any_of(writes_to_inputs_.begin(), writes_to_inputs_.end(),
                                   [&](const Leak& leak) { return leak.tensor == name; });
    if (known || inputs[at].bytes == before[at]) {
      continue;
    }
    ConstTensorView original = inputs[at].view;
    original.data = before[at].data();
    const auto difference = compare_rows(original, inputs[at].view, {.first = 0, .last = original.shape[1] - 1});
    writes_to_inputs_.push_back({.property = "inputs",
                                 .tensor = name,
                                 .operand = name,
                                 .batch = difference->batch,
                                 .row = difference->row,
                                 .head = difference->head,
                                 .element = difference->element,
                                 .before = difference->before,
                                 .after = difference->after,
                                 .relative_change = difference->relative_change});
  }
}

}  // namespace checkvalve::audit_detail
