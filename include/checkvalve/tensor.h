// tensor.h: a non-owning view of a strided tensor, its dtypes, and the named memory layouts of attention.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace checkvalve {

// kE4M3 and kE5M2 are the OCP FP8 types; kE8M0 is a scale byte, 2^(byte - 127), 0xFF = NaN.
enum class DType : std::uint8_t {
  kFloat64,
  kFloat32,
  kFloat16,
  kBFloat16,
  kInt8,
  kUInt8,
  kInt32,
  kE4M3,
  kE5M2,
  kE8M0,
};

// Bytes per element.
[[nodiscard]] std::size_t size_of(DType dtype);

// "float32", "bfloat16", "e4m3", ...
[[nodiscard]] std::string_view name_of(DType dtype);

enum class Device : std::uint8_t { kHost, kCuda };

inline constexpr int kMaxRank = 4;

// View of a tensor of rank 1 to 4. Strides count elements, may be zero (an expanded input) and are in the order of
// shape. Attention tensors are always (b, s, h, d), whatever their order in memory: the layout is in the strides.
// Packed sequences ("thd") are (1, total_tokens, h, d). A view with data == nullptr stands for an absent tensor.
template <typename Void>
struct BasicTensorView {
  Void* data = nullptr;
  DType dtype = DType::kFloat32;
  int rank = 0;
  std::array<std::int64_t, kMaxRank> shape{};
  std::array<std::int64_t, kMaxRank> strides{};
  Device device = Device::kHost;
  int device_id = 0;

  // A mutable view converts to a const one.
  operator BasicTensorView<const void>() const  // NOLINT(google-explicit-constructor)
      requires(!std::is_const_v<Void>) {
    return {.data = data,
            .dtype = dtype,
            .rank = rank,
            .shape = shape,
            .strides = strides,
            .device = device,
            .device_id = device_id};
  }

  [[nodiscard]] explicit operator bool() const { return data != nullptr; }

  [[nodiscard]] std::int64_t numel() const {
    std::int64_t n = 1;
    for (int i = 0; i < rank; ++i) {
      n *= shape[static_cast<std::size_t>(i)];
    }
    return n;
  }
};

using TensorView = BasicTensorView<void>;
using ConstTensorView = BasicTensorView<const void>;

// Memory orders of an attention tensor, slowest dimension first.
enum class Layout : std::uint8_t { kBshd, kSbhd, kBhsd };

// "bshd" -> Layout::kBshd. Throws InvalidArgument that lists the accepted names.
[[nodiscard]] Layout layout_from_name(std::string_view name);

// A (b, s, h, d) view of a dense buffer in `layout` order.
[[nodiscard]] TensorView make_view(void* data, DType dtype, Layout layout, std::int64_t b, std::int64_t s,
                                   std::int64_t h, std::int64_t d);
[[nodiscard]] ConstTensorView make_view(const void* data, DType dtype, Layout layout, std::int64_t b, std::int64_t s,
                                        std::int64_t h, std::int64_t d);

// A dense row-major view of rank 1 to 4; unused trailing dimensions of `shape` are ignored.
[[nodiscard]] TensorView make_dense(void* data, DType dtype, int rank, std::array<std::int64_t, kMaxRank> shape);
[[nodiscard]] ConstTensorView make_dense(const void* data, DType dtype, int rank,
                                         std::array<std::int64_t, kMaxRank> shape);

// "bfloat16 (2, 128, 16, 64)"
[[nodiscard]] std::string to_string(const ConstTensorView& view);

}  // namespace checkvalve
