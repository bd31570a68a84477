// sequences.h: where each sequence of a dense, padded or packed call lies in its tensors.
#pragma once

#include <cstdint>

#include "checkvalve/problem.h"
#include "numerics/span_rule.h"

namespace checkvalve {

struct Sequence {
  std::int64_t batch = 0;     // index in dimension b of the tensors
  std::int64_t q_begin = 0;   // first row in dimension s of q, out, lse
  std::int64_t kv_begin = 0;  // first row in dimension s of k, v
  std::int64_t kv_block = 0;  // first block of the shared scales
  std::int64_t s_q = 0;       // rows in use
  std::int64_t s_kv = 0;
};

// Sequence n of a problem whose length arrays are in host memory.
[[nodiscard]] inline Sequence sequence_of(const AttentionProblem& p, std::int64_t n) {
  if (p.packed()) {
    const std::int64_t q0 = p.cu_seqlens_q[n];
    const std::int64_t kv0 = p.cu_seqlens_kv[n];
    return {.batch = 0,
            .q_begin = q0,
            .kv_begin = kv0,
            .kv_block = kv0 / numerics::kBlockTokens + n,
            .s_q = p.cu_seqlens_q[n + 1] - q0,
            .s_kv = p.cu_seqlens_kv[n + 1] - kv0};
  }
  return {.batch = n,
          .s_q = p.seqused_q != nullptr ? p.seqused_q[n] : p.s_q,
          .s_kv = p.seqused_kv != nullptr ? p.seqused_kv[n] : p.s_kv};
}

// Sizes of dimensions b and s of the tensors, and blocks per batch entry of the shared scales.
struct TensorSizes {
  std::int64_t b = 0;
  std::int64_t rows_q = 0;
  std::int64_t rows_kv = 0;
  std::int64_t blocks = 0;
};

[[nodiscard]] inline TensorSizes tensor_sizes(const AttentionProblem& p) {
  if (p.packed()) {
    return {.b = 1, .rows_q = p.total_q, .rows_kv = p.total_kv, .blocks = p.total_kv / numerics::kBlockTokens + p.b};
  }
  return {.b = p.b,
          .rows_q = p.s_q,
          .rows_kv = p.s_kv,
          .blocks = (p.s_kv + numerics::kBlockTokens - 1) / numerics::kBlockTokens};
}

}  // namespace checkvalve
