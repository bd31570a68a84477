// backends.cpp: `checkvalve backends`: what can run here, and which of it would serve a given call.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <memory>

#include "arguments.h"
#include "checkvalve/backend.h"
#include "checkvalve/error.h"
#include "checkvalve/version.h"
#include "command.h"
#include "output.h"

namespace checkvalve::cli {
namespace {

struct BackendsOptions {
  std::string sizes, recipe, dtype, window, device;
  bool no_causal = false, json = false;
};

AttentionProblem problem_from(const BackendsOptions& options) {
  constexpr std::array<std::string_view, 3> kDTypes{"float32", "float16", "bfloat16"};
  const Sizes n = parse_sizes("--sizes", options.sizes);
  const std::string dtype = options.dtype.empty() ? "bfloat16" : parse_choice("--dtype", options.dtype, kDTypes);
  AttentionProblem problem;
  problem.b = n.b;
  problem.h_q = n.h_q;
  problem.h_kv = n.h_kv;
  problem.s_q = problem.s_kv = n.s;
  problem.d_qk = problem.d_v = n.d;
  problem.dtype = dtype == "float32" ? DType::kFloat32 : dtype == "float16" ? DType::kFloat16 : DType::kBFloat16;
  problem.out_dtype = problem.dtype;
  problem.causal = !options.no_causal;
  if (!options.window.empty()) {
    problem.window_left = parse_integer("--window", options.window, 1, INT32_MAX) - 1;
  }
  return problem;
}

nlohmann::ordered_json to_json(const std::vector<BackendVerdict>& verdicts, bool explained) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const BackendVerdict& backend : verdicts) {
    nlohmann::ordered_json entry = {{"name", backend.name}, {"description", backend.description}};
    if (explained) {
      entry["can_serve"] = backend.reasons.empty();
      entry["reasons"] = backend.reasons;
    }
    json.push_back(std::move(entry));
  }
  return json;
}

int list(bool json) {
  const std::vector<BackendVerdict> backends = list_backends();
  if (json) {
    print_json({{"command", "backends"}, {"version", CHECKVALVE_VERSION}, {"backends", to_json(backends, false)}});
    return kHolds;
  }
  Table table({"backend", "description"}, {0, 1});
  for (const BackendVerdict& backend : backends) {
    table.add({backend.name, backend.description});
  }
  print(table.to_string() + "\nGive --sizes b,s,h_q,h_kv,d to see which of them would serve a call.\n");
  return kHolds;
}

int explain_call(const BackendsOptions& options) {
  const AttentionProblem problem = problem_from(options);
  const Recipe recipe = parse_recipe("--recipe", options.recipe.empty() ? kDefaultRecipe : options.recipe);
  constexpr std::array<std::string_view, 2> kDevices{"host", "cuda"};
  const std::string device = options.device.empty() ? "host" : parse_choice("--device", options.device, kDevices);
  // The question is what could run the recipe; that a leaky one must be allowed is another matter.
  Options options_of_call;
  options_of_call.allow_leak = true;
  const std::vector<BackendVerdict> verdicts =
      explain(problem, recipe, options_of_call, device == "cuda" ? Device::kCuda : Device::kHost);
  const auto chosen =
      std::find_if(verdicts.begin(), verdicts.end(), [](const BackendVerdict& v) { return v.reasons.empty(); });
  const int code = chosen == verdicts.end() ? kNotSupported : kHolds;
  if (options.json) {
    print_json({{"command", "backends"},
                {"version", CHECKVALVE_VERSION},
                {"problem", problem.to_string()},
                {"recipe", recipe.name},
                {"device", device},
                {"chosen", code == kHolds ? nlohmann::ordered_json(chosen->name) : nlohmann::ordered_json()},
                {"backends", to_json(verdicts, true)}});
    return code;
  }
  std::string text = fmt::format("problem  {}\nrecipe   {}\ndevice   {}\n\n", problem.to_string(), recipe.name, device);
  Table table({"backend", "verdict"}, {0, 1});
  for (const BackendVerdict& backend : verdicts) {
    table.add({backend.name, !backend.reasons.empty()       ? fmt::format("no: {}", fmt::join(backend.reasons, "; "))
                             : backend.name == chosen->name ? "serves this call"
                                                            : "can serve it too"});
  }
  print(text + table.to_string());
  return code;
}

}  // namespace

void add_backends(CLI::App& app, Selection& selection) {
  const auto options = std::make_shared<BackendsOptions>();
  CLI::App& command = *app.add_subcommand("backends", "List backends, or explain which would serve a call and why");
  CLI::Option* sizes = command.add_option("--sizes", options->sizes, "Explain a call of sizes b,s,h_q,h_kv,d");
  command.add_option("--recipe", options->recipe, fmt::format("Recipe of that call (default {})", kDefaultRecipe))
      ->needs(sizes);
  command.add_option("--dtype", options->dtype, "float32, float16 or bfloat16 (default)")->needs(sizes);
  command.add_option("--window", options->window, "Sliding window of N tokens")->needs(sizes);
  command.add_flag("--no-causal", options->no_causal, "Without the causal mask")->needs(sizes);
  command.add_option("--device", options->device, "Where the tensors are: host (default) or cuda")->needs(sizes);
  command.add_flag("--json", options->json, "Machine-readable result");
  command.footer(
      "Exit code 3 if no backend can serve the call.\n"
      "Examples:\n"
      "  checkvalve backends\n"
      "  checkvalve backends --sizes 1,4096,16,4,128 --recipe int8_token --dtype bfloat16");
  command.callback([options, &selection] {
    selection.action = [options] { return options->sizes.empty() ? list(options->json) : explain_call(*options); };
  });
}

}  // namespace checkvalve::cli
