// run_cli.cpp: runs the built command line in a folder of its own, with small input files.
#include "run_cli.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <stdexcept>

#include "io/safetensors.h"
#include "numerics/half.h"

namespace checkvalve::cli_test {
namespace fs = std::filesystem;

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (fs::temp_directory_path() / "checkvalve-cli-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) {
    throw std::runtime_error("no temporary folder can be made");
  }
  root_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(root_, ignored);
}

std::map<std::string, std::uintmax_t> TemporaryFolder::listing() const {
  std::map<std::string, std::uintmax_t> entries;
  for (const auto& entry : fs::recursive_directory_iterator(root_)) {
    entries[entry.path().string()] = entry.is_regular_file() ? entry.file_size() : 0;
  }
  return entries;
}

Outcome run_shell(const TemporaryFolder& folder, const std::string& command) {
  // Standard streams go to a second folder, so that they do not show up as files that the command left behind.
  const TemporaryFolder streams;
  const std::string line = fmt::format("cd '{}' && {{ {} ; }} >'{}' 2>'{}' </dev/null", folder.path(""), command,
                                       streams.path("out"), streams.path("err"));
  const int status = std::system(line.c_str());
  return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
          .out = read_file(streams.path("out")),
          .err = read_file(streams.path("err"))};
}

Outcome run_cli(const TemporaryFolder& folder, const std::string& arguments) {
  return run_shell(folder, fmt::format("'{}' {}", CHECKVALVE_CLI, arguments));
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_file(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

Tensor random_tensor(unsigned seed, DType dtype, Layout layout, std::int64_t b, std::int64_t s, std::int64_t h,
                     std::int64_t d) {
  std::mt19937 generator(seed);
  const auto n = static_cast<std::size_t>(b * s * h * d);
  Tensor tensor{.storage = std::vector<std::byte>(n * size_of(dtype)), .view = {}, .stored = {}};
  for (std::size_t i = 0; i < n; ++i) {
    const float x = static_cast<float>(generator() % 4001U) / 1000.0F - 2.0F;
    if (dtype == DType::kFloat32) {
      reinterpret_cast<float*>(tensor.storage.data())[i] = x;
    } else {
      reinterpret_cast<std::uint16_t*>(tensor.storage.data())[i] =
          dtype == DType::kBFloat16 ? numerics::float_to_bf16(x) : numerics::float_to_fp16(x);
    }
  }
  tensor.view = make_view(static_cast<void*>(tensor.storage.data()), dtype, layout, b, s, h, d);
  const std::array<std::int64_t, 4> order = layout == Layout::kBshd   ? std::array{b, s, h, d}
                                            : layout == Layout::kSbhd ? std::array{s, b, h, d}
                                                                      : std::array{b, h, s, d};
  tensor.stored = make_dense(static_cast<const void*>(tensor.storage.data()), dtype, 4, order);
  return tensor;
}

Inputs random_inputs(DType dtype, Layout layout) {
  return {.q = random_tensor(1, dtype, layout, 2, 40, 4, 32),
          .k = random_tensor(2, dtype, layout, 2, 40, 2, 32),
          .v = random_tensor(3, dtype, layout, 2, 40, 2, 32),
          .d_out = random_tensor(4, dtype, layout, 2, 40, 4, 32)};
}

void write_inputs(const std::string& path, const Inputs& inputs, const std::string& layout) {
  const std::vector<io::NamedTensor> tensors{{.name = "q", .tensor = inputs.q.stored},
                                             {.name = "k", .tensor = inputs.k.stored},
                                             {.name = "v", .tensor = inputs.v.stored},
                                             {.name = "d_out", .tensor = inputs.d_out.stored}};
  io::write_safetensors(path, tensors, {{"layout", layout}});
}

}  // namespace checkvalve::cli_test
