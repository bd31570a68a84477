// half.h: bfloat16 and float16 bits to and from float32, round to nearest even, host and device.
#pragma once

#include <bit>
#include <cstdint>

#include "numerics/host_device.h"

namespace checkvalve::numerics {

CHECKVALVE_HD constexpr float bf16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// NaN stays NaN (quiet, sign kept); values beyond the largest finite bfloat16 round to infinity.
CHECKVALVE_HD constexpr std::uint16_t float_to_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) {
    return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  }
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

CHECKVALVE_HD constexpr float fp16_to_float(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000U) << 16;
  const std::uint32_t magnitude = half & 0x7FFFU;
  if (magnitude >= 0x7C00U) {  // inf, NaN
    return std::bit_cast<float>(sign | 0x7F800000U | ((magnitude & 0x3FFU) << 13));
  }
  if (magnitude < 0x400U) {  // subnormal: a multiple of 2^-24
    const float value = static_cast<float>(magnitude) * 0x1p-24F;
    return sign != 0U ? -value : value;
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + (112U << 23)));
}

// NaN stays NaN; values beyond 65519.99 round to infinity.
CHECKVALVE_HD constexpr std::uint16_t float_to_fp16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) {
    return static_cast<std::uint16_t>(sign | 0x7E00U);
  }
  if (magnitude >= 0x477FF000U) {  // 65520 and above
    return static_cast<std::uint16_t>(sign | 0x7C00U);
  }
  if (magnitude < 0x38800000U) {  // below 2^-14: adding 0.5 rounds to a multiple of 2^-24
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3F000000U));
  }
  const std::uint32_t rebased = magnitude - (112U << 23);
  return static_cast<std::uint16_t>(sign | ((rebased + 0xFFFU + ((rebased >> 13) & 1U)) >> 13));
}

CHECKVALVE_HD constexpr float round_to_bf16(float x) { return bf16_to_float(float_to_bf16(x)); }
CHECKVALVE_HD constexpr float round_to_fp16(float x) { return fp16_to_float(float_to_fp16(x)); }

}  // namespace checkvalve::numerics
