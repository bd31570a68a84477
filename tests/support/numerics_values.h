// numerics_values.h: what 8- and 16-bit codes and rounding mean, written from the formats' definitions in float64.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace checkvalve::test {

// Value of a code with 1 sign bit, `exponent_bits` and `mantissa_bits`, IEEE-like: subnormals, and (if `infinities`)
// the top exponent for inf and NaN. Without infinities only the all-ones magnitude is NaN, as in E4M3.
inline double value_of_code(std::uint32_t code, int exponent_bits, int mantissa_bits, bool infinities) {
  const std::uint32_t mantissa = code & ((1U << mantissa_bits) - 1U);
  const auto exponent = static_cast<int>((code >> mantissa_bits) & ((1U << exponent_bits) - 1U));
  const bool negative = ((code >> (exponent_bits + mantissa_bits)) & 1U) != 0U;
  const int top = (1 << exponent_bits) - 1;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const std::uint32_t all_ones = (1U << mantissa_bits) - 1U;
  double magnitude = 0.0;
  if (exponent == top && (infinities || mantissa == all_ones)) {
    magnitude = infinities && mantissa == 0U ? std::numeric_limits<double>::infinity()
                                             : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<double>(mantissa), 1 - bias - mantissa_bits);
  } else {
    magnitude = std::ldexp(static_cast<double>(mantissa + (1U << mantissa_bits)), exponent - bias - mantissa_bits);
  }
  return negative ? -magnitude : magnitude;
}

inline double e4m3_value(std::uint32_t code) { return value_of_code(code, 4, 3, false); }
inline double e5m2_value(std::uint32_t code) { return value_of_code(code, 5, 2, true); }
inline double fp16_value(std::uint32_t code) { return value_of_code(code, 5, 10, true); }
inline double bf16_value(std::uint32_t code) { return value_of_code(code, 8, 7, true); }

// Index of the entry of an increasing table nearest to x >= 0; a tie goes to the even index. The table's end saturates.
inline std::uint32_t nearest_even(std::span<const double> table, double x) {
  x = std::fmin(x, table.back());  // the differences below would be lost in the rounding of a huge x
  std::uint32_t best = 0;
  for (std::uint32_t c = 1; c < table.size(); ++c) {
    const double gain = std::fabs(table[best] - x) - std::fabs(table[c] - x);
    if (gain > 0.0 || (gain == 0.0 && c % 2 == 0)) {
      best = c;
    }
  }
  return best;
}

// The finite magnitudes of E4M3, by code 0x00 .. 0x7E.
inline const std::vector<double>& e4m3_magnitudes() {
  static const std::vector<double> kTable = [] {
    std::vector<double> table;
    for (std::uint32_t code = 0; code <= 0x7E; ++code) {
      table.push_back(e4m3_value(code));
    }
    return table;
  }();
  return kTable;
}

// The E4M3 byte nearest to a finite x, saturating, by search.
inline std::uint8_t nearest_e4m3(double x) {
  return static_cast<std::uint8_t>(nearest_even(e4m3_magnitudes(), std::fabs(x)) | (std::signbit(x) ? 0x80U : 0U));
}

// Smallest e in [low, high] with amax <= max * 2^e, by search; `high` if there is none.
inline int smallest_exponent(double amax, double max, int low, int high) {
  int e = low;
  while (e < high && amax > std::ldexp(max, e)) {
    ++e;
  }
  return e;
}

}  // namespace checkvalve::test
