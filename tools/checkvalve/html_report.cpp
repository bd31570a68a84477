// html_report.cpp: the audit report as one self-contained HTML page.
#include "html_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "checkvalve/version.h"
#include "output.h"
#include "svg.h"

namespace checkvalve::cli {
namespace {

enum class State { kHolds, kLeaks, kOpen };

State state_of(const RecipeAudit* audit) {
  if (audit == nullptr || audit->report.verdict == Verdict::kInconclusive) {
    return State::kOpen;
  }
  return audit->report.verdict == Verdict::kClean ? State::kHolds : State::kLeaks;
}

std::string badge(State state) {
  switch (state) {
    case State::kHolds:
      return "<span class=\"badge holds\">holds</span>";
    case State::kLeaks:
      return "<span class=\"badge leaks\">leaks</span>";
    case State::kOpen:
      break;
  }
  return "<span class=\"badge open\">not judged</span>";
}

// What a recipe is, for a reader who has not met it.
std::string describe(const Recipe& recipe) {
  if (recipe.v_scale == ScaleScope::kNone && recipe.qk_scale == ScaleScope::kNone) {
    return "no quantisation scales";
  }
  const std::string format = recipe.qk == Format::kInt8 ? "INT8 queries and keys" : "FP8";
  if (recipe.qk_scale == ScaleScope::kTensor) {
    return format + ", one scale for the whole tensor";
  }
  if (recipe.v_scale == ScaleScope::kColumn32) {
    return format + ", 32 tokens share a scale of V";
  }
  if (recipe.v_shared_scale == ScaleScope::kNone) {
    return format + ", one scale of V a token";
  }
  return format + ", tokens share a scale only when all are past";
}

// The audit whose map says most: the data set with the strongest influence of the future.
const RecipeAudit* most_telling(std::span<const DataAudit> sets, const std::string& recipe) {
  const RecipeAudit* best = nullptr;
  double best_future = -1.0;
  for (const DataAudit& set : sets) {
    for (const RecipeAudit& audit : set.audits) {
      if (audit.recipe.name != recipe || !audit.unsupported.empty()) {
        continue;
      }
      double future = 0.0;
      for (const double change : audit.report.influence.leaked) {
        future = std::isfinite(change) ? std::max(future, change) : HUGE_VAL;
      }
      if (future > best_future) {
        best_future = future;
        best = &audit;
      }
    }
  }
  return best;
}

std::string card(std::span<const DataAudit> sets, const Recipe& recipe) {
  const RecipeAudit* worst = worst_of(sets, recipe.name);
  const State state = state_of(worst);
  std::string html =
      fmt::format("<article class=\"card {}\"><h3>{} {}</h3><p class=\"what\">{}</p>",
                  state == State::kLeaks ? "bad" : "good", escaped(recipe.name), badge(state), describe(recipe));
  if (worst == nullptr) {
    return html + "<p class=\"finding\">This recipe could not run here.</p></article>";
  }
  html += influence_map(most_telling(sets, recipe.name)->report.influence,
                        fmt::format("Influence map of {}: output rows against changed tokens", recipe.name));
  switch (state) {
    case State::kHolds:
      html += "<p class=\"finding\">Not one bit of an earlier row changed.</p>";
      break;
    case State::kLeaks: {
      const double change = largest_change(worst->report);
      html += std::isfinite(change)
                  ? fmt::format("<p class=\"finding\">Later tokens changed an earlier row by up to <b>{}</b>.</p>",
                                percent(change))
                  : "<p class=\"finding\">Later tokens turned an earlier row into <b>NaN</b>.</p>";
      break;
    }
    case State::kOpen:
      html += fmt::format("<p class=\"finding\">{}</p>", escaped(why_inconclusive(worst->report)));
      break;
  }
  return html + "</article>";
}

std::string error_cell(const RecipeError& error, double scale) {
  if (!error.unsupported.empty()) {
    return "<td class=\"num\" colspan=\"2\">not run</td>";
  }
  const double width = std::isfinite(error.frobenius) && scale > 0.0 ? 100.0 * error.frobenius / scale : 100.0;
  return fmt::format(
      "<td class=\"num\"><span class=\"bar\"><i style=\"width:{:.1f}%\"></i></span>{}</td>"
      "<td class=\"num\" title=\"token {}, head {}\">{}</td>",
      width, percent(error.frobenius), error.worst_token, error.worst_head, percent(error.worst_row));
}

std::string errors(std::span<const DataAudit> sets) {
  double scale = 0.0;
  std::string head = "<tr><th rowspan=\"2\">recipe</th><th rowspan=\"2\">verdict</th>";
  std::string second = "<tr>";
  for (const DataAudit& set : sets) {
    head += fmt::format("<th colspan=\"2\" class=\"num\">{}</th>", escaped(set.name));
    second += "<th class=\"num\">whole output</th><th class=\"num\">worst row</th>";
    for (const RecipeError& error : set.errors) {
      scale = std::isfinite(error.frobenius) ? std::max(scale, error.frobenius) : scale;
    }
  }
  std::string html = fmt::format("<div class=\"scroll\"><table><thead>{}</tr>{}</tr></thead><tbody>", head, second);
  for (std::size_t i = 0; i < sets.front().errors.size(); ++i) {
    const std::string& name = sets.front().errors[i].recipe.name;
    html += fmt::format("<tr><th>{}</th><td>{}</td>", escaped(name), badge(state_of(worst_of(sets, name))));
    for (const DataAudit& set : sets) {
      html += error_cell(set.errors[i], scale);
    }
    html += "</tr>";
  }
  return html + "</tbody></table></div>";
}

// One leak of each leaking recipe, from the first data set that shows one, with a command that shows it again.
std::string first_leaks(std::span<const DataAudit> sets) {
  std::string html;
  std::set<std::string> shown;
  for (const DataAudit& set : sets) {
    for (const RecipeAudit& audit : set.audits) {
      if (audit.report.leaks.empty() || !shown.insert(audit.recipe.name).second) {
        continue;
      }
      const Leak& leak = first_leak(audit.report);
      html += fmt::format(
          "<div class=\"leak\"><h3>{}</h3><p>In <b>{}</b>, {}. Then <b>{}</b> of the earlier token <b>{}</b> (head {}, "
          "element {}) went from <b class=\"num\">{:.9g}</b> to <b class=\"num\">{:.9g}</b>.</p>"
          "<code>checkvalve audit {} --recipe {} --cuts {}{}</code></div>",
          escaped(audit.recipe.name), escaped(set.name), escaped(leak_cause(leak)), escaped(leak.tensor), leak.row,
          leak.head, leak.element, leak.before, leak.after, escaped(set.arguments), escaped(audit.recipe.name),
          leak.cut, set.gradients ? "" : " --no-gradients");
    }
  }
  return html.empty() ? html : "<section><h2>First leak of each leaking recipe</h2>" + html + "</section>";
}

std::string checked(std::span<const DataAudit> sets) {
  std::string html =
      "<div class=\"scroll\"><table><thead><tr><th>data</th><th>audited problem</th><th>outputs compared</th>"
      "<th class=\"num\">runs</th><th class=\"num\">values compared bit for bit</th></tr></thead><tbody>";
  for (const DataAudit& set : sets) {
    std::int64_t runs = 0;
    std::int64_t comparisons = 0;
    for (const RecipeAudit& audit : set.audits) {
      runs += audit.report.runs;
      comparisons += audit.report.comparisons;
    }
    html += fmt::format("<tr><th>{}</th><td>{}</td><td>{}</td><td class=\"num\">{}</td><td class=\"num\">{}</td></tr>",
                        escaped(set.name), escaped(set.problem.to_string()),
                        set.gradients ? "out, lse, dQ, dK, dV" : "out, lse", count(runs), count(comparisons));
  }
  html += "</tbody></table></div>";
  for (const DataAudit& set : sets) {
    if (!set.source.empty()) {
      html += fmt::format("<p class=\"note\"><b>{}</b>: {}</p>", escaped(set.name), escaped(set.source));
    }
  }
  for (const RecipeAudit& audit : sets.front().audits) {
    if (audit.unsupported.empty()) {
      return html + fmt::format("<p class=\"note\">Negative control: {}</p>", escaped(audit.report.negative_control));
    }
  }
  return html;
}

}  // namespace

std::string html_report(std::span<const DataAudit> sets, const std::string& command_line) {
  std::string cards;
  bool leaking = false;
  bool open = false;
  for (const RecipeAudit& audit : sets.front().audits) {
    cards += card(sets, audit.recipe);
    const State state = state_of(worst_of(sets, audit.recipe.name));
    leaking = leaking || state == State::kLeaks;
    open = open || state == State::kOpen;
  }
  const std::string verdict = verdict_sentence(sets);
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>Checkvalve leak audit</title>"
      "<style>{}</style></head><body><main>\n",
      kReportStyle);
  html += fmt::format(
      "<header class=\"{}\"><p class=\"kicker\">Checkvalve leak audit</p><h1>{}</h1>"
      "<p class=\"lead\">In causal attention a token may depend on the tokens before it and on nothing after it. "
      "We changed <em>later</em> tokens and compared every <em>earlier</em> row of the result bit for "
      "bit.</p></header>\n",
      leaking ? "leaks"
      : open  ? "open"
              : "holds",
      escaped(verdict));
  html += fmt::format("<section class=\"grid\">{}</section>\n", cards);
  html += fmt::format(
      "<section class=\"reading\">{}<div><h2>How to read the maps</h2>"
      "<p>Each square is one experiment: change the token of its column, look at the output row of its row.</p>"
      "<p>The triangle below the diagonal is the past. It lights up because attention looks back.</p>"
      "<p>The triangle above the diagonal is the future. It must be dark. Red there means that the output of a token "
      "gives away tokens that come after it: a model trained with such a recipe can learn to read the answer.</p>"
      "</div></section>\n",
      annotated_map());
  html +=
      "<section><h2>Accuracy: relative error against float64 attention</h2>" + errors(sets) +
      "<p class=\"note\">Whole output: |out &minus; exact| / |exact| over all rows. Worst row: the same for the row "
      "where it is largest.</p></section>\n";
  html += first_leaks(sets);
  html += "<section><h2>What was checked</h2>" + checked(sets) + "</section>\n";
  html += fmt::format("<section><h2>Reproduce</h2><pre>{}</pre><p class=\"note\">checkvalve {}</p></section>\n",
                      escaped(command_line), CHECKVALVE_VERSION);
  return html + "</main></body></html>\n";
}

}  // namespace checkvalve::cli
