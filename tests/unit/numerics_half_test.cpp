// numerics_half_test.cpp: float16 and bfloat16, code by code and at every rounding boundary.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "numerics/half.h"
#include "support/numerics_values.h"

namespace checkvalve::numerics {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Half {
  static constexpr std::uint32_t kInfinityCode = 0x7C00;
  static double value(std::uint32_t code) { return test::fp16_value(code); }
  static std::uint32_t encode(float x) { return float_to_fp16(x); }
  static float decode(std::uint32_t code) { return fp16_to_float(static_cast<std::uint16_t>(code)); }
  static float round(float x) { return round_to_fp16(x); }
};
struct BFloat {
  static constexpr std::uint32_t kInfinityCode = 0x7F80;
  static double value(std::uint32_t code) { return test::bf16_value(code); }
  static std::uint32_t encode(float x) { return float_to_bf16(x); }
  static float decode(std::uint32_t code) { return bf16_to_float(static_cast<std::uint16_t>(code)); }
  static float round(float x) { return round_to_bf16(x); }
};

template <typename T>
class Float16 : public testing::Test {};
using Formats = testing::Types<Half, BFloat>;
TYPED_TEST_SUITE(Float16, Formats);

TYPED_TEST(Float16, EveryCodeDecodesToItsValueAndRoundTrips) {
  for (std::uint32_t code = 0; code < 0x10000U; ++code) {
    const double expected = TypeParam::value(code);
    const float actual = TypeParam::decode(code);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(actual)) << code;
      ASSERT_TRUE(std::isnan(TypeParam::decode(TypeParam::encode(actual)))) << code;
      ASSERT_EQ(TypeParam::encode(actual) & 0x8000U, code & 0x8000U) << code;
    } else {
      ASSERT_EQ(static_cast<double>(actual), expected) << code;
      ASSERT_EQ(TypeParam::encode(actual), code);
      ASSERT_EQ(TypeParam::round(actual), actual);
    }
  }
}

TYPED_TEST(Float16, MidpointsRoundToEvenAndTheirNeighboursToTheNearest) {
  for (std::uint32_t code = 0; code + 1 < TypeParam::kInfinityCode; ++code) {
    const auto middle = static_cast<float>((TypeParam::value(code) + TypeParam::value(code + 1)) / 2.0);
    const std::uint32_t even = code % 2 == 0 ? code : code + 1;
    ASSERT_EQ(TypeParam::encode(middle), even) << middle;
    ASSERT_EQ(TypeParam::encode(std::nextafter(middle, 0.0F)), code) << middle;
    ASSERT_EQ(TypeParam::encode(std::nextafter(middle, kInfinity)), code + 1) << middle;
    ASSERT_EQ(TypeParam::encode(-middle), 0x8000U | even) << -middle;
  }
}

TYPED_TEST(Float16, NaNsWithAnyPayloadStayNaN) {
  for (const std::uint32_t bits : {0x7F800001U, 0x7F80FFFFU, 0x7FC00000U, 0x7FFFFFFFU}) {
    EXPECT_TRUE(std::isnan(TypeParam::round(std::bit_cast<float>(bits)))) << bits;
    EXPECT_TRUE(std::isnan(TypeParam::round(std::bit_cast<float>(bits | 0x80000000U)))) << bits;
  }
}

TYPED_TEST(Float16, ZerosAndInfinitiesKeepTheirSign) {
  EXPECT_EQ(TypeParam::encode(0.0F), 0U);
  EXPECT_EQ(TypeParam::encode(-0.0F), 0x8000U);
  EXPECT_EQ(TypeParam::encode(kInfinity), TypeParam::kInfinityCode);
  EXPECT_EQ(TypeParam::encode(-kInfinity), 0x8000U | TypeParam::kInfinityCode);
  EXPECT_EQ(TypeParam::encode(std::numeric_limits<float>::max()), TypeParam::kInfinityCode);
}

TEST(Fp16, OverflowThreshold) {
  EXPECT_EQ(float_to_fp16(65504.0F), 0x7BFF);
  EXPECT_EQ(float_to_fp16(65519.99F), 0x7BFF);
  EXPECT_EQ(float_to_fp16(std::nextafter(65520.0F, 0.0F)), 0x7BFF);
  EXPECT_EQ(float_to_fp16(65520.0F), 0x7C00);
  EXPECT_EQ(float_to_fp16(-65519.99F), 0xFBFF);
  EXPECT_EQ(float_to_fp16(-65520.0F), 0xFC00);
}

TEST(Fp16, UnderflowThreshold) {
  EXPECT_EQ(float_to_fp16(0x1p-24F), 0x0001);
  EXPECT_EQ(float_to_fp16(0x1p-25F), 0x0000);
  EXPECT_EQ(float_to_fp16(std::nextafter(0x1p-25F, 1.0F)), 0x0001);
  EXPECT_EQ(float_to_fp16(0x1p-14F), 0x0400);
  EXPECT_EQ(float_to_fp16(std::numeric_limits<float>::denorm_min()), 0x0000);
}

TEST(Bf16, OverflowThresholdAndSubnormals) {
  const auto largest = std::bit_cast<float>(0x7F7F0000U);
  const auto middle = std::bit_cast<float>(0x7F7F8000U);
  EXPECT_EQ(float_to_bf16(largest), 0x7F7F);
  EXPECT_EQ(float_to_bf16(std::nextafter(middle, 0.0F)), 0x7F7F);
  EXPECT_EQ(float_to_bf16(middle), 0x7F80);
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x00010000U)), 0x0001);
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x00008000U)), 0x0000);
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x00008001U)), 0x0001);
}

}  // namespace
}  // namespace checkvalve::numerics
