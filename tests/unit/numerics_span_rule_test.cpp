// numerics_span_rule_test.cpp: which keys a row sees, and that no row reads a shared scale of a block it does not see.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "numerics/span_rule.h"

namespace checkvalve::numerics {
namespace {

constexpr std::int64_t kLength = 400;

const char* name_of(TokenCopyRule rule) {
  switch (rule) {
    case TokenCopyRule::kAll:
      return "all";
    case TokenCopyRule::kOwnBlock:
      return "own_block";
    case TokenCopyRule::kFirstAndOwnSpan:
      return "first_and_own_span";
  }
  return "?";
}

class SpanRule : public testing::TestWithParam<TokenCopyRule> {
 protected:
  // visit(position, visible) -> bool for every position of a sequence of s_kv tokens and every window; stops at false.
  template <typename Visit>
  static void for_each_row(std::int64_t s_kv, bool causal, Visit&& visit) {
    for (std::int64_t position = causal ? 0 : -40; position < s_kv; ++position) {
      for (std::int64_t window = -1; window <= std::max<std::int64_t>(position, 0) + 1; ++window) {
        if (!visit(position, visible_keys(position, s_kv, causal, window))) {
          return;
        }
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Rules, SpanRule,
                         testing::Values(TokenCopyRule::kAll, TokenCopyRule::kOwnBlock,
                                         TokenCopyRule::kFirstAndOwnSpan),
                         [](const auto& rule) { return name_of(rule.param); });

// THE leak property: the scale of a shared copy looks at all tokens of its 32-token block, so a row may use it only if
// it sees all of them.
TEST_P(SpanRule, ASharedCopyIsUsedOnlyIfTheRowSeesItsWholeBlock) {
  for (const bool causal : {true, false}) {
    for (const std::int64_t s_kv : {kLength, kLength - 16, std::int64_t{33}}) {
      std::int64_t shared = 0;
      for_each_row(s_kv, causal, [&](std::int64_t position, KeyRange visible) {
        for (std::int64_t j = visible.begin; j < visible.end; ++j) {
          if (uses_token_copy(GetParam(), position, j, visible.begin)) {
            continue;
          }
          ++shared;
          const std::int64_t first = j / kBlockTokens * kBlockTokens;
          const std::int64_t last = std::min(first + kBlockTokens, s_kv) - 1;
          const bool sees_all = visible.begin <= first && last < visible.end;
          EXPECT_TRUE(sees_all) << fmt::format("row {} sees {}..{} and reads the scale of tokens {}..{} for key {}",
                                               position, visible.begin, visible.end - 1, first, last, j);
          if (!sees_all) {
            return false;
          }
        }
        return true;
      });
      // The property is empty if no row uses a shared copy at all.
      const bool expected = GetParam() == TokenCopyRule::kOwnBlock
                                ? s_kv > kBlockTokens
                                : GetParam() == TokenCopyRule::kFirstAndOwnSpan && s_kv > 2 * kSpanTokens;
      EXPECT_EQ(shared > 0, expected) << "s_kv " << s_kv;
    }
  }
}

TEST_P(SpanRule, AllKeysOfABlockUseTheSameCopy) {
  for_each_row(kLength, true, [&](std::int64_t position, KeyRange visible) {
    for (std::int64_t first = 0; first < kLength; first += kBlockTokens) {
      const bool of_first = uses_token_copy(GetParam(), position, first, visible.begin);
      for (std::int64_t j = first + 1; j < std::min(first + kBlockTokens, kLength); ++j) {
        const bool same = uses_token_copy(GetParam(), position, j, visible.begin) == of_first;
        EXPECT_TRUE(same) << fmt::format("row {}, keys {} and {}, window from {}", position, first, j, visible.begin);
        if (!same) {
          return false;
        }
      }
    }
    return true;
  });
}

// The rule in words, written a second time.
TEST_P(SpanRule, NearKeysUseTheTokenCopyAndTheOthersTheShared) {
  for_each_row(kLength, true, [&](std::int64_t position, KeyRange visible) {
    for (std::int64_t j = visible.begin; j < visible.end; ++j) {
      bool token = true;
      if (GetParam() != TokenCopyRule::kAll) {
        const std::int64_t unit = GetParam() == TokenCopyRule::kOwnBlock ? 32 : 128;
        const bool same_unit_as_row = j / unit == position / unit;
        const bool unit_loses_its_start = j / unit * unit < visible.begin;
        const bool first_span = GetParam() == TokenCopyRule::kFirstAndOwnSpan && j <= 127;
        token = same_unit_as_row || unit_loses_its_start || first_span;
      }
      const bool same = uses_token_copy(GetParam(), position, j, visible.begin) == token;
      EXPECT_TRUE(same) << fmt::format("row {}, key {}, window from {}", position, j, visible.begin);
      if (!same) {
        return false;
      }
    }
    return true;
  });
}

TEST(SpanRuleLiterals, OwnBlock) {
  constexpr auto kRule = TokenCopyRule::kOwnBlock;
  EXPECT_TRUE(uses_token_copy(kRule, 31, 0, 0));
  EXPECT_FALSE(uses_token_copy(kRule, 32, 31, 0));
  EXPECT_TRUE(uses_token_copy(kRule, 32, 32, 0));
  EXPECT_FALSE(uses_token_copy(kRule, 100, 95, 0));
  EXPECT_TRUE(uses_token_copy(kRule, 100, 96, 0));
  EXPECT_TRUE(uses_token_copy(kRule, 100, 41, 40));
  EXPECT_FALSE(uses_token_copy(kRule, 100, 64, 40));
  EXPECT_FALSE(uses_token_copy(kRule, 100, 33, 32));
}

TEST(SpanRuleLiterals, FirstAndOwnSpan) {
  constexpr auto kRule = TokenCopyRule::kFirstAndOwnSpan;
  EXPECT_TRUE(uses_token_copy(kRule, 300, 127, 0));
  EXPECT_FALSE(uses_token_copy(kRule, 300, 128, 0));
  EXPECT_FALSE(uses_token_copy(kRule, 300, 255, 0));
  EXPECT_TRUE(uses_token_copy(kRule, 300, 256, 0));
  EXPECT_TRUE(uses_token_copy(kRule, 255, 128, 0));
  EXPECT_FALSE(uses_token_copy(kRule, 256, 128, 0));
  EXPECT_TRUE(uses_token_copy(kRule, 300, 255, 129));
  EXPECT_FALSE(uses_token_copy(kRule, 300, 255, 128));
}

TEST(VisibleKeys, MatchTheMaskEntryByEntry) {
  for (std::int64_t s_q = 0; s_q <= 9; ++s_q) {
    for (std::int64_t s_kv = 0; s_kv <= 9; ++s_kv) {
      for (std::int64_t window = -1; window <= 11; ++window) {
        for (const bool causal : {true, false}) {
          for (std::int64_t i = 0; i < s_q; ++i) {
            const std::int64_t position = i + s_kv - s_q;
            const KeyRange range = visible_keys(position, s_kv, causal, window);
            for (std::int64_t j = 0; j < s_kv; ++j) {
              const bool expected = (!causal || j <= position) && (window < 0 || j >= position - window);
              ASSERT_EQ(range.begin <= j && j < range.end, expected)
                  << fmt::format("s_q {} s_kv {} window {} causal {} row {} key {}", s_q, s_kv, window, causal, i, j);
            }
            ASSERT_GE(range.begin, 0);
            ASSERT_LE(range.end, s_kv);
          }
        }
      }
    }
  }
}

TEST(VisibleKeys, RowsBeforeTheFirstKeySeeNothing) {
  for (const std::int64_t position : {-1, -2, -100}) {
    const KeyRange range = visible_keys(position, 5, true, -1);
    EXPECT_LE(range.end, range.begin) << position;
  }
  const KeyRange none = visible_keys(0, 0, true, -1);
  EXPECT_LE(none.end, none.begin);
}

}  // namespace
}  // namespace checkvalve::numerics
