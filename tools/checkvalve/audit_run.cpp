// audit_run.cpp: run audits, judge them, say it in words, tables and JSON.
#include "audit_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <tuple>

#include "arguments.h"
#include "checkvalve/error.h"
#include "command.h"
#include "output.h"

namespace checkvalve::cli {
namespace {

int badness(const RecipeAudit& audit) {
  switch (audit.report.verdict) {
    case Verdict::kClean:
      return 0;
    case Verdict::kInconclusive:
      return 1;
    case Verdict::kLeak:
      return 2;
  }
  return 2;
}

std::string verdict_word(const RecipeAudit& audit) {
  if (!audit.unsupported.empty()) {
    return "not run";
  }
  switch (audit.report.verdict) {
    case Verdict::kClean:
      return "holds";
    case Verdict::kInconclusive:
      return "inconclusive";
    case Verdict::kLeak:
      return "LEAKS";
  }
  return {};
}

nlohmann::ordered_json json_numbers(const std::vector<double>& values) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const double x : values) {
    json.push_back(json_number(x));
  }
  return json;
}

std::string_view done_by(Perturbation perturbation) {
  switch (perturbation) {
    case Perturbation::kHuge12:
      return "multiplied by 2^12";
    case Perturbation::kHuge20:
      return "multiplied by 2^20";
    case Perturbation::kTiny:
      return "divided by 2^20";
    case Perturbation::kSign:
      return "negated";
    case Perturbation::kNaN:
      return "set to NaN";
    case Perturbation::kInf:
      return "set to infinity";
  }
  return "changed";
}

nlohmann::ordered_json to_json(const Leak& leak) {
  return {{"property", leak.property},
          {"tensor", leak.tensor},
          {"operand", leak.operand},
          {"perturbation", leak.operand == "length" ? "length" : name_of(leak.perturbation)},
          {"region", name_of(leak.region)},
          {"cut", leak.cut},
          {"first_token", leak.first_token},
          {"last_token", leak.last_token},
          {"batch", leak.batch},
          {"row", leak.row},
          {"head", leak.head},
          {"element", leak.element},
          {"before", json_number(leak.before)},
          {"after", json_number(leak.after)},
          {"relative_change", json_number(leak.relative_change)}};
}

nlohmann::ordered_json to_json(const RecipeAudit& audit) {
  nlohmann::ordered_json json = {{"recipe", audit.recipe.name}, {"leaks_by_design", audit.recipe.leaks()}};
  if (!audit.unsupported.empty()) {
    json["verdict"] = "unsupported";
    json["reason"] = audit.unsupported;
    return json;
  }
  const AuditReport& report = audit.report;
  json["verdict"] = name_of(report.verdict);
  json["as_promised"] = audit.as_promised();
  json["runs"] = report.runs;
  json["comparisons"] = report.comparisons;
  json["largest_relative_change"] = json_number(report.largest_relative_change);
  json["negative_control"] = report.negative_control;
  json["seconds"] = audit.seconds;
  json["defects"] = nlohmann::ordered_json::array();
  for (const Leak& defect : report.defects) {
    json["defects"].push_back(defect.to_string());
  }
  json["leaks"] = nlohmann::ordered_json::array();
  for (const Leak& leak : report.leaks) {
    json["leaks"].push_back(to_json(leak));
  }
  json["influence"] = {{"bins", report.influence.bins},
                       {"tokens_per_bin", report.influence.tokens_per_bin},
                       {"changed", json_numbers(report.influence.changed)},
                       {"leaked", json_numbers(report.influence.leaked)}};
  return json;
}

}  // namespace

bool RecipeAudit::as_promised() const {
  return unsupported.empty() && report.verdict == (recipe.leaks() ? Verdict::kLeak : Verdict::kClean);
}

