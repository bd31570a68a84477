// run_cli.h: runs the built command line in a folder of its own, with small input files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "checkvalve/tensor.h"

namespace checkvalve::cli_test {

// Removed, with all that is in it, at the end of the test.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  [[nodiscard]] std::string path(const std::string& name) const { return (root_ / name).string(); }
  // Every file and folder with its size, so that two listings differ if anything was added, removed or rewritten.
  [[nodiscard]] std::map<std::string, std::uintmax_t> listing() const;

 private:
  std::filesystem::path root_;
};

struct Outcome {
  int code = -1;  // exit code; -1 if a signal ended the program
  std::string out, err;
};

// `arguments` is read by the shell, with `folder` as the current directory.
[[nodiscard]] Outcome run_cli(const TemporaryFolder& folder, const std::string& arguments);
[[nodiscard]] Outcome run_shell(const TemporaryFolder& folder, const std::string& command);

[[nodiscard]] std::string read_file(const std::string& path);
void write_file(const std::string& path, const std::string& content);

// A (b, s, h, d) tensor of reproducible values in the order of `layout`.
struct Tensor {
  std::vector<std::byte> storage;
  TensorView view;         // (b, s, h, d)
  ConstTensorView stored;  // dense, the dimensions in the order of the layout
};
[[nodiscard]] Tensor random_tensor(unsigned seed, DType dtype, Layout layout, std::int64_t b, std::int64_t s,
                                   std::int64_t h, std::int64_t d);

struct Inputs {
  Tensor q, k, v, d_out;
};
// b = 2, s = 40, h_q = 4, h_kv = 2, d = 32: an own block that is cut, and grouped heads.
[[nodiscard]] Inputs random_inputs(DType dtype, Layout layout);

// q, k, v, d_out and the metadata `layout`.
void write_inputs(const std::string& path, const Inputs& inputs, const std::string& layout);

}  // namespace checkvalve::cli_test
