// examiner.h: runs probes on one callable, compares with the unperturbed run, and keeps what it finds.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "audit/probe.h"
#include "audit/session.h"
#include "checkvalve/audit.h"

namespace checkvalve::audit_detail {

class Examiner {
 public:
  explicit Examiner(Session& session) : session_(session) {}

  // Runs twice on the unperturbed inputs, with outputs poisoned differently, and reports outputs that are not written
  // or that differ, and inputs that are written to. Empty: the callable can be compared bit for bit.
  [[nodiscard]] std::vector<Leak> check_repeatable(bool gradients);

  // True if the probe changed a row that must not change. What several operands or regions change together is run again
  // one by one, unless a find of this perturbation in the nearest region has been kept before.
  bool examine(const Probe& probe);

  // The first cut + 1 tokens alone against the whole call.
  void check_prefix(std::int64_t cut);

  // The unperturbed run without gradients.
  [[nodiscard]] const Result& base_forward();

  // Compares the checked rows of a run of `probe` that was made elsewhere; the same attribution as in examine.
  bool inspect(const Probe& probe, const Result& base, const Result& result);

  [[nodiscard]] std::vector<Leak>& leaks() { return leaks_; }
  [[nodiscard]] std::int64_t comparisons() const { return comparisons_; }

 private:
  [[nodiscard]] std::vector<Leak> differences(const Probe& probe, const Result& base, const Result& result);
  [[nodiscard]] bool known(const Leak& leak) const;
  void keep(const Leak& leak);
  // With gradients; d_out is zero from row d_out_end on.
  [[nodiscard]] const Result& base_gradient(std::int64_t d_out_end);
  [[nodiscard]] const Result& base_of(const Probe& probe);

  Session& session_;
  std::vector<Leak> leaks_;
  std::int64_t comparisons_ = 0;
  std::optional<Result> base_forward_;
  std::optional<Result> base_gradient_;  // of d_out_end_
  std::int64_t d_out_end_ = 0;
};

// The run that a probe asks for.
[[nodiscard]] RunRequest request_of(const Probe& probe, const AttentionProblem& problem);

}  // namespace checkvalve::audit_detail
