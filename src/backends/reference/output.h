// output.h: writing float64 results into the caller's tensors.
#pragma once

#include <cstdint>
#include <span>

#include "api/sequences.h"
#include "numerics/element.h"

namespace checkvalve::reference {

// Sets every element of a tensor of any rank and strides; absent tensors are left alone.
inline void fill_output(const TensorView& t, double value) {
  if (!t || t.numel() == 0) {
    return;
  }
  const auto extent = [&t](int dim) { return dim < t.rank ? t.shape[static_cast<std::size_t>(dim)] : 1; };
  for (std::int64_t i0 = 0; i0 < extent(0); ++i0) {
    for (std::int64_t i1 = 0; i1 < extent(1); ++i1) {
      for (std::int64_t i2 = 0; i2 < extent(2); ++i2) {
        for (std::int64_t i3 = 0; i3 < extent(3); ++i3) {
          numerics::store_element(t, numerics::offset_of(t, i0, i1, i2, i3), value);
        }
      }
    }
  }
}

// Row `row` of head `head` of a (b, s, h, d) tensor.
inline void store_row(const TensorView& t, std::int64_t batch, std::int64_t row, std::int64_t head,
                      std::span<const double> values) {
  for (std::size_t c = 0; c < values.size(); ++c) {
    numerics::store_element(t, numerics::offset_of(t, batch, row, head, static_cast<std::int64_t>(c)), values[c]);
  }
}

// Offset of row i of a sequence in an lse tensor: (b, h_q, s_q), or (h_q, total_q) if packed.
[[nodiscard]] inline std::int64_t lse_offset(const ConstTensorView& lse, const AttentionProblem& problem,
                                             const Sequence& seq, std::int64_t head, std::int64_t i) {
  return problem.packed() ? numerics::offset_of(lse, head, seq.q_begin + i)
                          : numerics::offset_of(lse, seq.batch, head, i);
}

inline void store_lse(const TensorView& lse, const AttentionProblem& problem, const Sequence& seq, std::int64_t head,
                      std::int64_t i, double value) {
  if (lse) {
    numerics::store_element(lse, lse_offset(lse, problem, seq, head, i), value);
  }
}

}  // namespace checkvalve::reference
