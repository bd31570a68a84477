// numerics_quantized.h: quantised operands of a test call, and comparison byte by byte.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "checkvalve/attention.h"
#include "numerics/element.h"
#include "numerics/quantize.h"
#include "support/tensors.h"

namespace checkvalve::test {

struct NamedTensor {
  std::string_view name;
  TensorView view;
};

inline std::array<NamedTensor, 10> tensors_of(const QuantizedQKV& t) {
  return {{{"q", t.q},
           {"q_scale", t.q_scale},
           {"k", t.k},
           {"k_scale", t.k_scale},
           {"k_shared", t.k_shared},
           {"k_shared_scale", t.k_shared_scale},
           {"v", t.v},
           {"v_scale", t.v_scale},
           {"v_shared", t.v_shared},
           {"v_shared_scale", t.v_shared_scale}}};
}

// The quantised operands; memory that the quantiser leaves alone keeps the bytes 0xAB.
inline HostQuantizedQKV quantize_inputs(const AttentionProblem& problem, const Recipe& recipe, const ConstTensorView& q,
                                        const ConstTensorView& k, const ConstTensorView& v) {
  HostQuantizedQKV quantized = allocate_quantized(problem, recipe);
  std::ranges::fill(quantized.storage, std::byte{0xAB});
  numerics::quantize_host(problem, recipe, q, k, v, quantized.tensors);
  return quantized;
}

inline HostQuantizedQKV quantize_inputs(const Inputs& in, const Recipe& recipe) {
  return quantize_inputs(in.problem, recipe, in.q.view, in.k.view, in.v.view);
}

inline std::uint8_t byte_of(const TensorView& t, std::int64_t i0, std::int64_t i1 = 0, std::int64_t i2 = 0,
                            std::int64_t i3 = 0) {
  return numerics::load_bits<std::uint8_t>(t.data, numerics::offset_of(t, i0, i1, i2, i3));
}

// Value of an element; for an E8M0 scale its power of two.
inline double value_of(const TensorView& t, std::int64_t i0, std::int64_t i1 = 0, std::int64_t i2 = 0,
                       std::int64_t i3 = 0) {
  return numerics::load_element(t, numerics::offset_of(t, i0, i1, i2, i3));
}

// "" if all tensors have the same shapes and bytes, else where the first difference is.
inline std::string first_difference(const QuantizedQKV& a, const QuantizedQKV& b) {
  const auto of_a = tensors_of(a);
  const auto of_b = tensors_of(b);
  for (std::size_t t = 0; t < of_a.size(); ++t) {
    const TensorView& x = of_a[t].view;
    const TensorView& y = of_b[t].view;
    if (x.rank != y.rank || x.shape != y.shape || x.dtype != y.dtype) {
      return fmt::format("{}: {} against {}", of_a[t].name, to_string(x), to_string(y));
    }
    if (x.rank == 0) {
      continue;
    }
    const auto bytes = static_cast<std::size_t>(x.numel()) * size_of(x.dtype);
    const auto* px = static_cast<const std::uint8_t*>(x.data);
    const auto* py = static_cast<const std::uint8_t*>(y.data);
    const auto at = std::mismatch(px, px + bytes, py);
    if (at.first != px + bytes) {
      return fmt::format("{} {}: byte {} is {:#04x} against {:#04x}", of_a[t].name, to_string(x), at.first - px,
                         *at.first, *at.second);
    }
  }
  return "";
}

}  // namespace checkvalve::test
