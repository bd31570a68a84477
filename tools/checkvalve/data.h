// data.h: the Q, K, V that a command works on: from a safetensors file, from three .npy files, or generated.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkvalve/problem.h"
#include "checkvalve/tensor.h"

namespace checkvalve::cli {

struct Qkv {
  std::string name{};                // the file's name without extension, or what was generated
  std::string source{};              // metadata 'source' of the file; may be empty
  std::string arguments{};           // the part of a command line that names these data
  std::vector<std::string> paths{};  // files that were read
  Layout layout = Layout::kBshd;     // order in memory
  ConstTensorView q{}, k{}, v{};     // (b, s, h, d)
  std::optional<float> softmax_scale{};
  std::shared_ptr<const void> storage{};

  [[nodiscard]] AttentionProblem problem() const;
};

// Options as typed; empty: not given.
struct DataOptions {
  std::vector<std::string> files;  // each a safetensors file with tensors q, k and v
  std::string q{}, k{}, v{};       // .npy
  std::string generate{}, seed{};
  std::string layout{}, scale{};  // override the metadata of the files
  std::string heads{}, tokens{};  // use the first ones only
};

// --layout and --scale, which every command with data has; --q --k --v; --heads --tokens.
void add_npy_options(CLI::App& command, DataOptions& options);
void add_layout_options(CLI::App& command, DataOptions& options);
void add_generate_options(CLI::App& command, DataOptions& options);
void add_limit_options(CLI::App& command, DataOptions& options);

// `file_option` is the option that DataOptions::files comes from; errors name it.
[[nodiscard]] std::vector<Qkv> load(const DataOptions& options, const std::string& file_option);

// The incoming gradient (b, s_q, h_q, d_v): a .npy file, or a safetensors file with a tensor d_out, in the layout of
// `qkv`.
struct OutputGradient {
  ConstTensorView view;
  std::shared_ptr<const void> storage;
};
[[nodiscard]] OutputGradient load_output_gradient(const std::string& option, const std::string& path, const Qkv& qkv);

// One element of a float tensor.
[[nodiscard]] double element(const ConstTensorView& view, std::int64_t b, std::int64_t s, std::int64_t h,
                             std::int64_t d);

}  // namespace checkvalve::cli
