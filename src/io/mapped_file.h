// mapped_file.h: a whole file mapped read-only into memory.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace checkvalve::io {

// Owns the mapping; bytes() keeps its address when the object is moved. The file must not be shortened by another
// process while it is mapped: the system then ends the reading process.
class MappedFile {
 public:
  // Throws IoError if `path` does not exist, cannot be read, is empty or is not a regular file.
  [[nodiscard]] static MappedFile open(const std::filesystem::path& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace checkvalve::io
