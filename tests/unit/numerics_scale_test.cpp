// numerics_scale_test.cpp: E8M0 bytes, power-of-two scales, linear scales and INT8 codes.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "numerics/float8.h"
#include "numerics/scale_rule.h"
#include "support/numerics_values.h"

namespace checkvalve::numerics {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kDenormal = std::numeric_limits<float>::denorm_min();

int exponent_of(std::uint8_t byte) { return static_cast<int>(byte) - 127; }

TEST(E8M0, EveryByteDecodesToItsPowerOfTwo) {
  for (int byte = 0; byte < 255; ++byte) {
    const auto b = static_cast<std::uint8_t>(byte);
    EXPECT_EQ(static_cast<double>(decode_e8m0(b)), std::ldexp(1.0, byte - 127)) << byte;
    EXPECT_EQ(encode_e8m0(byte - 127), b);
    EXPECT_EQ(static_cast<double>(decode_e8m0_reciprocal(b)), std::ldexp(1.0, 127 - byte)) << byte;
    EXPECT_EQ(decode_e8m0(b) * decode_e8m0_reciprocal(b), 1.0F) << byte;
  }
  EXPECT_TRUE(std::isnan(decode_e8m0(kE8M0NaN)));
  EXPECT_TRUE(std::isnan(decode_e8m0_reciprocal(kE8M0NaN)));
}

TEST(IsFinite, SeparatesInfinitiesAndNaN) {
  for (const float x : {0.0F, -0.0F, kDenormal, 1.0F, std::numeric_limits<float>::max()}) {
    EXPECT_TRUE(is_finite(x)) << x;
    EXPECT_TRUE(is_finite(-x)) << x;
  }
  for (const float x : {kInfinity, -kInfinity, kNaN, -kNaN}) {
    EXPECT_FALSE(is_finite(x)) << x;
  }
}

template <typename F>
class PowerOfTwoScale : public testing::Test {
 protected:
  static void expect_smallest(float amax, int low = kE8M0MinExponent, int high = kE8M0MaxExponent) {
    const std::uint8_t byte = power_of_two_scale<F>(amax, ScaleRounding::kUp, low, high);
    ASSERT_EQ(exponent_of(byte),
              test::smallest_exponent(static_cast<double>(amax), static_cast<double>(F::kMax), low, high))
        << "amax " << amax;
  }
};
using Formats = testing::Types<E4M3, E5M2>;
TYPED_TEST_SUITE(PowerOfTwoScale, Formats);

TYPED_TEST(PowerOfTwoScale, UpIsTheSmallestThatHoldsAmaxForAllBFloat16Magnitudes) {
  for (std::uint32_t pattern = 0; pattern < 0x7F80U; ++pattern) {
    const auto amax = std::bit_cast<float>(pattern << 16);
    this->expect_smallest(amax);
    this->expect_smallest(amax, kFoldMinExponent, kFoldMaxExponent);
  }
}

TYPED_TEST(PowerOfTwoScale, UpChangesExactlyAboveTheLargestElement) {
  for (int k = -140; k <= 127; ++k) {
    const double edge = std::ldexp(static_cast<double>(TypeParam::kMax), k);
    if (edge > static_cast<double>(std::numeric_limits<float>::max())) {
      continue;
    }
    const auto amax = static_cast<float>(edge);
    this->expect_smallest(amax);
    this->expect_smallest(std::nextafter(amax, 0.0F));
    this->expect_smallest(std::nextafter(amax, kInfinity));
    if (k > kE8M0MinExponent) {
      EXPECT_EQ(exponent_of(power_of_two_scale<TypeParam>(amax)), k);
      EXPECT_EQ(exponent_of(power_of_two_scale<TypeParam>(std::nextafter(amax, kInfinity))), k + 1);
    }
  }
}

TYPED_TEST(PowerOfTwoScale, UpNeverLetsAnElementSaturate) {
  std::mt19937 random(7);
  for (int n = 0; n < 200000; ++n) {
    const auto amax = std::bit_cast<float>(static_cast<std::uint32_t>(random()) & 0x7FFFFFFFU);
    if (!is_finite(amax)) {
      continue;
    }
    this->expect_smallest(amax);
    const float scaled = amax * decode_e8m0_reciprocal(power_of_two_scale<TypeParam>(amax));
    ASSERT_LE(scaled, TypeParam::kMax) << amax;
  }
}

TYPED_TEST(PowerOfTwoScale, FloorIsTheTextRuleOfTheMxSpecification) {
  for (std::uint32_t pattern = 1; pattern < 0x7F80U; ++pattern) {
    for (const std::uint32_t low_bits : {0U, 0xFFFFU}) {
      const auto amax = std::bit_cast<float>((pattern << 16) | low_bits);
      const int floor_log2 = std::ilogb(static_cast<double>(amax));
      const int expected = std::max(floor_log2 - TypeParam::kEmax, kE8M0MinExponent);
      ASSERT_EQ(exponent_of(power_of_two_scale<TypeParam>(amax, ScaleRounding::kFloor)), expected) << amax;
    }
  }
}

TYPED_TEST(PowerOfTwoScale, ZeroAndSubnormalsGiveTheSmallestScale) {
  for (const float amax : {0.0F, kDenormal, std::nextafter(0x1p-126F, 0.0F)}) {
    for (const ScaleRounding rounding : {ScaleRounding::kUp, ScaleRounding::kFloor}) {
      EXPECT_EQ(power_of_two_scale<TypeParam>(amax, rounding), 0) << amax;
      EXPECT_EQ(exponent_of(power_of_two_scale<TypeParam>(amax, rounding, -40, 60)), -40) << amax;
    }
  }
}

TYPED_TEST(PowerOfTwoScale, ClampsAtBothEnds) {
  EXPECT_EQ(exponent_of(power_of_two_scale<TypeParam>(0x1p-100F, ScaleRounding::kUp, -40, 60)), -40);
  EXPECT_EQ(exponent_of(power_of_two_scale<TypeParam>(0x1p100F, ScaleRounding::kUp, -40, 60)), 60);
  EXPECT_EQ(exponent_of(power_of_two_scale<TypeParam>(0x1p100F, ScaleRounding::kFloor, -40, 60)), 60);
  EXPECT_EQ(exponent_of(power_of_two_scale<TypeParam>(TypeParam::kMax * 0x1p-40F, ScaleRounding::kUp, -40, 60)), -40);
  EXPECT_EQ(exponent_of(power_of_two_scale<TypeParam>(TypeParam::kMax * 0x1p60F, ScaleRounding::kUp, -40, 60)), 60);
}

TYPED_TEST(PowerOfTwoScale, NonFiniteAmaxGivesTheNaNByte) {
  for (const float amax : {kInfinity, kNaN}) {
    EXPECT_EQ(power_of_two_scale<TypeParam>(amax), kE8M0NaN);
    EXPECT_EQ(power_of_two_scale<TypeParam>(amax, ScaleRounding::kFloor, -40, 60), kE8M0NaN);
  }
}

// pytorch/ao#2035: 150 / 448 rounds up to 2^-1, the floor rule also gives 2^(7 - 8). 450 tells them apart.
TEST(PowerOfTwoScaleE4M3, LiteralValues) {
  EXPECT_EQ(power_of_two_scale<E4M3>(150.0F), 126);
  EXPECT_EQ(power_of_two_scale<E4M3>(448.0F), 127);
  EXPECT_EQ(power_of_two_scale<E4M3>(450.0F), 128);
  EXPECT_EQ(power_of_two_scale<E4M3>(450.0F, ScaleRounding::kFloor), 127);
  EXPECT_EQ(power_of_two_scale<E4M3>(1.0F), 119);
  EXPECT_EQ(power_of_two_scale<E4M3>(std::numeric_limits<float>::max()), 247);
  EXPECT_EQ(power_of_two_scale<E5M2>(57344.0F), 127);
  EXPECT_EQ(power_of_two_scale<E5M2>(57345.0F), 128);
}

TEST(LinearScale, IsTheFloatQuotientOrOne) {
  std::mt19937 random(11);
  for (const float max_code : {127.0F, E4M3::kMax}) {
    for (int n = 0; n < 100000; ++n) {
      const auto amax = std::bit_cast<float>(static_cast<std::uint32_t>(random()) & 0x7FFFFFFFU);
      if (!is_finite(amax)) {
        continue;
      }
      const auto quotient = static_cast<float>(static_cast<double>(amax) / static_cast<double>(max_code));
      const float expected = quotient < 0x1p-126F ? 1.0F : quotient;
      ASSERT_EQ(linear_scale(amax, max_code), expected) << amax;
    }
  }
}

TEST(LinearScale, EdgesOfTheRange) {
  EXPECT_EQ(linear_scale(0.0F, 127.0F), 1.0F);
  EXPECT_EQ(linear_scale(kDenormal, 127.0F), 1.0F);
  EXPECT_EQ(linear_scale(0x1p-126F, 127.0F), 1.0F);
  EXPECT_EQ(linear_scale(127.0F * 0x1p-126F, 127.0F), 0x1p-126F);
  EXPECT_EQ(linear_scale(127.0F, 127.0F), 1.0F);
  EXPECT_EQ(linear_scale(448.0F, 448.0F), 1.0F);
  EXPECT_TRUE(is_finite(linear_scale(std::numeric_limits<float>::max(), 127.0F)));
  EXPECT_TRUE(std::isnan(linear_scale(kInfinity, 127.0F)));
  EXPECT_TRUE(std::isnan(linear_scale(kNaN, 127.0F)));
}

TEST(EncodeInt8, TiesGoToTheEvenCode) {
  for (const float scale : {1.0F, 0.125F, 0x1p-100F, 0x1p90F}) {
    for (int k = -127; k < 127; ++k) {
      const float middle = (static_cast<float>(k) + 0.5F) * scale;
      const int even = k % 2 == 0 ? k : k + 1;
      EXPECT_EQ(encode_int8(middle, scale), even) << k << " + 0.5";
      EXPECT_EQ(encode_int8(std::nextafter(middle, -kInfinity), scale), k) << k << " + 0.5 from below";
      EXPECT_EQ(encode_int8(std::nextafter(middle, kInfinity), scale), k + 1) << k << " + 0.5 from above";
      EXPECT_EQ(encode_int8(static_cast<float>(k) * scale, scale), k);
    }
  }
}

TEST(EncodeInt8, ClampsToPlusMinus127) {
  for (const float x : {127.0F, 127.4F, 127.5F, 128.0F, 200.0F, 1e30F, kInfinity}) {
    EXPECT_EQ(encode_int8(x, 1.0F), 127) << x;
    EXPECT_EQ(encode_int8(-x, 1.0F), -127) << x;
  }
  EXPECT_EQ(encode_int8(1e38F, 1e-38F), 127);
}

TEST(EncodeInt8, RoundsTheFloatQuotientAndReachesAmax) {
  std::mt19937 random(13);
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  for (int n = 0; n < 100000; ++n) {
    const float amax = std::ldexp(1.0F + std::fabs(uniform(random)), static_cast<int>(random() % 200) - 100);
    const float scale = linear_scale(amax, 127.0F);
    const float x = amax * uniform(random);
    const float quotient = x / scale;
    ASSERT_EQ(static_cast<double>(encode_int8(x, scale)), std::nearbyint(static_cast<double>(quotient))) << x;
    ASSERT_EQ(encode_int8(amax, scale), 127) << amax;
    ASSERT_EQ(encode_int8(-amax, scale), -127) << amax;
  }
}

TEST(EncodeInt8, ZeroAndDenormalRowsBecomeZero) {
  for (const float amax : {0.0F, kDenormal, 1e-45F, 0x1p-127F}) {
    EXPECT_EQ(encode_int8(amax, linear_scale(amax, 127.0F)), 0) << amax;
    EXPECT_EQ(encode_int8(-amax, linear_scale(amax, 127.0F)), 0) << amax;
  }
}

}  // namespace
}  // namespace checkvalve::numerics
