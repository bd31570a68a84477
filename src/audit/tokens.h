// tokens.h: ranges of tokens, the regions around a cut, and the cuts that an audit uses.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "checkvalve/audit.h"

namespace checkvalve::audit_detail {

// first .. last, both included; empty if last < first.
struct TokenRange {
  std::int64_t first = 0;
  std::int64_t last = -1;
  [[nodiscard]] bool empty() const { return last < first; }
  [[nodiscard]] std::int64_t size() const { return empty() ? 0 : last - first + 1; }
};

// Where `token` stands, seen from row `cut`.
[[nodiscard]] Region region_of(std::int64_t cut, std::int64_t token);

// The non-empty regions of `tokens`, all on one side of `cut`, in the order of the tokens.
[[nodiscard]] std::vector<TokenRange> split_by_region(std::int64_t cut, TokenRange tokens);

// Offsets inside, at and across the 32- and 128-token boundaries of a sequence of s tokens; each cut leaves a later
// token.
[[nodiscard]] std::vector<std::int64_t> default_cuts(std::int64_t s);

// True if row `cut` has later tokens in its own block: only such a cut can show a scale shared by a block.
[[nodiscard]] bool cuts_own_block(std::int64_t cut, std::int64_t s);

// The one or two cuts with the most complete surroundings: the one with the most regions before and after it and
// nearest to the middle of its block, and the best one of another span.
[[nodiscard]] std::vector<std::int64_t> detailed_cuts(std::span<const std::int64_t> cuts, std::int64_t s);

}  // namespace checkvalve::audit_detail
