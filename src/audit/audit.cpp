// audit.cpp: the order of an audit: contract, probes, prefix, influence, negative control, verdict.
#include "audit/audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "api/validate.h"
#include "audit/examiner.h"
#include "audit/influence.h"
#include "audit/probe.h"
#include "audit/session.h"
#include "audit/tokens.h"
#include "checkvalve/error.h"

namespace checkvalve::audit_detail {
namespace {

void validate(const AttentionCallable& callable, const AttentionProblem& problem, const ConstTensorView& q,
              const ConstTensorView& k, const ConstTensorView& v, const AuditOptions& options) {
  if (!callable) {
    throw InvalidArgument("the callable is empty; pass a function that fills the outputs of an AuditRun");
  }
  validate_problem(problem, Recipe{}, Options{});
  if (problem.packed() || problem.seqused_q != nullptr || problem.seqused_kv != nullptr) {
    throw InvalidArgument(
        "the problem has packed or padded sequences; an audit needs a dense one: leave out cu_seqlens "
        "and seqused");
  }
  if (!problem.causal) {
    throw InvalidArgument("the problem is not causal: every token may see every other; set problem.causal to true");
  }
  if (problem.s_q != problem.s_kv) {
    throw InvalidArgument(
        fmt::format("s_q is {} and s_kv is {}; an audit needs as many queries as keys, so that row t is token t",
                    problem.s_q, problem.s_kv));
  }
  if (problem.s_q < 2 || problem.b < 1) {
    throw InvalidArgument(
        fmt::format("b is {} and s_q is {}; an audit needs at least 1 sequence of 2 tokens", problem.b, problem.s_q));
  }
  validate_tensor("q", q, problem, RowsOf::kQuery, problem.d_qk, problem.dtype, Device::kHost);
  validate_tensor("k", k, problem, RowsOf::kKeyValue, problem.d_qk, problem.dtype, Device::kHost);
  validate_tensor("v", v, problem, RowsOf::kKeyValue, problem.d_v, problem.dtype, Device::kHost);
  for (const std::int64_t cut : options.cuts) {
    if (cut < 0 || cut > problem.s_q - 2) {
      throw InvalidArgument(fmt::format("cut {} leaves no later token to perturb; accepted for {} tokens: 0 to {}", cut,
                                        problem.s_q, problem.s_q - 2));
    }
  }
  if (options.influence_bins < 0) {
    throw InvalidArgument(fmt::format("influence_bins is {}; accepted: 0 (no matrix) or more", options.influence_bins));
  }
}

std::vector<std::int64_t> cuts_of(const AuditOptions& options, std::int64_t s) {
  if (options.cuts.empty()) {
    return default_cuts(s);
  }
  std::vector<std::int64_t> cuts = options.cuts;
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  return cuts;
}

struct ControlResult {
  bool caught = false;
  std::string text;
};

// Runs the probes on the control until each property has found it.
ControlResult run_control(const NegativeControl& control, const std::vector<Probe>& plan, Session session) {
  Examiner examiner(session);
  std::array<bool, kProperties> probed{};
  std::array<bool, kProperties> caught{};
  try {
    for (const Probe& probe : plan) {
      const auto property = static_cast<std::size_t>(probe.property);
      probed[property] = true;
      caught[property] = caught[property] || examiner.examine(probe);
    }
  } catch (const Error& error) {
    return {.caught = false, .text = fmt::format("{} could not run: {}", control.name, error.what())};
  }
  std::string text = control.name;
  bool all = true;
  for (std::size_t property = 0; property < kProperties; ++property) {
    if (probed[property]) {
      all = all && caught[property];
      text += fmt::format("; {}: {}", name_of(static_cast<Property>(property)),
                          caught[property] ? "caught" : "not caught, so these inputs do not show this kind of leak");
    }
  }
  for (const Leak& leak : examiner.leaks()) {
    if (leak.property == name_of(Property::kCausal)) {
      text += fmt::format(" (first find: {})", leak.to_string());
      break;
    }
  }
  return {.caught = all, .text = text};
}

Verdict verdict_of(const AuditReport& report, bool probes_can_show_leaks) {
  if (!report.leaks.empty()) {
    return Verdict::kLeak;
  }
  return report.defects.empty() && probes_can_show_leaks ? Verdict::kClean : Verdict::kInconclusive;
}

// Counts planned runs.
class Progress {
 public:
  Progress(const std::function<void(double)>& report, std::int64_t total) : report_(report), total_(total) {}
  void step() {
    ++done_;
    if (report_) {
      report_(static_cast<double>(std::min(done_, total_)) / static_cast<double>(total_));
    }
  }

