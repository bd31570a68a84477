// numerics_scale_layout_test.cpp: the 128x4 tiled layout of scale bytes, both ways.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <vector>

#include "checkvalve/error.h"
#include "numerics/scale_layout.h"

namespace checkvalve::numerics {
namespace {

constexpr std::int64_t kOuter[] = {0, 1, 2, 31, 32, 33, 127, 128, 129, 255, 300, 1664};
constexpr std::int64_t kInner[] = {0, 1, 2, 3, 4, 5, 7, 8, 13};

std::vector<std::uint8_t> random_bytes(std::int64_t n, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(n));
  for (std::uint8_t& b : bytes) {
    b = static_cast<std::uint8_t>(1 + random() % 255);  // never 0, the value of the padding
  }
  return bytes;
}

TEST(ScaleLayout, TakesWholeTiles) {
  EXPECT_EQ(tiled_scale_bytes(0, 4), 0);
  EXPECT_EQ(tiled_scale_bytes(1, 1), 512);
  EXPECT_EQ(tiled_scale_bytes(128, 4), 512);
  EXPECT_EQ(tiled_scale_bytes(129, 4), 1024);
  EXPECT_EQ(tiled_scale_bytes(128, 5), 1024);
  EXPECT_EQ(tiled_scale_bytes(1664, 13), 1664 * 16);
}

// Inside a tile the offset of (row, column) is (row % 32) * 16 + (row / 32) * 4 + column.
TEST(ScaleLayout, LiteralOffsets) {
  EXPECT_EQ(tiled_scale_offset(0, 0, 4), 0);
  EXPECT_EQ(tiled_scale_offset(0, 3, 4), 3);
  EXPECT_EQ(tiled_scale_offset(1, 0, 4), 16);
  EXPECT_EQ(tiled_scale_offset(31, 3, 4), 499);
  EXPECT_EQ(tiled_scale_offset(32, 0, 4), 4);
  EXPECT_EQ(tiled_scale_offset(64, 0, 4), 8);
  EXPECT_EQ(tiled_scale_offset(96, 2, 4), 14);
  EXPECT_EQ(tiled_scale_offset(127, 3, 4), 511);
  EXPECT_EQ(tiled_scale_offset(0, 4, 8), 512);
  EXPECT_EQ(tiled_scale_offset(128, 0, 8), 1024);
  EXPECT_EQ(tiled_scale_offset(128, 0, 5), 1024);
  EXPECT_EQ(tiled_scale_offset(161, 6, 8), 1536 + 16 + 4 + 2);
}

TEST(ScaleLayout, OffsetsAreDistinctAndInside) {
  for (const std::int64_t outer : kOuter) {
    for (const std::int64_t inner : kInner) {
      std::set<std::int64_t> offsets;
      for (std::int64_t i = 0; i < outer; ++i) {
        for (std::int64_t j = 0; j < inner; ++j) {
          const std::int64_t offset = tiled_scale_offset(i, j, inner);
          ASSERT_GE(offset, 0);
          ASSERT_LT(offset, tiled_scale_bytes(outer, inner)) << outer << " x " << inner;
          offsets.insert(offset);
        }
      }
      ASSERT_EQ(static_cast<std::int64_t>(offsets.size()), outer * inner) << outer << " x " << inner;
    }
  }
}

TEST(ScaleLayout, RoundTripsAndZeroesThePadding) {
  for (const std::int64_t outer : kOuter) {
    for (const std::int64_t inner : kInner) {
      const std::vector<std::uint8_t> compact = random_bytes(outer * inner, 17);
      std::vector<std::uint8_t> tiled(static_cast<std::size_t>(tiled_scale_bytes(outer, inner)), 0xAB);
      tile_scales(compact, outer, inner, tiled);
      const auto used = std::ranges::count_if(tiled, [](std::uint8_t b) { return b != 0; });
      ASSERT_EQ(used, outer * inner) << outer << " x " << inner;
      std::vector<std::uint8_t> back(compact.size());
      untile_scales(tiled, outer, inner, back);
      ASSERT_EQ(back, compact) << outer << " x " << inner;
    }
  }
}

TEST(ScaleLayout, RefusesWrongSizes) {
  const auto message_of = [](std::size_t compact_bytes, std::size_t tiled_bytes, std::int64_t outer,
                             std::int64_t inner) -> std::string {
    std::vector<std::uint8_t> compact(compact_bytes, 1);
    std::vector<std::uint8_t> tiled(tiled_bytes, 1);
    std::string tile_message;
    try {
      tile_scales(compact, outer, inner, tiled);
    } catch (const InvalidArgument& error) {
      tile_message = error.what();
    }
    EXPECT_EQ(tiled, std::vector<std::uint8_t>(tiled_bytes, 1)) << "written to before the check";
    EXPECT_THROW(untile_scales(tiled, outer, inner, compact), InvalidArgument);
    EXPECT_EQ(compact, std::vector<std::uint8_t>(compact_bytes, 1)) << "written to before the check";
    return tile_message;
  };
  EXPECT_THAT(message_of(9, 512, 2, 5), testing::HasSubstr("9 bytes"));
  EXPECT_THAT(message_of(9, 512, 2, 5), testing::HasSubstr("has 10"));
  EXPECT_THAT(message_of(10, 512, 2, 5), testing::HasSubstr("512 bytes"));
  EXPECT_THAT(message_of(10, 512, 2, 5), testing::HasSubstr("takes 1024"));
  EXPECT_THAT(message_of(10, 1025, 2, 5), testing::HasSubstr("1025"));
  EXPECT_THAT(message_of(0, 0, -1, 4), testing::HasSubstr("-1 x 4"));
  EXPECT_THAT(message_of(4, 512, -1, -4), testing::HasSubstr("-1 x -4"));
}

}  // namespace
}  // namespace checkvalve::numerics
