// oracle.h: attention on decoded operands by the textbook formulas in float64, with an error bound for every row.
#pragma once

#include <cstdint>
#include <vector>

#include "support/tensors.h"

namespace checkvalve::test {

// For every row (b, s, h in that order of a dense (b, s, h) array): the values a backend must produce, and the largest
// 2-norm of the row's error that the roundings of docs/numerics.md can cause in exact arithmetic otherwise.
struct RowsWithBound {
  std::int64_t d = 0;
  std::vector<double> values;     // (b, s, h, d)
  std::vector<double> bound;      // (b, s, h)
  std::vector<double> magnitude;  // (b, s, h): sum of the norms of the row's terms, the measure of float32 rounding
};

struct Expected {
  RowsWithBound out, dq, dk, dv;
  std::vector<double> lse;  // (b, h, s)
};

// Decodes the bytes of checkvalve::quantize itself, applies the copy rule and the mask by brute force (not through
// numerics/span_rule.h) and evaluates softmax attention and its gradient (delta = sum_j P dP) in float64. Dense
// problems.
[[nodiscard]] Expected expect(const Inputs& in, const Recipe& recipe, const Options& options);

// "" if every row of `got` is within bound + slack * (norm of the expected row) + slack and NaN-free, else a
// description. `largest` receives the largest error as a share of that allowance.
[[nodiscard]] std::string check_rows(const char* name, const HostTensor& got, const RowsWithBound& expected,
                                     double slack, double* largest);

}  // namespace checkvalve::test
