// demo.cpp: `checkvalve demo`: the whole audit on real Q, K, V of a trained model, ending in a report.
#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <memory>

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

struct DemoOptions {
  std::string data = "data";
  std::string html = "checkvalve-report.html";
  bool json = false;
};

// Sized for a laptop: the audit costs hundreds of runs, so it looks at the first tokens of one head; gradients, five
// times the cost, at one layer. 256 tokens hold two spans, so that every rule about spans and blocks is in play.
struct DemoLayer {
  const char* file;
  bool gradients;
};
constexpr std::array<DemoLayer, 3> kLayers{{{"smollm2_layer00.safetensors", false},
                                            {"smollm2_layer20.safetensors", true},
                                            {"smollm2_layer24.safetensors", false}}};
constexpr const char* kAuditTokens = "256";

std::string path_of(const DemoOptions& options, const DemoLayer& layer) {
  return (std::filesystem::path(options.data) / layer.file).string();
}

int run(const DemoOptions& options, const std::string& command_line) {
  std::vector<std::string> inputs;
  for (const DemoLayer& layer : kLayers) {
    if (!std::filesystem::is_regular_file(path_of(options, layer))) {
      throw IoError(
          fmt::format("--data '{}' has no file {}; give the folder 'data' of the project", options.data, layer.file));
    }
    inputs.push_back(path_of(options, layer));
  }
  constexpr std::array<std::string_view, 2> kExtensions{".html", ".htm"};
  check_output("--html", options.html, kExtensions, inputs);

  std::vector<DataAudit> sets;
  for (const DemoLayer& layer : kLayers) {
    DataOptions whole{.files = {path_of(options, layer)}};
    DataOptions cut = whole;
    cut.tokens = kAuditTokens;
    AuditOptions audit_options;
    audit_options.gradients = layer.gradients;
    sets.push_back(
        run_audits(load(cut, "--data").front(), load(whole, "--data").front(), recipes(), {}, audit_options));
  }
  const int code = exit_code(sets, true);
  const std::string sentence = verdict_sentence(sets);
  write_text(options.html, html_report(sets, command_line));
  if (options.json) {
    print_json({{"command", "demo"},
                {"version", CHECKVALVE_VERSION},
                {"verdict", sentence},
                {"exit_code", code},
                {"html", options.html},
                {"data", to_json(sets)}});
    return code;
  }
  print(fmt::format("{}\n{}\n{}\nReport: {}\n", verdict_table(sets), error_table(sets), sentence, options.html));
  return code;
}

}  // namespace

void add_demo(CLI::App& app, Selection& selection) {
  const auto options = std::make_shared<DemoOptions>();
  CLI::App& command = *app.add_subcommand("demo", "Audit every recipe on real Q, K, V of a language model");
  command.add_option("--data", options->data, "Folder with the smollm2_layer*.safetensors files")
      ->capture_default_str();
  command.add_option("--html", options->html, "Where to write the report")->capture_default_str();
  command.add_flag("--json", options->json, "Machine-readable result");
  command.footer("Example:\n  checkvalve demo --data data --html checkvalve-report.html");
  command.callback([options, &selection] {
    selection.action = [options, line = selection.command_line] { return run(*options, line); };
  });
}

}  // namespace checkvalve::cli
