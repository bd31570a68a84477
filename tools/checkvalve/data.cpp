// data.cpp: loading and generating Q, K, V.
#include "data.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <numbers>
#include <utility>

#include "arguments.h"
#include "checkvalve/error.h"
#include "files.h"
#include "io/npy.h"
#include "io/safetensors.h"
#include "numerics/half.h"

namespace checkvalve::cli {
namespace {

// Position of b, s, h, d in the shape of a tensor stored in `layout`.
constexpr std::array<std::size_t, 4> positions(Layout layout) {
  switch (layout) {
    case Layout::kSbhd:
      return {1, 0, 2, 3};
    case Layout::kBhsd:
      return {0, 2, 1, 3};
    case Layout::kBshd:
      break;
  }
  return {0, 1, 2, 3};
}

// (b, s, h, d) view of a tensor whose dimensions are in the order of `layout`.
ConstTensorView attention_view(const ConstTensorView& stored, Layout layout, const std::string& what) {
  if (stored.rank != 4) {
    throw InvalidArgument(fmt::format("{} is {}; an attention tensor has four dimensions in the order of --layout {}",
                                      what, to_string(stored), layout_name(layout)));
  }
  if (stored.dtype != DType::kFloat32 && stored.dtype != DType::kFloat16 && stored.dtype != DType::kBFloat16) {
    throw InvalidArgument(
        fmt::format("{} is {}; accepted dtypes are float32, float16 and bfloat16", what, to_string(stored)));
  }
  ConstTensorView view = stored;
  const auto at = positions(layout);
  for (std::size_t i = 0; i < 4; ++i) {
    view.shape[i] = stored.shape[at[i]];
    view.strides[i] = stored.strides[at[i]];
  }
  return view;
}

// Errors of the readers name the file; this adds the option that it came from.
template <typename Read>
auto reading(const std::string& option, Read&& read) {
  try {
    return read();
  } catch (const IoError& error) {
    throw IoError(fmt::format("{} {}", option, error.what()));
  }
}

std::optional<float> scale_of(const DataOptions& options) {
  return options.scale.empty() ? std::nullopt : std::optional(parse_positive("--scale", options.scale));
}

Qkv load_safetensors(const std::string& path, const DataOptions& options, const std::string& file_option) {
  check_input(file_option, path);
  const auto file = std::make_shared<const io::SafetensorsFile>(
      reading(file_option, [&] { return io::SafetensorsFile::open(path); }));
  const auto& metadata = file->metadata();
  Qkv qkv{.name = std::filesystem::path(path).stem().string(), .paths = {path}, .storage = file};
  if (const auto source = metadata.find("source"); source != metadata.end()) {
    qkv.source = source->second;
  }
  qkv.softmax_scale = scale_of(options);
  if (const auto scale = metadata.find("softmax_scale"); !qkv.softmax_scale && scale != metadata.end()) {
    qkv.softmax_scale = parse_positive(fmt::format("metadata 'softmax_scale' of '{}':", path), scale->second);
  }
  if (!options.layout.empty()) {
    qkv.layout = parse_layout("--layout", options.layout);
  } else if (const auto layout = metadata.find("layout"); layout != metadata.end()) {
    qkv.layout = parse_layout(fmt::format("metadata 'layout' of '{}':", path), layout->second);
  }
  const auto view_of = [&](const char* name) {
    return attention_view(reading(file_option, [&] { return file->find(name); }), qkv.layout,
                          fmt::format("tensor '{}' of '{}'", name, path));
  };
  qkv.q = view_of("q");
  qkv.k = view_of("k");
  qkv.v = view_of("v");
  return qkv;
}

Qkv load_npy(const DataOptions& options) {
  Qkv qkv{.softmax_scale = scale_of(options)};
  if (!options.layout.empty()) {
    qkv.layout = parse_layout("--layout", options.layout);
  }
  auto files = std::make_shared<std::vector<io::NpyFile>>();
  const auto open = [&](const char* option, const std::string& path) {
    if (path.empty()) {
      throw InvalidArgument(fmt::format("{} is missing; give all of --q, --k and --v", option));
    }
    check_input(option, path);
    qkv.paths.push_back(path);
    qkv.name += (qkv.name.empty() ? "" : " ") + std::filesystem::path(path).stem().string();
    files->push_back(reading(option, [&] { return io::NpyFile::open(path); }));
    return attention_view(files->back().tensor(), qkv.layout, fmt::format("{} '{}'", option, path));
  };
  qkv.q = open("--q", options.q);
  qkv.k = open("--k", options.k);
  qkv.v = open("--v", options.v);
  qkv.storage = files;
  return qkv;
}

// Standard normal numbers, the same on every platform: splitmix64 and Box-Muller.
class Normal {
 public:
  explicit Normal(std::uint64_t seed) : state_(seed) {}

