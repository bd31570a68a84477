// npy.h: reading and writing of numpy's .npy files.
//
// A file is: "\x93NUMPY" | major, minor version | header size | header, a Python dict | data. Versions 1.0, 2.0 and 3.0
// are read, 1.0 is written. Accepted descr: <f8, <f4, <f2, <i4, |i1, |u1. numpy has no bfloat16 and no FP8 type.
#pragma once

#include <filesystem>
#include <span>
#include <string_view>

#include "checkvalve/tensor.h"
#include "io/mapped_file.h"
#include "io/tensor_bytes.h"

namespace checkvalve::io {

// The view stays valid as long as the object lives, also when it is moved.
class NpyFile {
 public:
  // Maps the file into memory; the array is read in place. Throws IoError on any violation of the format, on a dtype
  // not listed above, on Fortran order and on a rank outside 1..4.
  [[nodiscard]] static NpyFile open(const std::filesystem::path& path);

  // The same for bytes in memory, which must outlive the object. `origin` stands for the path in errors.
  [[nodiscard]] static NpyFile parse(std::span<const std::byte> bytes, std::string_view origin = "(memory)");

  // Dense, aligned to the element size.
  [[nodiscard]] ConstTensorView tensor() const { return tensor_; }

 private:
  MappedFile file_;
  OwnedCopies copies_;
  ConstTensorView tensor_;
};

// Writes the file complete or not at all (see OutputFile). A strided view is gathered. Throws InvalidArgument on a
// dtype that numpy lacks or on a view that is absent or not on the host; IoError if the file cannot be written.
void write_npy(const std::filesystem::path& path, const ConstTensorView& tensor);

}  // namespace checkvalve::io
