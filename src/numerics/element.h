// element.h: read and write one element of a host tensor as a floating-point value.
#pragma once

#include <cstdint>
#include <cstring>

#include "checkvalve/error.h"
#include "checkvalve/tensor.h"
#include "numerics/float8.h"
#include "numerics/half.h"
#include "numerics/scale_rule.h"

namespace checkvalve::numerics {

// Offset in elements of (i0, i1, i2, i3); indices past the rank must be 0.
[[nodiscard]] inline std::int64_t offset_of(const ConstTensorView& t, std::int64_t i0, std::int64_t i1 = 0,
                                            std::int64_t i2 = 0, std::int64_t i3 = 0) {
  return i0 * t.strides[0] + i1 * t.strides[1] + i2 * t.strides[2] + i3 * t.strides[3];
}

template <typename T>
[[nodiscard]] T load_bits(const void* data, std::int64_t offset) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + offset * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <typename T>
void store_bits(void* data, std::int64_t offset, T value) {
  std::memcpy(static_cast<char*>(data) + offset * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
}

// The value of an element, exact for every dtype.
[[nodiscard]] inline double load_element(const ConstTensorView& t, std::int64_t offset) {
  switch (t.dtype) {
    case DType::kFloat64:
      return load_bits<double>(t.data, offset);
    case DType::kFloat32:
      return static_cast<double>(load_bits<float>(t.data, offset));
    case DType::kFloat16:
      return static_cast<double>(fp16_to_float(load_bits<std::uint16_t>(t.data, offset)));
    case DType::kBFloat16:
      return static_cast<double>(bf16_to_float(load_bits<std::uint16_t>(t.data, offset)));
    case DType::kInt8:
      return load_bits<std::int8_t>(t.data, offset);
    case DType::kUInt8:
      return load_bits<std::uint8_t>(t.data, offset);
    case DType::kInt32:
      return load_bits<std::int32_t>(t.data, offset);
    case DType::kE4M3:
      return static_cast<double>(decode_e4m3(load_bits<std::uint8_t>(t.data, offset)));
    case DType::kE5M2:
      return static_cast<double>(decode_float8<E5M2>(load_bits<std::uint8_t>(t.data, offset)));
    case DType::kE8M0:
      return static_cast<double>(decode_e8m0(load_bits<std::uint8_t>(t.data, offset)));
  }
  throw InvalidArgument("unknown dtype");
}

// Rounds to nearest even. Floating-point dtypes of 16 bits and more only.
inline void store_element(const TensorView& t, std::int64_t offset, double value) {
  const auto narrow = static_cast<float>(value);
  switch (t.dtype) {
    case DType::kFloat64:
      return store_bits(t.data, offset, value);
    case DType::kFloat32:
      return store_bits(t.data, offset, narrow);
    case DType::kFloat16:
      return store_bits(t.data, offset, float_to_fp16(narrow));
    case DType::kBFloat16:
      return store_bits(t.data, offset, float_to_bf16(narrow));
    default:
      throw InvalidArgument("outputs are float64, float32, float16 or bfloat16, not " + std::string(name_of(t.dtype)));
  }
}

}  // namespace checkvalve::numerics
