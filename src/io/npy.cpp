// npy.cpp: a .npy file as a tensor view, and the writer.
#include "io/npy.h"

#include <fmt/format.h>

#include <utility>

#include "io/npy_header.h"
#include "io/output_file.h"
#include "io/text.h"

namespace checkvalve::io {

NpyFile NpyFile::open(const std::filesystem::path& path) {
  MappedFile mapped = MappedFile::open(path);
  NpyFile file = parse(mapped.bytes(), path.string());
  file.file_ = std::move(mapped);
  return file;
}

NpyFile NpyFile::parse(std::span<const std::byte> bytes, std::string_view origin) {
  const NpyHeader header = read_npy_header(bytes, origin);
  const auto size = dense_size(header.dtype, header.shape);
  if (!size) fail(origin, "the shape's size overflows 63 bits; the file is damaged");
  const auto data = bytes.subspan(header.data_offset);
  const auto needed = static_cast<std::size_t>(*size);
  if (data.size() < needed) {
    fail(origin, fmt::format("has {} bytes of data, but its shape and dtype need {}; the file is truncated",
                             data.size(), needed));
  }
  if (data.size() > needed) {
    fail(origin, fmt::format("{} bytes follow the array; save one array a file", data.size() - needed));
  }
  NpyFile file;
  file.tensor_ = view_bytes(data, header.dtype, header.shape, file.copies_);
  return file;
}

void write_npy(const std::filesystem::path& path, const ConstTensorView& tensor) {
  std::vector<std::byte> storage;
  const std::span<const std::byte> bytes = dense_bytes(tensor, "the array", storage);
  const std::string header = npy_header(tensor);
  OutputFile file(path);
  file.write(header);
  file.write(bytes);
  file.commit();
}

}  // namespace checkvalve::io
