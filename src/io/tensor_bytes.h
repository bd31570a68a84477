// tensor_bytes.h: between tensor views and the plain row-major bytes of a file.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "checkvalve/tensor.h"

namespace checkvalve::io {

static_assert(std::endian::native == std::endian::little, "both file formats are read and written without byte swaps");

// Storage for tensors that could not be viewed in place; each piece is aligned for every dtype.
using OwnedCopies = std::vector<std::unique_ptr<std::byte[]>>;

// Bytes of a dense tensor. Absent if they, or the strides of a tensor without elements, do not fit in 63 bits.
// Dimensions must not be negative.
[[nodiscard]] std::optional<std::int64_t> dense_size(DType dtype, std::span<const std::int64_t> shape);

// A dense view of `bytes`, whose size must be dense_size(dtype, shape). If they do not lie at a multiple of the element
// size (both formats permit it), the view is of a copy that is added to `copies`.
[[nodiscard]] ConstTensorView view_bytes(std::span<const std::byte> bytes, DType dtype,
                                         std::span<const std::int64_t> shape, OwnedCopies& copies);

// The elements of `view` in row-major order: `view`'s own memory if it is dense, else gathered into `storage`. Throws
// InvalidArgument, calling the tensor `what`, if the view is absent, malformed or not on the host.
[[nodiscard]] std::span<const std::byte> dense_bytes(const ConstTensorView& view, std::string_view what,
                                                     std::vector<std::byte>& storage);

}  // namespace checkvalve::io
