// problem.cpp: derived facts of a problem, and its one-line form.
#include "checkvalve/problem.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "checkvalve/error.h"

namespace checkvalve {

float AttentionProblem::scale() const {
  return softmax_scale.value_or(static_cast<float>(1.0 / std::sqrt(static_cast<double>(d_qk))));
}

std::string AttentionProblem::to_string() const {
  std::string text = fmt::format("b={} h_q={} h_kv={} s_q={} s_kv={} d_qk={} d_v={} {}", b, h_q, h_kv, s_q, s_kv, d_qk,
                                 d_v, name_of(dtype));
  const auto append = [&text](const std::string& word) { text += " " + word; };
  if (out_dtype != dtype) append(fmt::format("out={}", name_of(out_dtype)));
  append(causal ? "causal" : "not causal");
  if (window_left >= 0) append(fmt::format("window_left={}", window_left));
  if (softmax_scale) append(fmt::format("softmax_scale={}", *softmax_scale));
  if (packed()) append(fmt::format("packed total_q={} total_kv={}", total_q, total_kv));
  if (seqused_q != nullptr) append("seqused_q");
  if (seqused_kv != nullptr) append("seqused_kv");
  return text;
}

AttentionProblem problem_of(const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v) {
  const struct {
    const char* name;
    const ConstTensorView& view;
  } operands[] = {{"q", q}, {"k", k}, {"v", v}};
  for (const auto& [name, view] : operands) {
    if (view.rank != 4) {
      throw InvalidArgument(fmt::format("{} is {}; accepted: rank 4 (b, s, h, d)", name, to_string(view)));
    }
    if (view.dtype != q.dtype) {
      throw InvalidArgument(fmt::format("{} is {} but q is {}; q, k and v must have one dtype, convert one of them",
                                        name, name_of(view.dtype), name_of(q.dtype)));
    }
    if (view.shape[0] != q.shape[0]) {
      throw InvalidArgument(
          fmt::format("{} has batch size {} but q has {}; they must be equal", name, view.shape[0], q.shape[0]));
    }
  }
  if (k.shape[3] != q.shape[3]) {
    throw InvalidArgument(fmt::format("k has head_dim {} but q has {}; they must be equal", k.shape[3], q.shape[3]));
  }
  if (v.shape[1] != k.shape[1] || v.shape[2] != k.shape[2]) {
    throw InvalidArgument(fmt::format("v is {} but k is {}; s and h must be equal", to_string(v), to_string(k)));
  }
  AttentionProblem problem;
  problem.b = q.shape[0];
  problem.h_q = q.shape[2];
  problem.h_kv = k.shape[2];
  problem.s_q = q.shape[1];
  problem.s_kv = k.shape[1];
  problem.d_qk = q.shape[3];
  problem.d_v = v.shape[3];
  problem.dtype = q.dtype;
  problem.out_dtype = q.dtype;
  return problem;
}

}  // namespace checkvalve