DataAudit run_audits(const Qkv& audit_data, const Qkv& error_data, std::span<const Recipe> recipes,
                     const Options& options, const AuditOptions& audit_options) {
  Progress progress;
  DataAudit set{.name = audit_data.name,
                .source = audit_data.source,
                .arguments = audit_data.arguments,
                .problem = audit_data.problem(),
                .gradients = audit_options.gradients};
  for (const Recipe& recipe : recipes) {
    RecipeAudit audit{.recipe = recipe};
    AuditOptions with_progress = audit_options;
    with_progress.progress = [&](double share) {
      progress.update(
          fmt::format("{}: auditing {} ({} of {})", set.name, recipe.name, set.audits.size() + 1, recipes.size()),
          share);
    };
    const auto start = std::chrono::steady_clock::now();
    try {
      audit.report = checkvalve::audit(recipe_callable(recipe, options), set.problem, audit_data.q, audit_data.k,
                                       audit_data.v, with_progress);
    } catch (const Unsupported& e) {
      audit.unsupported = e.what();
    }
    audit.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    set.audits.push_back(std::move(audit));
  }
  set.errors = measure_errors(error_data, recipes, options, [&](double share) {
    progress.update(fmt::format("{}: measuring errors", set.name), share);
  });
  return set;
}

const RecipeAudit* worst_of(std::span<const DataAudit> sets, const std::string& recipe) {
  const RecipeAudit* worst = nullptr;
  for (const DataAudit& set : sets) {
    for (const RecipeAudit& audit : set.audits) {
      if (audit.recipe.name == recipe && audit.unsupported.empty() &&
          (worst == nullptr || badness(audit) > badness(*worst))) {
        worst = &audit;
      }
    }
  }
  return worst;
}

int exit_code(std::span<const DataAudit> sets, bool controls) {
  bool ran = false, left_out = false, broken = false;
  for (const DataAudit& set : sets) {
    for (const RecipeAudit& audit : set.audits) {
      if (!audit.unsupported.empty()) {
        left_out = true;
        continue;
      }
      ran = true;
      broken = broken || (controls ? !audit.as_promised() : audit.report.verdict != Verdict::kClean);
    }
  }
  if (!ran) {
    throw Unsupported(sets.front().audits.front().unsupported);
  }
  return broken ? kLeakFound : left_out && !controls ? kNotSupported : kHolds;
}

std::string verdict_sentence(std::span<const DataAudit> sets) {
  std::vector<std::string> clean, leaking, unjudged;
  for (const RecipeAudit& first : sets.front().audits) {
    const std::string& name = first.recipe.name;
    const RecipeAudit* worst = worst_of(sets, name);
    const Verdict verdict = worst == nullptr ? Verdict::kInconclusive : worst->report.verdict;
    (verdict == Verdict::kClean ? clean : verdict == Verdict::kLeak ? leaking : unjudged).push_back(name);
  }
  const bool single = sets.front().audits.size() == 1;
  std::string sentence;
  if (!clean.empty()) {
    sentence += single ? fmt::format("{} lets no token see the future.", clean.front())
                       : fmt::format("{} {} no token see the future.",
                                     counted(static_cast<std::int64_t>(clean.size()), "recipe"),
                                     clean.size() == 1 ? "lets" : "let");
  }
  if (!leaking.empty()) {
    sentence += single ? fmt::format("{} leaks: rows change when only later tokens do.", leaking.front())
                       : fmt::format("{}{} {}: {}.", clean.empty() ? "" : " ", leaking.size(),
                                     leaking.size() == 1 ? "leaks" : "leak", joined(leaking));
  }
  if (!unjudged.empty()) {
    sentence += fmt::format("{}{} could not be judged.", sentence.empty() ? "" : " ", joined(unjudged));
  }
  return sentence;
}

const Leak& first_leak(const AuditReport& report) {
  const auto rank = [](const Leak& leak) {
    return std::tuple(leak.tensor != "out", !std::isfinite(leak.before) || !std::isfinite(leak.after), leak.row);
  };
  return *std::min_element(report.leaks.begin(), report.leaks.end(),
                           [&](const Leak& a, const Leak& b) { return rank(a) < rank(b); });
}

