// audit_run.h: audits of several recipes on several data sets, and what they mean in plain words.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "checkvalve/audit.h"
#include "error_table.h"

namespace checkvalve::cli {

struct RecipeAudit {
  Recipe recipe;
  std::string unsupported{};  // why it could not run; empty: it ran
  AuditReport report{};
  double seconds = 0.0;

  // It ran, and a safe recipe is clean, a leaky one is caught.
  [[nodiscard]] bool as_promised() const;
};

// All that was found out about one data set.
struct DataAudit {
  std::string name, source, arguments;
  AttentionProblem problem;
  bool gradients = false;
  std::vector<RecipeAudit> audits{};
  std::vector<RecipeError> errors{};  // of the same recipes, in the same order
};

// Audits each recipe on `data` and measures its error. `audit_data` may be a shorter cut of the same data: an audit
// costs hundreds of runs, an error table one a recipe. Shows progress.
[[nodiscard]] DataAudit run_audits(const Qkv& audit_data, const Qkv& error_data, std::span<const Recipe> recipes,
                                   const Options& options, const AuditOptions& audit_options);

// The worst verdict of a recipe over all data sets; null where it ran nowhere. Leak is worse than inconclusive.
[[nodiscard]] const RecipeAudit* worst_of(std::span<const DataAudit> sets, const std::string& recipe);

// kLeakFound if a recipe leaks or could not be judged; with `controls` (every recipe was asked for) if one does not do
// what it promises. Else kNotSupported if a recipe that was asked for by name could not run. Else kHolds.
// Throws Unsupported if nothing ran.
[[nodiscard]] int exit_code(std::span<const DataAudit> sets, bool controls);

// "6 recipes let no token see the future. 2 leak: fp8_tensor and mxfp8."
[[nodiscard]] std::string verdict_sentence(std::span<const DataAudit> sets);

// The leak to show: of `out` rather than another tensor, with finite values if there is one, the earliest row.
[[nodiscard]] const Leak& first_leak(const AuditReport& report);

// The largest relative change of a row that stayed finite; infinite if the only changes were to NaN or infinity.
[[nodiscard]] double largest_change(const AuditReport& report);

[[nodiscard]] std::string why_inconclusive(const AuditReport& report);

// "v of tokens 41 to 63 was changed (multiplied by 2^12)"
[[nodiscard]] std::string leak_cause(const Leak& leak);

// The same, and what it did: which row, head and element, and both values.
[[nodiscard]] std::string leak_sentence(const Leak& leak);

[[nodiscard]] std::string verdict_table(std::span<const DataAudit> sets);
[[nodiscard]] std::string error_table(std::span<const DataAudit> sets);

[[nodiscard]] nlohmann::ordered_json to_json(std::span<const DataAudit> sets);
[[nodiscard]] nlohmann::ordered_json to_json(const RecipeError& error);

}  // namespace checkvalve::cli
