// safetensors.h: reading and writing of .safetensors files.
//
// A file is: header size (uint64, little-endian) | header (JSON object) | data. The header maps each tensor's name to
// {"dtype", "shape", "data_offsets": [begin, end]}, offsets counted from the start of the data, and "__metadata__",
// if present, to an object of strings. Accepted dtypes: F64, F32, F16, BF16, I8, I32, U8, F8_E4M3, F8_E5M2, F8_E8M0.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkvalve/tensor.h"
#include "io/mapped_file.h"
#include "io/tensor_bytes.h"

namespace checkvalve::io {

struct NamedTensor {
  std::string name;
  ConstTensorView tensor;
};

using Metadata = std::map<std::string, std::string>;

// Views stay valid as long as the object lives, also when it is moved.
class SafetensorsFile {
 public:
  // Maps the file into memory; tensors are read in place. Throws IoError on any violation of the format, on a dtype not
  // listed above and on a rank outside 1..4.
  [[nodiscard]] static SafetensorsFile open(const std::filesystem::path& path);

  // The same for bytes in memory, which must outlive the object. `origin` stands for the path in errors.
  [[nodiscard]] static SafetensorsFile parse(std::span<const std::byte> bytes, std::string_view origin = "(memory)");

  // In the order of their data. Dense, aligned to the element size.
  [[nodiscard]] const std::vector<NamedTensor>& tensors() const { return tensors_; }

  // Throws IoError that lists the names there are.
  [[nodiscard]] ConstTensorView find(std::string_view name) const;

  [[nodiscard]] const Metadata& metadata() const { return metadata_; }

 private:
  std::string origin_;
  MappedFile file_;
  OwnedCopies copies_;
  std::vector<NamedTensor> tensors_;
  Metadata metadata_;
};

// Writes the file complete or not at all (see OutputFile). Strided views are gathered. Data lies widest elements first,
// so that every tensor is aligned; tensors of equal width keep their order. Throws InvalidArgument on a name that is
// repeated, reserved or not UTF-8, or on a view that is absent or not on the host; IoError if the file cannot be
// written.
void write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                       const Metadata& metadata = {});

}  // namespace checkvalve::io
