// problem.h: everything about an attention call that is known without looking at the data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "checkvalve/tensor.h"

namespace checkvalve {

// Sizes, masks and scale of one attention call.
//
// Query row i of a sequence stands at key position i + (s_kv - s_q) ("bottom-right" alignment: the last query sees the
// last key). With s_q = 2, s_kv = 5 the mask is          with s_q = 5, s_kv = 2 the first three rows see no key:
//      1 1 1 1 0                                              0 0 / 0 0 / 0 0 / 1 0 / 1 1
//      1 1 1 1 1
// A row that sees no key has out = 0 and lse = -inf.
struct AttentionProblem {
  std::int64_t b = 1;     // sequences
  std::int64_t h_q = 1;   // query heads, a multiple of h_kv
  std::int64_t h_kv = 1;  // key/value heads
  std::int64_t s_q = 0;   // queries a sequence; the longest one if packed
  std::int64_t s_kv = 0;  // keys a sequence; the longest one if packed
  std::int64_t d_qk = 0;  // head_dim of Q and K, 1..256
  std::int64_t d_v = 0;   // head_dim of V and out, 1..256

  DType dtype = DType::kFloat32;      // of q, k, v: float32, float16 or bfloat16
  DType out_dtype = DType::kFloat32;  // of out and of dq, dk, dv: `dtype` or float32

  bool causal = true;
  // Row at key position p sees keys j >= p - window_left only; -1 means no window. A window of W tokens is W - 1.
  std::int64_t window_left = -1;
  // Factor of q.k; absent means 1 / sqrt(d_qk).
  std::optional<float> softmax_scale;

  // Packed sequences: [b + 1], int32, start at 0, never decrease; sequence n has rows cu[n] .. cu[n+1]-1 of the packed
  // tensors. Both or neither. Rows from cu[b] on get out = 0, lse = -inf and zero gradients. May be null.
  const std::int32_t* cu_seqlens_q = nullptr;
  const std::int32_t* cu_seqlens_kv = nullptr;
  std::int64_t total_q = 0;   // rows of the packed q, >= cu_seqlens_q[b]; 0 if not packed
  std::int64_t total_kv = 0;  // rows of the packed k and v; 0 if not packed

  // Padded sequences: [b], int32, rows of each sequence in use; the others are treated as above. Not with cu_seqlens.
  // May be null.
  const std::int32_t* seqused_q = nullptr;
  const std::int32_t* seqused_kv = nullptr;

  [[nodiscard]] bool packed() const { return cu_seqlens_q != nullptr; }
  [[nodiscard]] float scale() const;  // softmax_scale or its default

  // "b=1 h_q=16 h_kv=4 s_q=1024 s_kv=1024 d_qk=128 d_v=128 bfloat16 causal"
  [[nodiscard]] std::string to_string() const;
};

// The dense causal problem that the shapes of q (b, s_q, h_q, d_qk), k (b, s_kv, h_kv, d_qk) and v (b, s_kv, h_kv, d_v)
// describe. Throws InvalidArgument if they do not fit each other. out_dtype is the dtype of q.
[[nodiscard]] AttentionProblem problem_of(const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v);

}  // namespace checkvalve