  float operator()() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    return static_cast<float>(radius * std::cos(2.0 * std::numbers::pi * uniform()));
  }

 private:
  double uniform() {  // [0, 1)
    state_ += 0x9E3779B97F4A7C15U;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
  }

  std::uint64_t state_;
};

Qkv generate(const DataOptions& options) {
  constexpr std::int64_t kMaxElements = std::int64_t{1} << 28;
  const Sizes n = parse_sizes("--generate", options.generate);
  const std::int64_t seed = options.seed.empty() ? 0 : parse_integer("--seed", options.seed, 0, INT64_MAX);
  if (static_cast<double>(n.b) * static_cast<double>(n.s) * static_cast<double>(n.h_q) * static_cast<double>(n.d) >
      static_cast<double>(kMaxElements)) {
    throw InvalidArgument(fmt::format("--generate '{}' asks for more than {} elements of q; make the sizes smaller",
                                      options.generate, kMaxElements));
  }
  const auto layout = options.layout.empty() ? Layout::kBshd : parse_layout("--layout", options.layout);
  const std::int64_t q_size = n.b * n.s * n.h_q * n.d;
  const std::int64_t kv_size = n.b * n.s * n.h_kv * n.d;
  auto values = std::make_shared<std::vector<float>>(static_cast<std::size_t>(q_size + 2 * kv_size));
  Normal normal(static_cast<std::uint64_t>(seed));
  for (float& x : *values) {
    x = normal();
  }
  const float* data = values->data();
  return {
      .name = fmt::format("generated {} (seed {})", options.generate, seed),
      .source = "standard normal numbers",
      .layout = layout,
      .q = make_view(static_cast<const void*>(data), DType::kFloat32, layout, n.b, n.s, n.h_q, n.d),
      .k = make_view(static_cast<const void*>(data + q_size), DType::kFloat32, layout, n.b, n.s, n.h_kv, n.d),
      .v = make_view(static_cast<const void*>(data + q_size + kv_size), DType::kFloat32, layout, n.b, n.s, n.h_kv, n.d),
      .softmax_scale = scale_of(options),
      .storage = values};
}

// The first heads only; the ratio of query heads to key/value heads stays.
void limit_heads(Qkv& qkv, const std::string& text) {
  const std::int64_t h_q = qkv.q.shape[2];
  const std::int64_t ratio = h_q / qkv.k.shape[2];
  const std::int64_t heads = parse_integer("--heads", text, 1, h_q);
  if (heads > ratio && heads % ratio != 0) {
    throw InvalidArgument(
        fmt::format("--heads {} splits a group of {} query heads that share a key/value head; give a "
                    "multiple of {}, or less than it",
                    heads, ratio, ratio));
  }
  qkv.q.shape[2] = heads;
  qkv.k.shape[2] = qkv.v.shape[2] = (heads + ratio - 1) / ratio;
}

void limit_tokens(Qkv& qkv, const std::string& text) {
  if (qkv.q.shape[1] != qkv.k.shape[1]) {
    throw InvalidArgument(
        fmt::format("--tokens {} needs as many queries as keys, but s_q = {} and s_kv = {}; leave "
                    "--tokens out",
                    text, qkv.q.shape[1], qkv.k.shape[1]));
  }
  const std::int64_t tokens = parse_integer("--tokens", text, 1, qkv.q.shape[1]);
  qkv.q.shape[1] = qkv.k.shape[1] = qkv.v.shape[1] = tokens;
}

}  // namespace

AttentionProblem Qkv::problem() const {
  AttentionProblem problem = problem_of(q, k, v);
  problem.softmax_scale = softmax_scale;
  return problem;
}

void add_npy_options(CLI::App& command, DataOptions& options) {
  command.add_option("--q", options.q, "Queries, .npy (instead of a safetensors file)");
  command.add_option("--k", options.k, "Keys, .npy");
  command.add_option("--v", options.v, "Values, .npy");
}

void add_layout_options(CLI::App& command, DataOptions& options) {
  command.add_option("--layout", options.layout,
                     "Order of the dimensions: bshd, sbhd or bhsd (default: the file's metadata 'layout', else bshd)");
  command.add_option("--scale", options.scale,
                     "Factor of q.k (default: the file's metadata 'softmax_scale', else 1/sqrt(d_qk))");
}

