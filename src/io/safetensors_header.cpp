// safetensors_header.cpp: strict parser of the JSON header.
#include "io/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>
#include <utility>

#include "io/tensor_bytes.h"
#include "io/text.h"

namespace checkvalve::io {
namespace {

constexpr std::array<std::pair<std::string_view, DType>, 10> kDTypes{{
    {"F64", DType::kFloat64},
    {"F32", DType::kFloat32},
    {"F16", DType::kFloat16},
    {"BF16", DType::kBFloat16},
    {"I8", DType::kInt8},
    {"I32", DType::kInt32},
    {"U8", DType::kUInt8},
    {"F8_E4M3", DType::kE4M3},
    {"F8_E5M2", DType::kE5M2},
    {"F8_E8M0", DType::kE8M0},
}};

// Receives the parser's events. A document tree would not do: it keeps the last of two equal names and hides the first.
// Each level accepts only what the format has there, which also bounds the nesting.
class HeaderEvents final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderEvents(std::string_view origin) : origin_(origin) {}

  SafetensorsHeader take() { return std::move(header_); }

  bool null() override { wrong_value("null"); }
  bool boolean(bool value) override { wrong_value(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { wrong_value(fmt::to_string(value)); }
  bool number_float(number_float_t /*value*/, const string_t& text) override { wrong_value(text); }
  bool binary(binary_t& /*value*/) override { wrong_value("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (level_ == Level::kShape) {
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        wrong_value(fmt::to_string(value));
      }
      if (entry_.shape.size() == static_cast<std::size_t>(kMaxRank)) {
        bad_entry(fmt::format("has a rank above {} (accepted: 1 to {}); reshape it", kMaxRank, kMaxRank));
      }
      entry_.shape.push_back(static_cast<std::int64_t>(value));
    } else if (level_ == Level::kOffsets) {
      if (offsets_ == 2) bad_entry("has more than two data_offsets (accepted: [begin, end])");
      (offsets_ == 0 ? entry_.begin : entry_.end) = value;
      ++offsets_;
    } else {
      wrong_value(fmt::to_string(value));
    }
    return true;
  }

  bool string(string_t& value) override {
    if (level_ == Level::kMetadata) {
      header_.metadata[key_] = std::move(value);
    } else if (level_ == Level::kTensor && key_ == "dtype") {
      const auto* const known =
          std::ranges::find(kDTypes, std::string_view(value), &decltype(kDTypes)::value_type::first);
      if (known == kDTypes.end()) {
        bad_entry(fmt::format(
            "has the dtype {} (accepted: F64, F32, F16, BF16, I8, I32, U8, F8_E4M3, F8_E5M2, F8_E8M0); convert it",
            quote(value)));
      }
      entry_.dtype = known->second;
    } else {
      wrong_value("the string " + quote(value));
    }
    return true;
  }

  bool start_object(std::size_t /*elements*/) override {
    if (level_ == Level::kStart) {
      level_ = Level::kHeader;
    } else if (level_ == Level::kHeader) {
      level_ = key_ == kMetadataKey ? Level::kMetadata : Level::kTensor;
      entry_ = {};
      entry_.name = key_;
      offsets_ = 0;
      seen_.clear();
    } else {
      wrong_value("an object");
    }
    return true;
  }

  bool key(string_t& value) override {
    if (level_ == Level::kHeader) {
      if (!names_.insert(value).second) {
        fail(origin_, fmt::format("the name {} appears twice in the header; tensor names must differ", quote(value)));
      }
    } else {
      if (level_ == Level::kTensor && value != "dtype" && value != "shape" && value != "data_offsets") {
        bad_entry(fmt::format("has the unknown key {} (accepted: dtype, shape, data_offsets)", quote(value)));
      }
      if (!seen_.insert(value).second) bad_entry(fmt::format("has the key {} twice", quote(value)));
    }
    key_ = std::move(value);
    return true;
  }

  bool end_object() override {
    if (level_ == Level::kTensor) {
      for (const char* required : {"dtype", "shape", "data_offsets"}) {
        if (!seen_.contains(required)) bad_entry(fmt::format("lacks the key \"{}\"", required));
      }
      header_.entries.push_back(std::move(entry_));
    }
    level_ = level_ == Level::kHeader ? Level::kEnd : Level::kHeader;
    return true;
  }

  bool start_array(std::size_t /*elements*/) override {
    if (level_ == Level::kTensor && key_ == "shape") {
      level_ = Level::kShape;
    } else if (level_ == Level::kTensor && key_ == "data_offsets") {
      level_ = Level::kOffsets;
    } else {
      wrong_value("an array");
    }
    return true;
  }

  bool end_array() override {
    if (level_ == Level::kShape && entry_.shape.empty()) {
      bad_entry(fmt::format("has rank 0, a single number (accepted: 1 to {}); reshape it to [1]", kMaxRank));
    }
    if (level_ == Level::kOffsets && offsets_ != 2) {
      bad_entry(fmt::format("has {} data_offsets (accepted: [begin, end])", offsets_));
    }
    level_ = Level::kTensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::json::exception& /*error*/) override {
    fail(origin_, fmt::format("the header is not valid JSON (at its byte {}); the file is damaged", position));
  }

 private:
  enum class Level { kStart, kHeader, kMetadata, kTensor, kShape, kOffsets, kEnd };

  [[noreturn]] void bad_entry(std::string_view what) const {
    if (level_ == Level::kMetadata) fail(origin_, fmt::format("{} {}", kMetadataKey, what));
    fail(origin_, fmt::format("tensor {} {}", quote(entry_.name), what));
  }

  [[noreturn]] void wrong_value(std::string_view value) const {
    switch (level_) {
      case Level::kHeader:
        fail(origin_, fmt::format("header entry {} is {} (accepted: an object)", quote(key_), value));
      case Level::kMetadata:
        bad_entry(fmt::format("has {} under {} (accepted: a string)", value, quote(key_)));
      case Level::kTensor:
        bad_entry(fmt::format("has {} as its {} (accepted: {})", value, key_,
                              key_ == "dtype" ? "a string" : "an array of integers"));
      case Level::kShape:
        bad_entry(fmt::format("has {} in its shape (accepted: integers from 0 to 2^63 - 1)", value));
      case Level::kOffsets:
        bad_entry(fmt::format("has {} in its data_offsets (accepted: two integers from 0 on)", value));
      case Level::kStart:
      case Level::kEnd:
        break;
    }
    fail(origin_, fmt::format("the header is {} (accepted: a JSON object)", value));
  }

  std::string_view origin_;
  SafetensorsHeader header_;
  Level level_ = Level::kStart;
  std::string key_;  // the last one read
  SafetensorsEntry entry_;
  int offsets_ = 0;                        // read so far
  std::unordered_set<std::string> names_;  // of the header's entries
  std::unordered_set<std::string> seen_;   // keys of the entry being read
};

// Orders the entries by their data and checks each against its shape, its neighbours and the end of the file.
void check_offsets(std::vector<SafetensorsEntry>& entries, std::uint64_t data_size, std::string_view origin) {
  std::ranges::stable_sort(entries, {}, [](const auto& entry) { return std::pair(entry.begin, entry.end); });
  std::uint64_t covered = 0;
  for (const SafetensorsEntry& entry : entries) {
    const auto bad = [&](std::string_view what) {
      fail(origin,
           fmt::format("tensor {} with data_offsets [{}, {}] {}", quote(entry.name), entry.begin, entry.end, what));
    };
    if (entry.begin > entry.end) bad("ends before it begins");
    const auto size = dense_size(entry.dtype, entry.shape);
    if (!size) bad("has a shape whose size overflows 63 bits");
    if (entry.end - entry.begin != static_cast<std::uint64_t>(*size)) {
      bad(fmt::format("has {} bytes, but its shape and dtype need {}", entry.end - entry.begin, *size));
    }
    if (entry.begin < covered) bad(fmt::format("overlaps the tensor that ends at {}", covered));
    if (entry.begin > covered) bad(fmt::format("leaves a hole after {} (the format permits none)", covered));
    if (entry.end > data_size) {
      bad(fmt::format("lies outside the file, which has {} bytes of data; the file is truncated", data_size));
    }
    covered = entry.end;
  }
  if (covered != data_size) {
    fail(origin, fmt::format("{} bytes follow the last tensor (the format permits none)", data_size - covered));
  }
}

}  // namespace

std::string_view safetensors_dtype(DType dtype) {
  return std::ranges::find(kDTypes, dtype, &decltype(kDTypes)::value_type::second)->first;
}

SafetensorsHeader read_safetensors_header(std::span<const std::byte> file, std::string_view origin) {
  std::uint64_t size = 0;
  if (file.size() < sizeof size) {
    fail(origin, fmt::format("has {} bytes, a safetensors file has at least 10; the file is truncated", file.size()));
  }
  std::memcpy(&size, file.data(), sizeof size);
  if (size > kMaxSafetensorsHeader) {
    fail(origin, fmt::format("declares a header of {} bytes (accepted: up to {}); this is not a safetensors file", size,
                             kMaxSafetensorsHeader));
  }
  if (size > file.size() - sizeof size) {
    fail(origin, fmt::format("declares a header of {} bytes, but {} follow; the file is truncated", size,
                             file.size() - sizeof size));
  }
  const std::size_t data_offset = sizeof size + static_cast<std::size_t>(size);
  const auto* const text = reinterpret_cast<const char*>(file.data() + sizeof size);
  if (size == 0 || *text != '{') fail(origin, "the header is not a JSON object: it must begin with '{'");

  HeaderEvents events(origin);
  nlohmann::json::sax_parse(text, text + size, &events);
  SafetensorsHeader header = events.take();
  header.data_offset = data_offset;
  check_offsets(header.entries, file.size() - data_offset, origin);
  return header;
}

}  // namespace checkvalve::io
