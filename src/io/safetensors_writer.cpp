// safetensors_writer.cpp: header, padding and data of a .safetensors file.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "checkvalve/error.h"
#include "io/output_file.h"
#include "io/safetensors.h"
#include "io/safetensors_header.h"
#include "io/text.h"

namespace checkvalve::io {
namespace {

struct Piece {
  const NamedTensor* tensor = nullptr;
  std::vector<std::byte> storage;  // of a gathered view
  std::span<const std::byte> bytes;
};

std::string header_text(std::span<const Piece> pieces, const Metadata& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[std::string(kMetadataKey)] = metadata;
  std::size_t offset = 0;
  for (const auto& [tensor, storage, bytes] : pieces) {
    const auto& [name, view] = *tensor;
    if (name == kMetadataKey) throw InvalidArgument(fmt::format("the name {} is reserved; rename the tensor", name));
    if (header.contains(name)) {
      throw InvalidArgument(fmt::format("two tensors are named {}; names must differ", quote(name)));
    }
    const std::vector<std::int64_t> shape(view.shape.begin(), view.shape.begin() + view.rank);
    header[name] = {
        {"dtype", safetensors_dtype(view.dtype)}, {"shape", shape}, {"data_offsets", {offset, offset + bytes.size()}}};
    offset += bytes.size();
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::type_error&) {
    throw InvalidArgument("a tensor name or a metadata string is not UTF-8; safetensors accepts only UTF-8");
  }
  // The data then starts at a multiple of 8, the widest element.
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kMaxSafetensorsHeader) {
    throw InvalidArgument(fmt::format("names and metadata take {} bytes (accepted: up to {}); write several files",
                                      text.size(), kMaxSafetensorsHeader));
  }
  return text;
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                       const Metadata& metadata) {
  std::vector<Piece> pieces(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    pieces[i].tensor = &tensors[i];
    pieces[i].bytes =
        dense_bytes(tensors[i].tensor, fmt::format("tensor {}", quote(tensors[i].name)), pieces[i].storage);
  }
  std::ranges::stable_sort(pieces, std::ranges::greater(),
                           [](const Piece& piece) { return size_of(piece.tensor->tensor.dtype); });

  const std::string header = header_text(pieces, metadata);
  const std::uint64_t size = header.size();
  OutputFile file(path);
  file.write(std::as_bytes(std::span(&size, 1)));
  file.write(header);
  for (const Piece& piece : pieces) file.write(piece.bytes);
  file.commit();
}

}  // namespace checkvalve::io
