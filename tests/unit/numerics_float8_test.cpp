// numerics_float8_test.cpp: E4M3 and E5M2, code by code and at every rounding boundary.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "numerics/float8.h"
#include "support/numerics_values.h"

namespace checkvalve::numerics {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct E4M3Facts {
  using Format = E4M3;
  static double value(std::uint32_t code) { return test::e4m3_value(code); }
};
struct E5M2Facts {
  using Format = E5M2;
  static double value(std::uint32_t code) { return test::e5m2_value(code); }
};

template <typename Facts>
class Float8 : public testing::Test {
 protected:
  using F = typename Facts::Format;
  static std::uint8_t encode(float x) { return encode_float8<F>(x); }
  static float decode(std::uint32_t code) { return decode_float8<F>(static_cast<std::uint8_t>(code)); }
  static std::vector<double> magnitudes() {
    std::vector<double> table;
    for (std::uint32_t code = 0; code <= F::kMaxCode; ++code) {
      table.push_back(Facts::value(code));
    }
    return table;
  }
};
using Formats = testing::Types<E4M3Facts, E5M2Facts>;
TYPED_TEST_SUITE(Float8, Formats);

TYPED_TEST(Float8, EveryCodeDecodesToItsValue) {
  for (std::uint32_t code = 0; code < 256; ++code) {
    const double expected = TypeParam::value(code);
    const auto actual = static_cast<double>(this->decode(code));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(actual)) << "code " << code;
    } else {
      EXPECT_EQ(actual, expected) << "code " << code;
      EXPECT_EQ(std::signbit(actual), code >= 128U) << "code " << code;
    }
  }
}

TYPED_TEST(Float8, EveryFiniteCodeRoundTrips) {
  for (std::uint32_t code = 0; code < 256; ++code) {
    const std::uint32_t back = this->encode(this->decode(code));
    const double value = TypeParam::value(code);
    if (std::isnan(value)) {
      EXPECT_EQ(back, std::uint32_t{kFloat8NaN}) << "code " << code;
    } else if (std::isinf(value)) {
      EXPECT_EQ(back, (code & 0x80U) | TestFixture::F::kMaxCode) << "code " << code;
    } else {
      EXPECT_EQ(back, code);
    }
  }
}

TYPED_TEST(Float8, MidpointsRoundToEvenAndTheirNeighboursToTheNearest) {
  const std::vector<double> table = this->magnitudes();
  for (std::uint32_t code = 0; code + 1 < table.size(); ++code) {
    const auto middle = static_cast<float>((table[code] + table[code + 1]) / 2.0);
    const std::uint32_t even = code % 2 == 0 ? code : code + 1;
    EXPECT_EQ(this->encode(middle), even) << middle;
    EXPECT_EQ(this->encode(std::nextafter(middle, 0.0F)), code) << middle;
    EXPECT_EQ(this->encode(std::nextafter(middle, kInfinity)), code + 1) << middle;
    EXPECT_EQ(this->encode(-middle), 0x80U | even) << -middle;
    EXPECT_EQ(this->encode(-std::nextafter(middle, 0.0F)), 0x80U | code) << -middle;
    EXPECT_EQ(this->encode(-std::nextafter(middle, kInfinity)), 0x80U | (code + 1)) << -middle;
  }
}

TYPED_TEST(Float8, AllBFloat16PatternsMatchTheNearestEvenSearch) {
  const std::vector<double> table = this->magnitudes();
  std::uint32_t previous = 0;
  for (std::uint32_t pattern = 0; pattern < 0x8000U; ++pattern) {
    const auto x = std::bit_cast<float>(pattern << 16);
    if (std::isnan(x)) {
      EXPECT_EQ(this->encode(x), kFloat8NaN);
      EXPECT_EQ(this->encode(-x), kFloat8NaN);
      continue;
    }
    const std::uint32_t expected =
        std::isinf(x) ? std::uint32_t{TestFixture::F::kMaxCode} : test::nearest_even(table, static_cast<double>(x));
    ASSERT_EQ(this->encode(x), expected) << x;
    ASSERT_EQ(this->encode(-x), 0x80U | expected) << -x;
    ASSERT_GE(expected, previous) << "not monotone at " << x;
    previous = expected;
  }
  EXPECT_EQ(previous, std::uint32_t{TestFixture::F::kMaxCode});
}

