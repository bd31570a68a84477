// float8.h: OCP E4M3 and E5M2 bytes to and from float32, host and device.
#pragma once

#include <bit>
#include <cstdint>

#include "numerics/host_device.h"

namespace checkvalve::numerics {

// Facts of an 8-bit float, from the OCP 8-bit Floating Point Specification (OFP8) 1.0. kEmax is the exponent of the
// largest finite value, whose significand is 1.75 in both formats; kMaxCode is its byte.
struct E4M3 {
  static constexpr int kMantissaBits = 3;
  static constexpr int kBias = 7;
  static constexpr int kEmax = 8;
  static constexpr std::uint32_t kMaxCode = 0x7E;
  static constexpr float kMax = 448.0F;
};
struct E5M2 {
  static constexpr int kMantissaBits = 2;
  static constexpr int kBias = 15;
  static constexpr int kEmax = 15;
  static constexpr std::uint32_t kMaxCode = 0x7B;
  static constexpr float kMax = 57344.0F;
};

inline constexpr std::uint8_t kFloat8NaN = 0x7F;

// Round to nearest even, saturating: every finite value and both infinities give a finite byte, NaN gives 0x7F.
template <typename F>
CHECKVALVE_HD constexpr std::uint8_t encode_float8(float x) {
  constexpr int kShift = 23 - F::kMantissaBits;
  constexpr std::uint32_t kMinNormal = static_cast<std::uint32_t>(128 - F::kBias) << 23;
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = (bits >> 24) & 0x80U;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) {
    return kFloat8NaN;
  }
  std::uint32_t code = 0;
  if (magnitude >= kMinNormal) {
    const std::uint32_t rebased = magnitude - (static_cast<std::uint32_t>(127 - F::kBias) << 23);
    code = (rebased + ((1U << (kShift - 1)) - 1U) + ((rebased >> kShift) & 1U)) >> kShift;
  } else {
    // Adding 2^23 quanta makes float32 itself round to a multiple of the subnormal quantum, to nearest even.
    constexpr std::uint32_t kMagic = static_cast<std::uint32_t>(127 + 1 - F::kBias - F::kMantissaBits + 23) << 23;
    code = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + std::bit_cast<float>(kMagic)) - kMagic;
  }
  if (code > F::kMaxCode) {
    code = F::kMaxCode;
  }
  return static_cast<std::uint8_t>(sign | code);
}

template <typename F>
CHECKVALVE_HD constexpr float decode_float8(std::uint8_t byte) {
  constexpr std::uint32_t kMantissaMask = (1U << F::kMantissaBits) - 1U;
  constexpr std::uint32_t kExponentMask = 0x7FU >> F::kMantissaBits;
  const std::uint32_t sign = static_cast<std::uint32_t>(byte & 0x80U) << 24;
  const std::uint32_t magnitude = byte & 0x7FU;
  if (magnitude > F::kMaxCode) {
    const bool infinity = (magnitude & kMantissaMask) == 0U && (magnitude >> F::kMantissaBits) == kExponentMask;
    return std::bit_cast<float>(sign | (infinity ? 0x7F800000U : 0x7FC00000U));
  }
  if ((magnitude >> F::kMantissaBits) == 0U) {
    constexpr std::uint32_t kQuantum = static_cast<std::uint32_t>(127 + 1 - F::kBias - F::kMantissaBits) << 23;
    const float value = static_cast<float>(magnitude) * std::bit_cast<float>(kQuantum);
    return sign != 0U ? -value : value;
  }
  return std::bit_cast<float>(
      sign | ((magnitude << (23 - F::kMantissaBits)) + (static_cast<std::uint32_t>(127 - F::kBias) << 23)));
}

CHECKVALVE_HD constexpr std::uint8_t encode_e4m3(float x) { return encode_float8<E4M3>(x); }
CHECKVALVE_HD constexpr float decode_e4m3(std::uint8_t byte) { return decode_float8<E4M3>(byte); }
CHECKVALVE_HD constexpr float round_to_e4m3(float x) { return decode_e4m3(encode_e4m3(x)); }

}  // namespace checkvalve::numerics
