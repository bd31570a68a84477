// tensor_bytes.cpp: checked sizes, aligned views, gathering of strided views.
#include "io/tensor_bytes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "checkvalve/error.h"

namespace checkvalve::io {
namespace {

bool is_dense(const ConstTensorView& view) {
  std::int64_t stride = 1;
  for (int i = view.rank - 1; i >= 0; --i) {
    const auto at = static_cast<std::size_t>(i);
    if (view.shape[at] != 1 && view.strides[at] != stride) return false;
    stride *= view.shape[at];
  }
  return true;
}

void gather(const ConstTensorView& view, std::vector<std::byte>& storage) {
  // Leading dimensions of one element bring every rank to four.
  std::array<std::int64_t, kMaxRank> shape{1, 1, 1, 1};
  std::array<std::int64_t, kMaxRank> strides{};
  const auto rank = static_cast<std::size_t>(view.rank);
  std::copy_n(view.shape.begin(), rank, shape.end() - view.rank);
  std::copy_n(view.strides.begin(), rank, strides.end() - view.rank);

  const std::size_t element = size_of(view.dtype);
  const auto* source = static_cast<const std::byte*>(view.data);
  std::byte* out = storage.data();
  for (std::int64_t i = 0; i < shape[0]; ++i) {
    for (std::int64_t j = 0; j < shape[1]; ++j) {
      for (std::int64_t k = 0; k < shape[2]; ++k) {
        const std::int64_t row = i * strides[0] + j * strides[1] + k * strides[2];
        for (std::int64_t l = 0; l < shape[3]; ++l) {
          std::memcpy(out, source + (row + l * strides[3]) * static_cast<std::int64_t>(element), element);
          out += element;
        }
      }
    }
  }
}

}  // namespace

std::optional<std::int64_t> dense_size(DType dtype, std::span<const std::int64_t> shape) {
  auto size = static_cast<std::int64_t>(size_of(dtype));
  for (const std::int64_t dimension : shape) {
    // A zero must not hide an overflow of the other dimensions: make_dense multiplies those too.
    if (__builtin_mul_overflow(size, std::max<std::int64_t>(dimension, 1), &size)) return std::nullopt;
  }
  return std::ranges::find(shape, 0) == shape.end() ? size : 0;
}

ConstTensorView view_bytes(std::span<const std::byte> bytes, DType dtype, std::span<const std::int64_t> shape,
                           OwnedCopies& copies) {
  const std::byte* data = bytes.data();
  if (reinterpret_cast<std::uintptr_t>(data) % size_of(dtype) != 0) {
    copies.push_back(std::make_unique<std::byte[]>(bytes.size()));
    std::ranges::copy(bytes, copies.back().get());
    data = copies.back().get();
  }
  std::array<std::int64_t, kMaxRank> dimensions{};
  std::ranges::copy(shape, dimensions.begin());
  return make_dense(data, dtype, static_cast<int>(shape.size()), dimensions);
}

std::span<const std::byte> dense_bytes(const ConstTensorView& view, std::string_view what,
                                       std::vector<std::byte>& storage) {
  if (view.rank < 1 || view.rank > kMaxRank) {
    throw InvalidArgument(fmt::format("{} has rank {} (accepted: 1 to {}); reshape it", what, view.rank, kMaxRank));
  }
  const std::span shape(view.shape.data(), static_cast<std::size_t>(view.rank));
  if (std::ranges::any_of(shape, [](std::int64_t dimension) { return dimension < 0; })) {
    throw InvalidArgument(fmt::format("{} is {}; no dimension may be negative", what, to_string(view)));
  }
  const auto size = dense_size(view.dtype, shape);
  if (!size) {
    throw InvalidArgument(fmt::format("{} is {}, more than 2^63 bytes; write a part of it", what, to_string(view)));
  }
  if (view.device != Device::kHost) {
    throw InvalidArgument(fmt::format("{} is in device memory; copy it to the host before writing it", what));
  }
  if (*size == 0) return {};
  if (!view) {
    throw InvalidArgument(fmt::format("{} has no data (a null pointer); leave it out or give its elements", what));
  }
  const auto bytes = static_cast<std::size_t>(*size);
  if (is_dense(view)) return {static_cast<const std::byte*>(view.data), bytes};
  storage.resize(bytes);
  gather(view, storage);
  return storage;
}

}  // namespace checkvalve::io
