// operands.h: the decoded operands of one sequence and head, as the reference computes on them.
#pragma once

#include <cstdint>
#include <vector>

#include "api/sequences.h"
#include "checkvalve/attention.h"

namespace checkvalve::reference {

// Rows of float64, (rows, d).
struct Matrix {
  std::int64_t d = 0;
  std::vector<double> values;

  Matrix() = default;
  Matrix(std::int64_t rows, std::int64_t d_) : d(d_), values(static_cast<std::size_t>(rows * d_)) {}
  [[nodiscard]] double* row(std::int64_t i) { return values.data() + i * d; }
  [[nodiscard]] const double* row(std::int64_t i) const { return values.data() + i * d; }
};

// One copy of K: the rows, and the same numbers as [block][d][32] so that a loop over the tokens of a block is
// contiguous.
struct KeyCopy {
  Matrix rows;
  std::vector<double> by_block;
};

// One copy of V as V_j = 2^e_j * vhat_j.
struct ValueCopy {
  Matrix vhat;
  std::vector<double> exponent;  // e_j; 0 without scales; NaN marks a contained token
};

// Index 0 is the token copy, 1 the shared copy; the shared one is empty where the rule never asks for it.
struct KeyValue {
  KeyCopy k[2];
  ValueCopy v[2];
  TokenCopyRule k_rule = TokenCopyRule::kAll;
  TokenCopyRule v_rule = TokenCopyRule::kAll;
};

[[nodiscard]] Matrix decode_query(const AttentionProblem& problem, const Recipe& recipe, const QuantizedQKV& operands,
                                  const Options& options, const Sequence& seq, std::int64_t head);

[[nodiscard]] KeyValue decode_key_value(const AttentionProblem& problem, const Recipe& recipe,
                                        const QuantizedQKV& operands, const Options& options, const Sequence& seq,
                                        std::int64_t kv_head);

}  // namespace checkvalve::reference
