// scale_rule.h: from the amax of the elements that share a scale to the scale, host and device.
#pragma once

#include <bit>
#include <cstdint>

#include "checkvalve/recipe.h"
#include "numerics/float8.h"
#include "numerics/host_device.h"

namespace checkvalve::numerics {

// E8M0: byte b is the scale 2^(b - 127), 0xFF is NaN.
inline constexpr std::uint8_t kE8M0NaN = 0xFF;
inline constexpr int kE8M0MinExponent = -127;
inline constexpr int kE8M0MaxExponent = 127;

// Exponents of token- and block-normalised V. A constant range: one taken from the data would leak, and a wider one
// loses tokens with V = 0 from the softmax denominator, which sums p * 2^-e in float32 (docs/numerics.md, Folding).
inline constexpr int kFoldMinExponent = -40;
inline constexpr int kFoldMaxExponent = 60;

CHECKVALVE_HD constexpr std::uint8_t encode_e8m0(int exponent) { return static_cast<std::uint8_t>(exponent + 127); }

CHECKVALVE_HD constexpr float decode_e8m0(std::uint8_t byte) {
  if (byte == kE8M0NaN) {
    return std::bit_cast<float>(0x7FC00000U);
  }
  return std::bit_cast<float>(byte == 0U ? 0x00400000U : static_cast<std::uint32_t>(byte) << 23);
}

// The multiplier 2^-(byte - 127) that divides by the scale; NaN for the NaN byte.
CHECKVALVE_HD constexpr float decode_e8m0_reciprocal(std::uint8_t byte) {
  return byte == kE8M0NaN ? std::bit_cast<float>(0x7FC00000U) : decode_e8m0(static_cast<std::uint8_t>(254U - byte));
}

CHECKVALVE_HD constexpr bool is_finite(float x) {
  return (std::bit_cast<std::uint32_t>(x) & 0x7F800000U) != 0x7F800000U;
}

// The power-of-two scale byte for elements of 8-bit float type F whose largest magnitude is `amax` (>= 0).
// kUp: the smallest 2^e with amax <= F::kMax * 2^e. kFloor: e = floor(log2 amax) - F::kEmax.
// e is clamped to [min_exponent, max_exponent]; amax = 0 and subnormal amax give min_exponent. Non-finite amax: NaN.
template <typename F>
CHECKVALVE_HD constexpr std::uint8_t power_of_two_scale(float amax, ScaleRounding rounding = ScaleRounding::kUp,
                                                        int min_exponent = kE8M0MinExponent,
                                                        int max_exponent = kE8M0MaxExponent) {
  if (!is_finite(amax)) {
    return kE8M0NaN;
  }
  const auto bits = std::bit_cast<std::uint32_t>(amax);
  if ((bits >> 23) == 0U) {
    return encode_e8m0(min_exponent);
  }
  int exponent = static_cast<int>(bits >> 23) - 127 - F::kEmax;
  // F::kMax is 1.75 * 2^kEmax, so a significand above 1.75 needs the next power of two.
  if (rounding == ScaleRounding::kUp && (bits & 0x7FFFFFU) > 0x600000U) {
    ++exponent;
  }
  exponent = exponent < min_exponent ? min_exponent : exponent;
  exponent = exponent > max_exponent ? max_exponent : exponent;
  return encode_e8m0(exponent);
}

// The float32 scale amax / max_code. An amax of zero, or one so small that the scale would be subnormal, gives 1: all
// elements then quantise to zero. Non-finite amax: NaN.
CHECKVALVE_HD constexpr float linear_scale(float amax, float max_code) {
  if (!is_finite(amax)) {
    return std::bit_cast<float>(0x7FC00000U);
  }
  const float scale = amax / max_code;
  return scale < 0x1p-126F ? 1.0F : scale;
}

// round_half_even(x / scale), clamped to +-127. The division is the IEEE one on every backend.
CHECKVALVE_HD constexpr std::int8_t encode_int8(float x, float scale) {
  float code = x / scale;
  code = code > 127.0F ? 127.0F : code;
  code = code < -127.0F ? -127.0F : code;
  // Adding 1.5 * 2^23 makes float32 round to the nearest integer, ties to even.
  const float shifted = code + 12582912.0F;
  return static_cast<std::int8_t>(static_cast<int>(std::bit_cast<std::uint32_t>(shifted)) - 0x4B400000);
}

}  // namespace checkvalve::numerics
