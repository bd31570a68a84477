// safetensors.cpp: a .safetensors file as named tensor views.
#include "io/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "io/safetensors_header.h"
#include "io/text.h"

namespace checkvalve::io {

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) {
  MappedFile mapped = MappedFile::open(path);
  SafetensorsFile file = parse(mapped.bytes(), path.string());
  file.file_ = std::move(mapped);
  return file;
}

SafetensorsFile SafetensorsFile::parse(std::span<const std::byte> bytes, std::string_view origin) {
  SafetensorsHeader header = read_safetensors_header(bytes, origin);
  SafetensorsFile file;
  file.origin_ = origin;
  file.metadata_ = std::move(header.metadata);
  const auto data = bytes.subspan(header.data_offset);
  for (SafetensorsEntry& entry : header.entries) {
    const auto piece = data.subspan(entry.begin, entry.end - entry.begin);
    file.tensors_.push_back({std::move(entry.name), view_bytes(piece, entry.dtype, entry.shape, file.copies_)});
  }
  return file;
}

ConstTensorView SafetensorsFile::find(std::string_view name) const {
  const auto found = std::ranges::find(tensors_, name, &NamedTensor::name);
  if (found != tensors_.end()) return found->tensor;
  if (tensors_.empty()) fail(origin_, fmt::format("has no tensor {}; it holds no tensor at all", quote(name)));

  constexpr std::size_t kListed = 20;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < std::min(tensors_.size(), kListed); ++i) names.push_back(quote(tensors_[i].name));
  const std::size_t left = tensors_.size() - names.size();
  fail(origin_, fmt::format("has no tensor {} (it has: {}{})", quote(name), fmt::join(names, ", "),
                            left > 0 ? fmt::format(" and {} more", left) : ""));
}

}  // namespace checkvalve::io
