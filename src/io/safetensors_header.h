// safetensors_header.h: the header of a .safetensors file as checked facts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkvalve/tensor.h"
#include "io/safetensors.h"

namespace checkvalve::io {

inline constexpr std::string_view kMetadataKey = "__metadata__";
inline constexpr std::size_t kMaxSafetensorsHeader = 100'000'000;  // the format's own limit, in bytes

// "F32" etc.
[[nodiscard]] std::string_view safetensors_dtype(DType dtype);

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<std::int64_t> shape;  // rank 1..4
  std::uint64_t begin = 0;          // offsets into the data
  std::uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the order of their data
  Metadata metadata;
  std::size_t data_offset = 0;  // of the data in the file
};

// Parses and checks the header of a whole file, including that the tensors cover the data exactly once. Throws IoError.
[[nodiscard]] SafetensorsHeader read_safetensors_header(std::span<const std::byte> file, std::string_view origin);

}  // namespace checkvalve::io
