// npy_header.h: the header of a .npy file as checked facts, and its text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkvalve/tensor.h"

namespace checkvalve::io {

struct NpyHeader {
  DType dtype = DType::kFloat32;
  std::vector<std::int64_t> shape;  // rank 1..4
  std::size_t data_offset = 0;      // of the data in the file
};

// Parses and checks the magic string, version and header. Throws IoError.
[[nodiscard]] NpyHeader read_npy_header(std::span<const std::byte> file, std::string_view origin);

// Everything before the data, for a dense tensor of `view`'s dtype and shape; its size is a multiple of 64. Throws
// InvalidArgument if numpy has no such dtype.
[[nodiscard]] std::string npy_header(const ConstTensorView& view);

}  // namespace checkvalve::io