TYPED_TEST(Float8, NothingFiniteOrInfiniteBecomesNaN) {
  const float max = TestFixture::F::kMax;
  EXPECT_EQ(static_cast<double>(max), this->magnitudes().back());
  for (const float x : {max, max * 1.03F, max * 1.04F, max * 2.0F, std::numeric_limits<float>::max(), kInfinity}) {
    EXPECT_EQ(this->encode(x), TestFixture::F::kMaxCode) << x;
    EXPECT_EQ(this->encode(-x), 0x80U | TestFixture::F::kMaxCode) << -x;
  }
}

TYPED_TEST(Float8, EveryNaNBecomesNaN) {
  for (const std::uint32_t bits : {0x7F800001U, 0x7FC00000U, 0x7FFFFFFFU, 0xFF800001U, 0xFFC00000U, 0xFFFFFFFFU}) {
    const std::uint8_t byte = this->encode(std::bit_cast<float>(bits));
    EXPECT_EQ(byte, kFloat8NaN);
    EXPECT_TRUE(std::isnan(this->decode(byte)));
  }
}

TYPED_TEST(Float8, ZerosAndFloat32SubnormalsKeepTheirSign) {
  const float denormal = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(this->encode(0.0F), 0x00);
  EXPECT_EQ(this->encode(-0.0F), 0x80);
  EXPECT_EQ(this->encode(denormal), 0x00);
  EXPECT_EQ(this->encode(-denormal), 0x80);
  EXPECT_TRUE(std::signbit(this->decode(0x80)));
}

// Values that the OFP8 specification prints.
TEST(E4M3Codes, LiteralValues) {
  EXPECT_EQ(decode_e4m3(0x01), 0x1p-9F);
  EXPECT_EQ(decode_e4m3(0x07), 0.875F * 0x1p-6F);
  EXPECT_EQ(decode_e4m3(0x08), 0x1p-6F);
  EXPECT_EQ(decode_e4m3(0x38), 1.0F);
  EXPECT_EQ(decode_e4m3(0x7E), 448.0F);
  EXPECT_TRUE(std::isnan(decode_e4m3(0x7F)));
  EXPECT_TRUE(std::isnan(decode_e4m3(0xFF)));
}

TEST(E5M2Codes, LiteralValues) {
  EXPECT_EQ(decode_float8<E5M2>(0x01), 0x1p-16F);
  EXPECT_EQ(decode_float8<E5M2>(0x03), 0.75F * 0x1p-14F);
  EXPECT_EQ(decode_float8<E5M2>(0x04), 0x1p-14F);
  EXPECT_EQ(decode_float8<E5M2>(0x3C), 1.0F);
  EXPECT_EQ(decode_float8<E5M2>(0x7B), 57344.0F);
  EXPECT_EQ(decode_float8<E5M2>(0x7C), kInfinity);
  EXPECT_EQ(decode_float8<E5M2>(0xFC), -kInfinity);
  EXPECT_TRUE(std::isnan(decode_float8<E5M2>(0x7D)));
}

// A cast that does not saturate turns 465 into NaN: pytorch/pytorch#178817.
TEST(E4M3Codes, SaturatesAtAndAbove464) {
  for (const float x : {448.0F, 463.99F, 464.0F, 465.0F, 480.0F, 1e30F, kInfinity}) {
    EXPECT_EQ(encode_e4m3(x), 0x7E) << x;
    EXPECT_EQ(encode_e4m3(-x), 0xFE) << x;
  }
  EXPECT_EQ(encode_e4m3(kNaN), 0x7F);
  EXPECT_EQ(round_to_e4m3(17.0F), 16.0F);
  EXPECT_EQ(round_to_e4m3(19.0F), 20.0F);
}

static_assert(encode_e4m3(1.0F) == 0x38 && decode_e4m3(0x38) == 1.0F, "usable in constant expressions");

}  // namespace
}  // namespace checkvalve::numerics
