// attend.cpp: `checkvalve attend`: one forward, and on request the backward, from files to a file.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <chrono>
#include <memory>
#include <vector>

#include "arguments.h"
#include "checkvalve/attention.h"
#include "checkvalve/error.h"
#include "checkvalve/version.h"
#include "command.h"
#include "data.h"
#include "files.h"
#include "io/npy.h"
#include "io/safetensors.h"
#include "output.h"

namespace checkvalve::cli {
namespace {

struct AttendOptions {
  DataOptions data;
  std::string qkv;
  std::string recipe{kDefaultRecipe};
  std::string window, backend, d_out, output;
  std::string backward_precision;
  std::string out_dtype = "input";
  bool allow_leak = false, no_causal = false, json = false;
};

// A tensor that the command computes and the file keeps: the same memory as (b, s, h, d) and in the order of the
// layout.
struct Result {
  std::string name;
  std::vector<std::byte> storage;
  TensorView view{};         // what the library writes
  ConstTensorView stored{};  // dense, in the order of the file's dimensions
};

Result attention_result(std::string name, DType dtype, Layout layout, const std::array<std::int64_t, 4>& shape) {
  const auto [b, s, h, d] = shape;
  Result result{.name = std::move(name),
                .storage = std::vector<std::byte>(static_cast<std::size_t>(b * s * h * d) * size_of(dtype))};
  result.view = make_view(static_cast<void*>(result.storage.data()), dtype, layout, b, s, h, d);
  const std::array<std::int64_t, 4> in_memory = layout == Layout::kSbhd   ? std::array{s, b, h, d}
                                                : layout == Layout::kBhsd ? std::array{b, h, s, d}
                                                                          : shape;
  result.stored = make_dense(static_cast<const void*>(result.storage.data()), dtype, 4, in_memory);
  return result;
}

Result lse_result(const AttentionProblem& problem) {
  const auto n = static_cast<std::size_t>(problem.b * problem.h_q * problem.s_q);
  Result result{.name = "lse", .storage = std::vector<std::byte>(n * sizeof(float))};
  result.view = make_dense(static_cast<void*>(result.storage.data()), DType::kFloat32, 3,
                           {problem.b, problem.h_q, problem.s_q, 0});
  result.stored = result.view;
  return result;
}

AttentionProblem problem_from(const AttendOptions& options, const Qkv& qkv) {
  AttentionProblem problem = qkv.problem();
  constexpr std::array<std::string_view, 2> kOutDTypes{"input", "float32"};
  if (parse_choice("--out-dtype", options.out_dtype, kOutDTypes) == "float32") {
    problem.out_dtype = DType::kFloat32;
  }
  if (!options.window.empty()) {
    problem.window_left = parse_integer("--window", options.window, 1, INT32_MAX) - 1;
  }
  problem.causal = !options.no_causal;
  return problem;
}

void check_output_options(const AttendOptions& options, const Qkv& qkv, const AttentionProblem& problem) {
  if (options.output.empty()) {
    return;
  }
  std::vector<std::string> inputs = qkv.paths;
  inputs.push_back(options.d_out);
  constexpr std::array<std::string_view, 2> kExtensions{".safetensors", ".npy"};
  check_output("-o", options.output, kExtensions, inputs);
  if (has_extension(options.output, ".npy")) {
    if (!options.d_out.empty()) {
      throw InvalidArgument(
          fmt::format("-o '{}' holds one tensor, but --backward makes five; give a .safetensors file", options.output));
    }
    if (problem.out_dtype == DType::kBFloat16) {
      throw InvalidArgument(fmt::format(
          "-o '{}' cannot hold bfloat16; add --out-dtype float32 or give a .safetensors file", options.output));
    }
  }
}

void write_results(const std::string& path, const std::vector<const Result*>& results, const Qkv& qkv,
                   const AttentionProblem& problem, const Report& report) {
  if (has_extension(path, ".npy")) {
    io::write_npy(path, results.front()->stored);
    return;
  }
  std::vector<io::NamedTensor> tensors;
  tensors.reserve(results.size());
  for (const Result* result : results) {
    tensors.push_back({.name = result->name, .tensor = result->stored});
  }
  io::write_safetensors(path, tensors,
                        {{"layout", std::string(layout_name(qkv.layout))},
                         {"softmax_scale", fmt::format("{}", problem.scale())},
                         {"recipe", report.recipe_used},
                         {"backend", report.backend_used},
                         {"checkvalve", CHECKVALVE_VERSION}});
}

int run(const AttendOptions& options) {
  // Read and check everything first.
  const Qkv qkv = load(options.data, "--qkv").front();
  const Recipe recipe = parse_recipe("--recipe", options.recipe);
  const AttentionProblem problem = problem_from(options, qkv);
  Options call;
  call.backend = parse_backend("--backend", options.backend);
  call.allow_leak = options.allow_leak;
  if (recipe.leaks() && !options.allow_leak) {
    throw InvalidArgument(
        fmt::format("--recipe {} lets tokens see later ones; add --allow-leak if you want that, or use "
                    "--recipe {}",
                    recipe.name, kDefaultRecipe));
  }
  if (!options.backward_precision.empty()) {
    constexpr std::array<std::string_view, 2> kPrecisions{"bf16", "hybrid"};
    const std::string precision = parse_choice("--backward-precision", options.backward_precision, kPrecisions);
    call.backward = precision == "hybrid" ? BackwardPrecision::kHybrid : BackwardPrecision::kBFloat16;
    if (options.d_out.empty()) {
      throw InvalidArgument(
          fmt::format("--backward-precision {} has no effect without --backward; leave it out or add --backward dO.npy",
                      precision));
    }
  }
  check_output_options(options, qkv, problem);
  OutputGradient d_out;
  if (!options.d_out.empty()) {
    d_out = load_output_gradient("--backward", options.d_out, qkv);
  }

  // Forward
  const auto start = std::chrono::steady_clock::now();
  Result out =
      attention_result("out", problem.out_dtype, qkv.layout, {problem.b, problem.s_q, problem.h_q, problem.d_v});
  Result lse = lse_result(problem);
  const Report report = forward(problem, recipe, qkv.q, qkv.k, qkv.v, out.view, lse.view, call);
  std::vector<const Result*> results{&out, &lse};

  // Backward
  std::array<Result, 3> gradients;
  if (d_out.view) {
    gradients = {
        attention_result("dq", problem.out_dtype, qkv.layout, {problem.b, problem.s_q, problem.h_q, problem.d_qk}),
        attention_result("dk", problem.out_dtype, qkv.layout, {problem.b, problem.s_kv, problem.h_kv, problem.d_qk}),
        attention_result("dv", problem.out_dtype, qkv.layout, {problem.b, problem.s_kv, problem.h_kv, problem.d_v})};
    // The library takes delta from `out` only where `out` was not rounded to 16 bits.
    const ConstTensorView out_view =
        problem.out_dtype == DType::kFloat32 ? ConstTensorView(out.view) : ConstTensorView{};
    backward(problem, recipe, qkv.q, qkv.k, qkv.v, out_view, lse.view, d_out.view, gradients[0].view, gradients[1].view,
             gradients[2].view, call);
    results.insert(results.end(), {&gradients[0], &gradients[1], &gradients[2]});
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

  // Write
  std::vector<std::string> written;
  if (!options.output.empty()) {
    write_results(options.output, results, qkv, problem, report);
    const std::size_t kept = has_extension(options.output, ".npy") ? 1 : results.size();
    for (std::size_t i = 0; i < kept; ++i) {
      written.push_back(results[i]->name);
    }
  }
  if (options.json) {
    print_json({{"command", "attend"},
                {"version", CHECKVALVE_VERSION},
                {"problem", problem.to_string()},
                {"backend_used", report.backend_used},
                {"recipe_used", report.recipe_used},
                {"leaks", report.leaks},
                {"softmax_scale", problem.scale()},
                {"layout", layout_name(qkv.layout)},
                {"seconds", seconds},
                {"output", options.output.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(options.output)},
                {"tensors", written}});
    return kHolds;
  }
  print(fmt::format("problem  {}\nrecipe   {} ({})\nbackend  {}\ntime     {:.3f} s, {}\nwritten  {}\n",
                    problem.to_string(), report.recipe_used,
                    report.leaks ? "LEAKS: tokens see later ones" : "no token sees a later one", report.backend_used,
                    seconds, d_out.view ? "forward and backward" : "forward",
                    written.empty() ? "nothing; give -o FILE to keep the result"
                                    : fmt::format("{}: {}", options.output, fmt::join(written, ", "))));
  return kHolds;
}

}  // namespace

void add_attend(CLI::App& app, Selection& selection) {
  const auto options = std::make_shared<AttendOptions>();
  CLI::App& command = *app.add_subcommand("attend", "Compute attention, and on request its gradients");
  command.add_option("--qkv", options->qkv, "A safetensors file with tensors q, k and v");
  add_npy_options(command, options->data);
  add_layout_options(command, options->data);
  command.add_option("--recipe", options->recipe, "How Q, K, V and P are quantised")->capture_default_str();
  command.add_option("--window", options->window, "Each token sees itself and the N - 1 tokens before it only");
  command.add_flag("--no-causal", options->no_causal, "Let every token see all others, as an encoder does");
  command.add_flag("--allow-leak", options->allow_leak, "Run a recipe whose scales look at later tokens");
  command.add_option("--backend", options->backend, "Use this backend or fail (see 'checkvalve backends')");
  command.add_option("--backward", options->d_out, "Gradient of out: .npy, or .safetensors with a tensor d_out");
  command.add_option("--backward-precision", options->backward_precision, "bf16 (default) or hybrid");
  command.add_option("--out-dtype", options->out_dtype, "dtype of out and gradients: input or float32")
      ->capture_default_str();
  command.add_option("-o,--output", options->output,
                     "Write out, lse, dq, dk, dv to a .safetensors file, or out alone to a .npy file");
  command.add_flag("--json", options->json, "Machine-readable summary");
  command.footer(
      "Examples:\n"
      "  checkvalve attend --qkv layer00.safetensors -o out.safetensors\n"
      "  checkvalve attend --q q.npy --k k.npy --v v.npy --layout bhsd --recipe mxfp8_token -o out.npy\n"
      "  checkvalve attend --qkv layer00.safetensors --backward dO.safetensors -o grads.safetensors");
  command.callback([options, &selection] {
    if (!options->qkv.empty()) {
      options->data.files = {options->qkv};
    }
    selection.action = [options] { return run(*options); };
  });
}

}  // namespace checkvalve::cli
