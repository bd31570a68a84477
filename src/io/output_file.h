// output_file.h: a file that appears under its name complete or not at all.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace checkvalve::io {

// Writes go to a temporary file in the target's folder; commit() makes it durable and renames it over the target. If
// commit() was not reached or failed, the temporary file is removed and the target is as it was. A target that is a
// symbolic link keeps the link and replaces what it points to; an existing target passes on its permissions.
class OutputFile {
 public:
  // Throws IoError if the folder does not exist or cannot be written, or if `path` exists and is not a regular file.
  explicit OutputFile(const std::filesystem::path& path);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  void commit();

 private:
  std::string origin_;  // the path as the caller wrote it, for errors
  std::filesystem::path target_;
  std::filesystem::path temporary_;
  int fd_ = -1;
};

}  // namespace checkvalve::io
