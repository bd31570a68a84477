// main.cpp: the command line: parse, run the chosen subcommand, turn every failure into one line and an exit code.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "arguments.h"
#include "checkvalve/error.h"
#include "checkvalve/version.h"
#include "command.h"
#include "output.h"

namespace {

using checkvalve::cli::ExitCode;

int fail(int code, std::string message) {
  std::replace(message.begin(), message.end(), '\n', ' ');
  std::fputs(fmt::format("checkvalve: error: {}\n", message).c_str(), stderr);
  return code;
}

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    names.push_back(option->get_positional() ? option->get_name(true) : option->get_name());
  }
  return names;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

std::string accepted_commands(const CLI::App& app) {
  return fmt::format("accepted: {}; see 'checkvalve --help'", fmt::join(command_names(app), ", "));
}

// CLI11 says what is wrong; we add what would be right.
std::string explained(const CLI::ParseError& error, const CLI::App& app) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  if (chosen.empty()) {
    return fmt::format("{}; {}", error.what(), accepted_commands(app));
  }
  return fmt::format("{}; accepted by {}: {}; see 'checkvalve {} --help'", error.what(), chosen.front()->get_name(),
                     fmt::join(option_names(*chosen.front()), ", "), chosen.front()->get_name());
}

int run(int argc, char** argv) {
  namespace cli = checkvalve::cli;
  CLI::App app("Causal attention in FP8, MXFP8 and INT8 in which no token can see a later one.", "checkvalve");
  cli::Selection selection{.command_line = cli::command_line_of(argc, argv)};
  app.set_version_flag("--version", "checkvalve " CHECKVALVE_VERSION);
  app.require_subcommand(1);
  cli::add_demo(app, selection);
  cli::add_attend(app, selection);
  cli::add_audit(app, selection);
  cli::add_inspect(app, selection);
  cli::add_backends(app, selection);
  app.footer(
      "Exit codes: 0 holds, 1 leak found, 2 bad input, 3 unsupported.\n"
      "Example:\n"
      "  checkvalve demo && checkvalve audit layer00.safetensors --recipe all --html report.html");
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]).empty()) {
      return fail(ExitCode::kBadInput, fmt::format("argument {} is empty; leave it out or give it a value", i));
    }
  }
  const std::vector<std::string> commands = command_names(app);
  if (argc > 1 && argv[1][0] != '-' && std::find(commands.begin(), commands.end(), argv[1]) == commands.end()) {
    return fail(ExitCode::kBadInput, fmt::format("command '{}' is not known; {}", argv[1], accepted_commands(app)));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& request) {  // --help, --version
    cli::print(request.get_name() == "CallForVersion" ? std::string(request.what()) + '\n' : app.help());
    return ExitCode::kHolds;
  } catch (const CLI::ParseError& error) {
    return fail(ExitCode::kBadInput, explained(error, app));
  }
  return selection.action();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const checkvalve::Unsupported& error) {
    return fail(ExitCode::kNotSupported, error.what());
  } catch (const std::bad_alloc&) {
    return fail(ExitCode::kBadInput, "there is not enough memory for this call; use fewer tokens or heads");
  } catch (const std::exception& error) {
    return fail(ExitCode::kBadInput, error.what());
  }
}
