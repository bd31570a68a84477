// audit.cpp: `checkvalve audit`: which recipes let a token see later ones, on the user's data.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>

#include "arguments.h"
#include "audit_run.h"
#include "checkvalve/error.h"
#include "checkvalve/version.h"
#include "command.h"
#include "data.h"
#include "files.h"
#include "html_report.h"
#include "output.h"

namespace checkvalve::cli {
namespace {

struct AuditCommandOptions {
  DataOptions data;
  std::string recipe{kDefaultRecipe};
  std::string backend, cuts, html;
  bool no_gradients = false, json = false;
};

void check_cuts(const std::vector<std::int64_t>& cuts, const std::vector<Qkv>& all) {
  for (const Qkv& data : all) {
    const std::int64_t last = data.q.shape[1] - 1;
    for (const std::int64_t cut : cuts) {
      if (cut >= last) {
        throw InvalidArgument(
            fmt::format("--cuts {} leaves no later token in {}, which has {} tokens; give rows from 0 "
                        "to {}",
                        cut, data.name, last + 1, last - 1));
      }
    }
  }
}

int run(const AuditCommandOptions& options, const std::string& command_line) {
  const std::vector<Recipe> chosen = parse_recipes("--recipe", options.recipe);
  const bool all = options.recipe == "all";
  Options call;
  call.backend = parse_backend("--backend", options.backend);
  AuditOptions audit_options;
  audit_options.gradients = !options.no_gradients;
  if (!options.cuts.empty()) {
    audit_options.cuts = parse_integers("--cuts", options.cuts, 0, INT32_MAX);
  }
  const std::vector<Qkv> data = load(options.data, "FILE or --generate");
  check_cuts(audit_options.cuts, data);
  if (!options.html.empty()) {
    std::vector<std::string> inputs;
    for (const Qkv& qkv : data) {
      inputs.insert(inputs.end(), qkv.paths.begin(), qkv.paths.end());
    }
    constexpr std::array<std::string_view, 2> kExtensions{".html", ".htm"};
    check_output("--html", options.html, kExtensions, inputs);
  }

  std::vector<DataAudit> sets;
  sets.reserve(data.size());
  for (const Qkv& qkv : data) {
    sets.push_back(run_audits(qkv, qkv, chosen, call, audit_options));
  }
  const int code = exit_code(sets, all);
  const std::string sentence = verdict_sentence(sets);
  if (!options.html.empty()) {
    write_text(options.html, html_report(sets, command_line));
  }
  if (options.json) {
    print_json({{"command", "audit"},
                {"version", CHECKVALVE_VERSION},
                {"command_line", command_line},
                {"verdict", sentence},
                {"exit_code", code},
                {"html", options.html.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(options.html)},
                {"data", to_json(sets)}});
    return code;
  }
  print(fmt::format("{}\n{}\n{}\n", verdict_table(sets), error_table(sets), sentence));
  if (all && code == kHolds) {
    print("Every recipe did as it promises: the leaky ones are the negative controls.\n");
  }
  if (!options.html.empty()) {
    print(fmt::format("Report: {}\n", options.html));
  }
  return code;
}

}  // namespace

void add_audit(CLI::App& app, Selection& selection) {
  const auto options = std::make_shared<AuditCommandOptions>();
  CLI::App& command = *app.add_subcommand("audit", "Find out whether a recipe lets a token see later ones");
  command.add_option("FILE", options->data.files, "safetensors files with tensors q, k and v");
  add_npy_options(command, options->data);
  add_generate_options(command, options->data);
  add_layout_options(command, options->data);
  add_limit_options(command, options->data);
  command
      .add_option("--recipe", options->recipe,
                  "A recipe, several separated by commas, or all (then the leaky ones must be caught)")
      ->capture_default_str();
  command.add_option("--backend", options->backend, "Use this backend or fail (see 'checkvalve backends')");
  command.add_option("--cuts", options->cuts, "Rows after which tokens are changed, for example 5,31,40");
  command.add_flag("--no-gradients", options->no_gradients, "Audit out and lse only, not dQ, dK, dV");
  command.add_option("--html", options->html, "Write a report with influence maps to this file");
  command.add_flag("--json", options->json, "Machine-readable result");
  command.footer(
      "Exit code: 0 no asked recipe leaks (with 'all': each did as it promises), 1 a leak or no clear verdict,\n"
      "2 bad input, 3 unsupported.\n"
      "Examples:\n"
      "  checkvalve audit layer00.safetensors --recipe int8_token\n"
      "  checkvalve audit layer00.safetensors --recipe all --html report.html\n"
      "  checkvalve audit --generate 1,256,4,2,64 --seed 1 --recipe mxfp8,mxfp8_own_block --json");
  command.callback([options, &selection] {
    selection.action = [options, line = selection.command_line] { return run(*options, line); };
  });
}

}  // namespace checkvalve::cli
