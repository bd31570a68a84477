// row.h: one query row: logits against a tile of keys, and the forward recurrence.
#pragma once

#include <cstdint>
#include <span>

#include "backends/reference/operands.h"
#include "checkvalve/attention.h"
#include "numerics/span_rule.h"

namespace checkvalve::reference {

// Everything about a query row but its numbers.
struct RowPlace {
  std::int64_t position = 0;   // among the keys
  numerics::KeyRange visible;  // empty if end <= begin
};

[[nodiscard]] RowPlace place_of(const AttentionProblem& problem, const Sequence& seq, std::int64_t row);

// Which copy (index into KeyValue::k or ::v) the row uses for key j.
[[nodiscard]] inline int copy_of(TokenCopyRule rule, const RowPlace& place, std::int64_t j) {
  return numerics::uses_token_copy(rule, place.position, j, place.visible.begin) ? 0 : 1;
}

// logits[j - begin] = (q . k_j) * factor for j in [begin, end), each with the copy that the row uses for j.
void row_logits(const KeyValue& kv, const RowPlace& place, const double* q, double factor, std::int64_t begin,
                std::int64_t end, double* logits);

// Rounds to the recipe's format for P, in backward also for dS.
[[nodiscard]] double round_to(Format format, double x);

// How forward_row is to treat V's exponents, and which keys it is to skip.
struct RowMode {
  bool folded = false;  // y = s + e; otherwise V's scale is applied to the rounded P
  int only_copy = -1;   // 0 or 1: only keys whose V the row takes from that copy
  Format p = Format::kFloat32;
  TileOrder order = TileOrder::kFirstToLast;
};

// out[0..d_v) and the natural-log lse of one row. Returns lse; -inf and out = 0 without keys.
double forward_row(const KeyValue& kv, const RowPlace& place, const double* q, double scale, const RowMode& mode,
                   std::span<double> out);

}  // namespace checkvalve::reference
