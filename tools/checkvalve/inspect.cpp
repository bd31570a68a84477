// inspect.cpp: `checkvalve inspect`: what quantisation will meet in these tensors, and what it will cost.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "arguments.h"
#include "audit_run.h"
#include "checkvalve/attention.h"
#include "checkvalve/version.h"
#include "command.h"
#include "data.h"
#include "error_table.h"
#include "output.h"

namespace checkvalve::cli {
namespace {

struct InspectOptions {
  DataOptions data;
  bool json = false;
};

struct HeadRange {
  double amax = 0.0;            // of the finite elements
  std::int64_t non_finite = 0;  // elements that are NaN or infinite
};

struct TensorFacts {
  std::string name, description;
  HeadRange all{};
  std::vector<HeadRange> heads{};
  std::string scale_scope{};                // what shares one of the scales counted below
  std::map<int, std::int64_t> exponents{};  // scales with each exponent
  std::int64_t nan_scales = 0;
};

struct Inspection {
  std::string name, source;
  AttentionProblem problem;
  std::vector<TensorFacts> tensors{};
  std::vector<double> first_token_mass{};  // [h_q], mean over rows of the attention paid to token 0
  std::vector<RecipeError> errors{};
};

TensorFacts range_of(std::string name, const ConstTensorView& view) {
  TensorFacts facts{.name = std::move(name), .description = to_string(view)};
  for (std::int64_t h = 0; h < view.shape[2]; ++h) {
    HeadRange range;
    for (std::int64_t b = 0; b < view.shape[0]; ++b) {
      for (std::int64_t s = 0; s < view.shape[1]; ++s) {
        for (std::int64_t d = 0; d < view.shape[3]; ++d) {
          const double x = std::abs(element(view, b, s, h, d));
          if (std::isfinite(x)) {
            range.amax = std::max(range.amax, x);
          } else {
            ++range.non_finite;
          }
        }
      }
    }
    facts.all.amax = std::max(facts.all.amax, range.amax);
    facts.all.non_finite += range.non_finite;
    facts.heads.push_back(range);
  }
  return facts;
}

// `scales`: dense E8M0 bytes.
void count_exponents(TensorFacts& facts, std::string scope, const TensorView& scales) {
  constexpr int kBias = 127;
  constexpr std::uint8_t kNaN = 0xFF;
  facts.scale_scope = std::move(scope);
  const auto* bytes = static_cast<const std::uint8_t*>(scales.data);
  for (std::int64_t i = 0; i < scales.numel(); ++i) {
    if (bytes[i] == kNaN) {
      ++facts.nan_scales;
    } else {
      ++facts.exponents[bytes[i] - kBias];
    }
  }
}

// With V = 1 for token 0 and 0 for all others, attention returns the weight of token 0.
std::vector<double> first_token_mass(const Qkv& data) {
  AttentionProblem problem = data.problem();
  problem.d_v = 1;
  const auto kv = static_cast<std::size_t>(problem.b * problem.s_kv * problem.h_kv);
  const std::uint16_t one = problem.dtype == DType::kFloat16 ? 0x3C00U : 0x3F80U;
  std::vector<float> indicator32(kv, 0.0F);
  std::vector<std::uint16_t> indicator16(kv, 0U);
  for (std::int64_t b = 0; b < problem.b; ++b) {
    for (std::int64_t h = 0; h < problem.h_kv; ++h) {
      const auto at = static_cast<std::size_t>(b * problem.s_kv * problem.h_kv + h);
      indicator32[at] = 1.0F;
      indicator16[at] = one;
    }
  }
  const void* indicator = problem.dtype == DType::kFloat32 ? static_cast<const void*>(indicator32.data())
                                                           : static_cast<const void*>(indicator16.data());
  std::vector<double> weight(static_cast<std::size_t>(problem.b * problem.s_q * problem.h_q));
  exact_forward(problem, data.q, data.k,
                make_view(indicator, problem.dtype, Layout::kBshd, problem.b, problem.s_kv, problem.h_kv, 1),
                make_view(static_cast<void*>(weight.data()), DType::kFloat64, Layout::kBshd, problem.b, problem.s_q,
                          problem.h_q, 1),
                {});
  std::vector<double> mean(static_cast<std::size_t>(problem.h_q), 0.0);
  for (std::size_t i = 0; i < weight.size(); ++i) {
    mean[i % mean.size()] += weight[i] / static_cast<double>(problem.b * problem.s_q);
  }
  return mean;
}

Inspection inspect(const Qkv& data) {
  Progress progress;
  Inspection result{.name = data.name, .source = data.source, .problem = data.problem()};
  result.tensors = {range_of("q", data.q), range_of("k", data.k), range_of("v", data.v)};
  const Recipe& recipe = recipe_from_name("mxfp8_token");
  const HostQuantizedQKV quantized = allocate_quantized(result.problem, recipe);
  quantize(result.problem, recipe, data.q, data.k, data.v, quantized.tensors);
  count_exponents(result.tensors[0], "a token and 32 channels", quantized.tensors.q_scale);
  count_exponents(result.tensors[1], "a token and 32 channels", quantized.tensors.k_scale);
  count_exponents(result.tensors[2], "a token", quantized.tensors.v_scale);
  result.first_token_mass = first_token_mass(data);
  result.errors = measure_errors(data, recipes(), {},
                                 [&](double share) { progress.update(data.name + ": measuring errors", share); });
  return result;
}

std::string histogram(const TensorFacts& facts) {
  constexpr std::int64_t kWidth = 50;
  std::int64_t most = 1;
  for (const auto& [exponent, n] : facts.exponents) {
    most = std::max(most, n);
  }
  std::string text = fmt::format("\n{}: exponents of E4M3 scales, each for {}\n", facts.name, facts.scale_scope);
  for (const auto& [exponent, n] : facts.exponents) {
    text += fmt::format("  2^{:<4} {:>9}  {}\n", exponent, count(n),
                        std::string(static_cast<std::size_t>((n * kWidth + most - 1) / most), '#'));
  }
  return text + (facts.nan_scales == 0 ? "" : fmt::format("  NaN    {:>9}\n", count(facts.nan_scales)));
}

std::string to_text(const Inspection& result) {
  std::string text = fmt::format("{}: {}\n", result.name, result.problem.to_string());
  if (!result.source.empty()) {
    text += result.source + '\n';
  }
  Table ranges({"tensor", "head", "amax", "not finite"});
  for (const TensorFacts& facts : result.tensors) {
    ranges.add({facts.name, "all", fmt::format("{:.5g}", facts.all.amax), count(facts.all.non_finite)});
    for (std::size_t h = 0; h < facts.heads.size(); ++h) {
      ranges.add({facts.name, std::to_string(h), fmt::format("{:.5g}", facts.heads[h].amax),
                  count(facts.heads[h].non_finite)});
    }
  }
  text += '\n' + ranges.to_string();
  for (const TensorFacts& facts : result.tensors) {
    text += histogram(facts);
  }
  Table mass({"query head", "attention to token 0"});
  for (std::size_t h = 0; h < result.first_token_mass.size(); ++h) {
    mass.add({std::to_string(h), percent(result.first_token_mass[h])});
  }
  text += '\n' + mass.to_string() + '\n';
  Table errors({"relative error of out", "whole output", "worst row", "at token", "head"});
  for (const RecipeError& error : result.errors) {
    if (error.unsupported.empty()) {
      errors.add({error.recipe.name + (error.recipe.leaks() ? " (leaks)" : ""), percent(error.frobenius),
                  percent(error.worst_row), std::to_string(error.worst_token), std::to_string(error.worst_head)});
    } else {
      errors.add({error.recipe.name, "not run", error.unsupported, "", ""});
    }
  }
  return text + errors.to_string();
}

nlohmann::ordered_json to_json(const Inspection& result) {
  nlohmann::ordered_json json = {
      {"name", result.name}, {"source", result.source}, {"problem", result.problem.to_string()}};
  for (const TensorFacts& facts : result.tensors) {
    nlohmann::ordered_json heads = nlohmann::ordered_json::array();
    for (const HeadRange& head : facts.heads) {
      heads.push_back({{"amax", head.amax}, {"non_finite", head.non_finite}});
    }
    nlohmann::ordered_json exponents = nlohmann::ordered_json::object();
    for (const auto& [exponent, n] : facts.exponents) {
      exponents[std::to_string(exponent)] = n;
    }
    json["tensors"][facts.name] = {{"view", facts.description},          {"amax", facts.all.amax},
                                   {"non_finite", facts.all.non_finite}, {"heads", heads},
                                   {"scale_scope", facts.scale_scope},   {"scale_exponents", exponents},
                                   {"nan_scales", facts.nan_scales}};
  }
  json["first_token_mass"] = nlohmann::ordered_json::array();
  for (const double mass : result.first_token_mass) {
    json["first_token_mass"].push_back(json_number(mass));
  }
  json["errors"] = nlohmann::ordered_json::array();
  for (const RecipeError& error : result.errors) {
    json["errors"].push_back(cli::to_json(error));
  }
  return json;
}

int run(const InspectOptions& options) {
  nlohmann::ordered_json json = {
      {"command", "inspect"}, {"version", CHECKVALVE_VERSION}, {"data", nlohmann::ordered_json::array()}};
  std::string text;
  for (const Qkv& data : load(options.data, "FILE or --generate")) {
    const Inspection result = inspect(data);
    json["data"].push_back(to_json(result));
    text += (text.empty() ? "" : "\n") + to_text(result);
  }
  if (options.json) {
    print_json(json);
  } else {
    print(text);
  }
  return kHolds;
}

}  // namespace

void add_inspect(CLI::App& app, Selection& selection) {
  const auto options = std::make_shared<InspectOptions>();
  CLI::App& command =
      *app.add_subcommand("inspect", "Show ranges, scale exponents, attention sinks and the error of each recipe");
  command.add_option("FILE", options->data.files, "safetensors files with tensors q, k and v");
  add_npy_options(command, options->data);
  add_generate_options(command, options->data);
  add_layout_options(command, options->data);
  add_limit_options(command, options->data);
  command.add_flag("--json", options->json, "Machine-readable result");
  command.footer(
      "Examples:\n"
      "  checkvalve inspect layer00.safetensors\n"
      "  checkvalve inspect --q q.npy --k k.npy --v v.npy --tokens 256 --json");
  command.callback([options, &selection] { selection.action = [options] { return run(*options); }; });
}

}  // namespace checkvalve::cli