void add_generate_options(CLI::App& command, DataOptions& options) {
  command.add_option("--generate", options.generate,
                     "Random float32 data instead of files: b,s,h_q,h_kv,d, for example 1,256,4,2,64");
  command.add_option("--seed", options.seed, "Seed of --generate (default 0)");
}

void add_limit_options(CLI::App& command, DataOptions& options) {
  command.add_option("--heads", options.heads, "Use the first N query heads only");
  command.add_option("--tokens", options.tokens, "Use the first N tokens only");
}

std::vector<Qkv> load(const DataOptions& options, const std::string& file_option) {
  const bool npy = !options.q.empty() || !options.k.empty() || !options.v.empty();
  const int ways = (options.files.empty() ? 0 : 1) + (npy ? 1 : 0) + (options.generate.empty() ? 0 : 1);
  if (ways != 1) {
    throw InvalidArgument(fmt::format("{} of data; give {}, or --q --k --v",
                                      ways == 0 ? "there is no source" : "there is more than one source", file_option));
  }
  if (!options.seed.empty() && options.generate.empty()) {
    throw InvalidArgument(
        fmt::format("--seed {} has no effect without --generate; leave it out or generate data", options.seed));
  }
  std::vector<Qkv> all;
  for (const std::string& path : options.files) {
    all.push_back(load_safetensors(path, options, file_option));
    all.back().arguments = command_line_of(2, std::array<const char*, 2>{"", path.c_str()}.data()).substr(11);
  }
  if (npy) {
    all.push_back(load_npy(options));
    all.back().arguments = fmt::format("--q {} --k {} --v {}", options.q, options.k, options.v);
  }
  if (!options.generate.empty()) {
    all.push_back(generate(options));
    all.back().arguments = fmt::format("--generate {}{}", options.generate,
                                       options.seed.empty() ? "" : fmt::format(" --seed {}", options.seed));
  }
  for (Qkv& qkv : all) {
    static_cast<void>(qkv.problem());  // throws unless q, k and v fit each other
    if (!options.heads.empty()) {
      limit_heads(qkv, options.heads);
      qkv.arguments += " --heads " + options.heads;
    }
    if (!options.tokens.empty()) {
      limit_tokens(qkv, options.tokens);
      qkv.arguments += " --tokens " + options.tokens;
    }
  }
  return all;
}

OutputGradient load_output_gradient(const std::string& option, const std::string& path, const Qkv& qkv) {
  check_input(option, path);
  OutputGradient gradient;
  ConstTensorView stored;
  if (has_extension(path, ".npy")) {
    const auto file = std::make_shared<const io::NpyFile>(reading(option, [&] { return io::NpyFile::open(path); }));
    stored = file->tensor();
    gradient.storage = file;
  } else if (has_extension(path, ".safetensors")) {
    const auto file =
        std::make_shared<const io::SafetensorsFile>(reading(option, [&] { return io::SafetensorsFile::open(path); }));
    stored = reading(option, [&] { return file->find("d_out"); });
    gradient.storage = file;
  } else {
    throw InvalidArgument(
        fmt::format("{} '{}' has an extension that is not accepted; give a .npy or a .safetensors file", option, path));
  }
  gradient.view = attention_view(stored, qkv.layout, fmt::format("{} '{}'", option, path));
  const std::array<std::int64_t, 4> expected{qkv.q.shape[0], qkv.q.shape[1], qkv.q.shape[2], qkv.v.shape[3]};
  if (gradient.view.shape != expected) {
    throw InvalidArgument(fmt::format(
        "{} '{}' has (b, s, h, d) = ({}, {}, {}, {}), but out is ({}, {}, {}, {}); give a gradient of out's shape",
        option, path, gradient.view.shape[0], gradient.view.shape[1], gradient.view.shape[2], gradient.view.shape[3],
        expected[0], expected[1], expected[2], expected[3]));
  }
  return gradient;
}

double element(const ConstTensorView& view, std::int64_t b, std::int64_t s, std::int64_t h, std::int64_t d) {
  const std::int64_t at = b * view.strides[0] + s * view.strides[1] + h * view.strides[2] + d * view.strides[3];
  switch (view.dtype) {
    case DType::kFloat16:
      return numerics::fp16_to_float(static_cast<const std::uint16_t*>(view.data)[at]);
    case DType::kBFloat16:
      return numerics::bf16_to_float(static_cast<const std::uint16_t*>(view.data)[at]);
    case DType::kFloat64:
      return static_cast<const double*>(view.data)[at];
    default:
      return static_cast<const float*>(view.data)[at];
  }
}

}  // namespace checkvalve::cli
