// io_support.h: byte building, temporary folders and error checks for the file format tests.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkvalve/error.h"
#include "checkvalve/tensor.h"

namespace checkvalve::io::testing {

namespace fs = std::filesystem;

inline constexpr DType kAllDTypes[] = {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16,
                                       DType::kInt8,    DType::kUInt8,   DType::kInt32,   DType::kE4M3,
                                       DType::kE5M2,    DType::kE8M0};

// A string with its zero bytes: bytes("a\0b") has three.
template <std::size_t N>
std::string bytes(const char (&literal)[N]) {
  return std::string(literal, N - 1);
}

inline std::span<const std::byte> as_span(std::string_view text) { return std::as_bytes(std::span(text)); }

// The elements of a dense view.
inline std::string contents(const ConstTensorView& view) {
  const auto size = static_cast<std::size_t>(view.numel()) * size_of(view.dtype);
  return std::string(static_cast<const char*>(view.data), size);
}

inline std::vector<std::int64_t> shape_of(const ConstTensorView& view) {
  return {view.shape.begin(), view.shape.begin() + view.rank};
}

// A folder that is removed with everything in it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "checkvalve-io-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot create " + name);
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }

  [[nodiscard]] fs::path operator/(std::string_view name) const { return path_ / name; }
  [[nodiscard]] const fs::path& path() const { return path_; }

  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(path_)) names.push_back(entry.path().filename().string());
    return names;
  }

 private:
  fs::path path_;
};

inline void write_text(const fs::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary).write(text.data(), static_cast<std::streamsize>(text.size()));
}

inline std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// `call` must throw exactly Expected, with every phrase in its message.
template <typename Expected, typename Call>
void expect_error(const Call& call, std::initializer_list<std::string_view> phrases) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown; expected: " << *phrases.begin();
  } catch (const Expected& error) {
    for (const std::string_view phrase : phrases) EXPECT_THAT(error.what(), ::testing::HasSubstr(std::string(phrase)));
  }
}

}  // namespace checkvalve::io::testing