double largest_change(const AuditReport& report) {
  double largest = 0.0;
  for (const Leak& leak : report.leaks) {
    largest = std::isfinite(leak.relative_change) ? std::max(largest, leak.relative_change) : largest;
  }
  return largest > 0.0 ? largest : report.largest_relative_change;
}

std::string why_inconclusive(const AuditReport& report) {
  return report.defects.empty() ? report.negative_control : report.defects.front().to_string();
}

std::string leak_cause(const Leak& leak) {
  return leak.operand == "length" ? fmt::format("the sequence was cut after token {}", leak.cut)
                                  : fmt::format("{} of tokens {} to {} was {}", leak.operand, leak.first_token,
                                                leak.last_token, done_by(leak.perturbation));
}

std::string leak_sentence(const Leak& leak) {
  return fmt::format("{}: {} of token {}, head {}, element {} went from {:.9g} to {:.9g}", leak_cause(leak),
                     leak.tensor, leak.row, leak.head, leak.element, leak.before, leak.after);
}

std::string verdict_table(std::span<const DataAudit> sets) {
  std::string text;
  for (const DataAudit& set : sets) {
    Table table({"recipe", "verdict", "runs", "values compared", "largest change"}, {0, 1});
    std::string remarks;
    for (const RecipeAudit& audit : set.audits) {
      const AuditReport& report = audit.report;
      table.add({audit.recipe.name, verdict_word(audit), count(report.runs), count(report.comparisons),
                 report.leaks.empty() ? "none" : percent(largest_change(report))});
      const std::string remark = !audit.unsupported.empty()                 ? audit.unsupported
                                 : !report.leaks.empty()                    ? leak_sentence(first_leak(report))
                                 : report.verdict == Verdict::kInconclusive ? why_inconclusive(report)
                                                                            : "";
      remarks += remark.empty() ? "" : fmt::format("{}: {}\n", audit.recipe.name, remark);
    }
    text += fmt::format("{}{}: {}, {}\n{}{}", text.empty() ? "" : "\n", set.name, set.problem.to_string(),
                        set.gradients ? "forward and gradients" : "forward", table.to_string(), remarks);
  }
  return text;
}

std::string error_table(std::span<const DataAudit> sets) {
  std::vector<std::string> header{"relative error of out"};
  for (const DataAudit& set : sets) {
    header.push_back(set.name);
    header.emplace_back("worst row");
  }
  Table table(header);
  for (std::size_t i = 0; i < sets.front().errors.size(); ++i) {
    std::vector<std::string> row{sets.front().errors[i].recipe.name};
    for (const DataAudit& set : sets) {
      const RecipeError& error = set.errors[i];
      row.push_back(error.unsupported.empty() ? percent(error.frobenius) : "not run");
      row.push_back(error.unsupported.empty() ? percent(error.worst_row) : "not run");
    }
    table.add(std::move(row));
  }
  return table.to_string();
}

nlohmann::ordered_json to_json(const RecipeError& error) {
  if (!error.unsupported.empty()) {
    return {{"recipe", error.recipe.name}, {"unsupported", error.unsupported}};
  }
  return {{"recipe", error.recipe.name},
          {"frobenius", json_number(error.frobenius)},
          {"worst_row", json_number(error.worst_row)},
          {"worst_at", {{"batch", error.worst_b}, {"token", error.worst_token}, {"head", error.worst_head}}},
          {"rows", error.rows},
          {"rows_left_out", error.rows_left_out}};
}

nlohmann::ordered_json to_json(std::span<const DataAudit> sets) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const DataAudit& set : sets) {
    nlohmann::ordered_json entry = {{"name", set.name},
                                    {"source", set.source},
                                    {"problem", set.problem.to_string()},
                                    {"gradients", set.gradients},
                                    {"results", nlohmann::ordered_json::array()},
                                    {"errors", nlohmann::ordered_json::array()}};
    for (const RecipeAudit& audit : set.audits) {
      entry["results"].push_back(to_json(audit));
    }
    for (const RecipeError& error : set.errors) {
      entry["errors"].push_back(to_json(error));
    }
    json.push_back(std::move(entry));
  }
  return json;
}

}  // namespace checkvalve::cli
