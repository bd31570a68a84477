// backend.h: which backends exist, which one would serve a call, and why the others would not.
#pragma once

#include <string>
#include <vector>

#include "checkvalve/attention.h"
#include "checkvalve/problem.h"
#include "checkvalve/recipe.h"

namespace checkvalve {

struct BackendVerdict {
  std::string name;                  // "reference", "cpu", "cuda", ...
  std::string description;           // one sentence
  std::vector<std::string> reasons;  // why it cannot serve the call; empty: it can
};

// Every backend in priority order with its verdict on the call.
[[nodiscard]] std::vector<BackendVerdict> explain(const AttentionProblem& problem, const Recipe& recipe,
                                                  const Options& options = {}, Device device = Device::kHost);

// Names and descriptions in priority order; reasons are empty.
[[nodiscard]] std::vector<BackendVerdict> list_backends();

}  // namespace checkvalve
