// command.h: what a subcommand is: it registers its options and, when chosen, leaves an action to run.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

namespace checkvalve::cli {

enum ExitCode : int { kHolds = 0, kLeakFound = 1, kBadInput = 2, kNotSupported = 3 };

// The command line is parsed completely before anything runs, so that a wrong last argument costs nothing.
struct Selection {
  std::string command_line;       // as typed, quoted for a shell; reports print it
  std::function<int()> action{};  // returns an ExitCode; empty until a subcommand is chosen
};

void add_attend(CLI::App& app, Selection& selection);
void add_audit(CLI::App& app, Selection& selection);
void add_inspect(CLI::App& app, Selection& selection);
void add_backends(CLI::App& app, Selection& selection);
void add_demo(CLI::App& app, Selection& selection);

}  // namespace checkvalve::cli
