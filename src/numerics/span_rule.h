// span_rule.h: which copy of K and V a query row uses for a key, host and device.
#pragma once

#include <cstdint>

#include "checkvalve/recipe.h"
#include "numerics/host_device.h"

namespace checkvalve::numerics {

inline constexpr std::int64_t kBlockTokens = 32;  // tokens that share a scale of a shared copy
inline constexpr std::int64_t kSpanTokens = 128;  // also the key tile of the schedule

// Keys that a query at key position `position` sees: [begin, end).
struct KeyRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// position = i + (s_kv - s_q). window_left = -1: no window. Empty if end <= begin.
CHECKVALVE_HD constexpr KeyRange visible_keys(std::int64_t position, std::int64_t s_kv, bool causal,
                                              std::int64_t window_left) {
  KeyRange range{0, s_kv};
  if (causal && position + 1 < s_kv) {
    range.end = position + 1;
  }
  if (window_left >= 0 && position - window_left > 0) {
    range.begin = position - window_left;
  }
  return range;
}

// True if the query at `position` uses the token copy of key j; false: the shared copy, whose scale looks at all 32
// tokens of j's block. That is only right if the query sees the whole block: the own unit holds tokens after the query,
// and the unit that the window's left edge cuts (visible.begin) holds tokens that have left the window. The answer is
// the same for all keys of a 32-token block.
CHECKVALVE_HD constexpr bool uses_token_copy(TokenCopyRule rule, std::int64_t position, std::int64_t j,
                                             std::int64_t visible_begin) {
  if (rule == TokenCopyRule::kAll) {
    return true;
  }
  const std::int64_t unit = rule == TokenCopyRule::kOwnBlock ? kBlockTokens : kSpanTokens;
  const bool first_span = rule == TokenCopyRule::kFirstAndOwnSpan && j < kSpanTokens;
  const bool own = j / unit >= position / unit;
  const bool cut = visible_begin % unit != 0 && j / unit == visible_begin / unit;
  return first_span || own || cut;
}

}  // namespace checkvalve::numerics
