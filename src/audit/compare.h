// compare.h: bitwise comparison of the rows of two results, and the size of a change.
#pragma once

#include <cstdint>
#include <optional>

#include "audit/tokens.h"
#include "checkvalve/tensor.h"

namespace checkvalve::audit_detail {

// The first element, in the order row, batch, head, channel, whose bytes differ.
struct Difference {
  std::int64_t batch = 0, row = 0, head = 0, element = 0;
  double before = 0.0, after = 0.0;
  double relative_change = 0.0;  // the largest over all compared rows
};

// Compares `rows` of two (b, s, h, d) tensors that agree in everything but strides and, beyond the rows, s.
[[nodiscard]] std::optional<Difference> compare_rows(const ConstTensorView& before, const ConstTensorView& after,
                                                     TokenRange rows);

// |after - before| / |before| of row `row`, the largest over batches and heads (2-norms over the channels). 0 if the
// bytes are the same; infinity if a changed element is not finite before or after, or if the row was zero.
[[nodiscard]] double relative_change(const ConstTensorView& before, const ConstTensorView& after, std::int64_t row);

}  // namespace checkvalve::audit_detail
