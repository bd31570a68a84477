// tensor.cpp: dtype facts and view construction.
#include "checkvalve/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <span>

#include "checkvalve/error.h"

namespace checkvalve {
namespace {

template <typename Void>
BasicTensorView<Void> dense(Void* data, DType dtype, int rank, std::array<std::int64_t, kMaxRank> shape) {
  if (rank < 1 || rank > kMaxRank) {
    throw InvalidArgument(fmt::format("rank {} is not accepted (accepted: 1 to {})", rank, kMaxRank));
  }
  BasicTensorView<Void> view{.data = data, .dtype = dtype, .rank = rank};
  std::int64_t stride = 1;
  for (int i = rank - 1; i >= 0; --i) {
    const auto at = static_cast<std::size_t>(i);
    view.shape[at] = shape[at];
    view.strides[at] = stride;
    stride *= shape[at];
  }
  return view;
}

template <typename Void>
BasicTensorView<Void> in_layout(Void* data, DType dtype, Layout layout, std::int64_t b, std::int64_t s, std::int64_t h,
                                std::int64_t d) {
  BasicTensorView<Void> view{.data = data, .dtype = dtype, .rank = 4, .shape = {b, s, h, d}};
  switch (layout) {
    case Layout::kBshd:
      view.strides = {s * h * d, h * d, d, 1};
      break;
    case Layout::kSbhd:
      view.strides = {h * d, b * h * d, d, 1};
      break;
    case Layout::kBhsd:
      view.strides = {h * s * d, d, s * d, 1};
      break;
  }
  return view;
}

}  // namespace

std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return 8;
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
    case DType::kInt8:
    case DType::kUInt8:
    case DType::kE4M3:
    case DType::kE5M2:
    case DType::kE8M0:
      return 1;
  }
  throw InvalidArgument("unknown dtype");
}

std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return "float64";
    case DType::kFloat32:
      return "float32";
    case DType::kFloat16:
      return "float16";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kInt8:
      return "int8";
    case DType::kUInt8:
      return "uint8";
    case DType::kInt32:
      return "int32";
    case DType::kE4M3:
      return "e4m3";
    case DType::kE5M2:
      return "e5m2";
    case DType::kE8M0:
      return "e8m0";
  }
  throw InvalidArgument("unknown dtype");
}

Layout layout_from_name(std::string_view name) {
  if (name == "bshd") return Layout::kBshd;
  if (name == "sbhd") return Layout::kSbhd;
  if (name == "bhsd") return Layout::kBhsd;
  throw InvalidArgument(fmt::format("layout '{}' is not known (accepted: bshd, sbhd, bhsd)", name));
}

TensorView make_view(void* data, DType dtype, Layout layout, std::int64_t b, std::int64_t s, std::int64_t h,
                     std::int64_t d) {
  return in_layout<void>(data, dtype, layout, b, s, h, d);
}
ConstTensorView make_view(const void* data, DType dtype, Layout layout, std::int64_t b, std::int64_t s, std::int64_t h,
                          std::int64_t d) {
  return in_layout<const void>(data, dtype, layout, b, s, h, d);
}

TensorView make_dense(void* data, DType dtype, int rank, std::array<std::int64_t, kMaxRank> shape) {
  return dense<void>(data, dtype, rank, shape);
}
ConstTensorView make_dense(const void* data, DType dtype, int rank, std::array<std::int64_t, kMaxRank> shape) {
  return dense<const void>(data, dtype, rank, shape);
}

std::string to_string(const ConstTensorView& view) {
  const std::span<const std::int64_t> shape(view.shape.data(), static_cast<std::size_t>(view.rank));
  return fmt::format("{} ({})", name_of(view.dtype), fmt::join(shape, ", "));
}

}  // namespace checkvalve
