// tokens.cpp: regions around a cut, and the choice of cuts.
#include "audit/tokens.h"

#include <algorithm>
#include <cstdlib>
#include <tuple>

#include "numerics/span_rule.h"

namespace checkvalve::audit_detail {
namespace {

using numerics::kBlockTokens;
using numerics::kSpanTokens;

// Regions with tokens on either side of the cut, then closeness to the middle of the 32-token block.
std::tuple<std::size_t, std::int64_t> surroundings(std::int64_t cut, std::int64_t s) {
  const std::size_t regions = split_by_region(cut, {.first = cut + 1, .last = s - 1}).size() +
                              split_by_region(cut, {.first = 0, .last = cut - 1}).size();
  return {regions, -std::abs(cut % kBlockTokens - kBlockTokens / 2)};
}

}  // namespace

Region region_of(std::int64_t cut, std::int64_t token) {
  if (token / kBlockTokens == cut / kBlockTokens) {
    return Region::kOwnBlock;
  }
  return token / kSpanTokens == cut / kSpanTokens ? Region::kOwnSpan : Region::kBeyond;
}

std::vector<TokenRange> split_by_region(std::int64_t cut, TokenRange tokens) {
  std::vector<TokenRange> ranges;
  for (std::int64_t token = tokens.first; token <= tokens.last; ++token) {
    if (ranges.empty() || region_of(cut, token) != region_of(cut, ranges.back().last)) {
      ranges.push_back({.first = token, .last = token});
    }
    ranges.back().last = token;
  }
  return ranges;
}

std::vector<std::int64_t> default_cuts(std::int64_t s) {
  const std::int64_t last = s - 1;
  const std::int64_t last_block = last / kBlockTokens * kBlockTokens;
  const std::int64_t middle_span = s / 2 / kSpanTokens * kSpanTokens;
  // The second block of a span has a rest of the span on both sides.
  const std::int64_t in_middle_span = middle_span + kBlockTokens + kBlockTokens / 2 - 3;
  std::vector<std::int64_t> cuts{0,    1, 7, 30, 31, 32, 33, 63, 64, 127, 128, in_middle_span, (last_block + last) / 2,
                                 s - 2};
  std::erase_if(cuts, [&](std::int64_t cut) { return cut < 0 || cut >= last; });
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  return cuts;
}

bool cuts_own_block(std::int64_t cut, std::int64_t s) {
  return cut + 1 < s && region_of(cut, cut + 1) == Region::kOwnBlock;
}

std::vector<std::int64_t> detailed_cuts(std::span<const std::int64_t> cuts, std::int64_t s) {
  std::vector<std::int64_t> ordered(cuts.begin(), cuts.end());
  std::stable_sort(ordered.begin(), ordered.end(),
                   [&](std::int64_t a, std::int64_t b) { return surroundings(a, s) > surroundings(b, s); });
  std::vector<std::int64_t> chosen{ordered.front()};
  const auto other = std::find_if(ordered.begin(), ordered.end(),
                                  [&](std::int64_t cut) { return cut / kSpanTokens != chosen.front() / kSpanTokens; });
  if (other != ordered.end()) {
    chosen.push_back(*other);
  }
  return chosen;
}

}  // namespace checkvalve::audit_detail