 private:
  const std::function<void(double)>& report_;
  std::int64_t total_;
  std::int64_t done_ = 0;
};

}  // namespace

AuditReport audit_with_control(const AttentionCallable& callable, const NegativeControl& control,
                               const AttentionProblem& problem, const ConstTensorView& q, const ConstTensorView& k,
                               const ConstTensorView& v, const AuditOptions& options) {
  validate(callable, problem, q, k, v, options);
  const std::int64_t s = problem.s_q;
  const auto cuts = cuts_of(options, s);
  const auto plan = plan_probes(cuts, s, options.gradients, options.non_finite);

  Session session(callable, problem, q, k, v, options);
  Examiner examiner(session);
  AuditReport report;
  Progress progress(options.progress, static_cast<std::int64_t>(plan.size()) +
                                          (options.prefix ? static_cast<std::int64_t>(cuts.size()) : 0) +
                                          influence_runs(s, options.influence_bins) + 2);

  // Contract: nothing can be concluded from bitwise comparisons unless it holds.
  report.defects = examiner.check_repeatable(false);
  if (options.gradients && report.defects.empty()) {
    report.defects = examiner.check_repeatable(true);
  }
  progress.step();
  if (!report.defects.empty()) {
    report.negative_control = "not run";
    report.runs = session.runs();
    report.comparisons = examiner.comparisons();
    return report;
  }

  // Probes.
  for (const Probe& probe : plan) {
    examiner.examine(probe);
    progress.step();
  }
  if (options.prefix) {
    for (const std::int64_t cut : cuts) {
      examiner.check_prefix(cut);
      progress.step();
    }
  }
  report.influence = influence_matrix(session, examiner, options.influence_bins, [&] { progress.step(); });

  // Negative control.
  const auto controlled = run_control(control, plan, Session(control.callable, problem, q, k, v, options));
  report.negative_control = controlled.text;
  progress.step();

  // A scale shared by a 32-token block shows only if the cut lies inside a block.
  const bool cuts_a_block =
      std::any_of(cuts.begin(), cuts.end(), [&](std::int64_t cut) { return cuts_own_block(cut, s); });
  if (!cuts_a_block) {
    report.negative_control += "; no cut lies inside a 32-token block, so scales shared by a block cannot show";
  }

  report.defects = session.writes_to_inputs();
  report.leaks = std::move(examiner.leaks());
  report.runs = session.runs();
  report.comparisons = examiner.comparisons();
  for (const Leak& leak : report.leaks) {
    report.largest_relative_change = std::max(report.largest_relative_change, leak.relative_change);
  }
  report.verdict = verdict_of(report, controlled.caught && cuts_a_block);
  return report;
}

}  // namespace checkvalve::audit_detail

namespace checkvalve {

AuditReport audit(const AttentionCallable& callable, const AttentionProblem& problem, const ConstTensorView& q,
                  const ConstTensorView& k, const ConstTensorView& v, const AuditOptions& options) {
  const audit_detail::NegativeControl control{
      .name = "fp8_tensor on backend reference",
      .callable = recipe_callable(recipe_from_name("fp8_tensor"), {.backend = "reference"})};
  return audit_detail::audit_with_control(callable, control, problem, q, k, v, options);
}

}  // namespace checkvalve
