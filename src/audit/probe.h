// probe.h: which tokens are perturbed for which property, and the plan of all probes of an audit.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "audit/session.h"
#include "audit/tokens.h"
#include "checkvalve/audit.h"

namespace checkvalve::audit_detail {

enum class Property : std::uint8_t { kCausal, kGradient, kKeyGradient };
inline constexpr std::size_t kProperties = 3;
[[nodiscard]] std::string_view name_of(Property property);

// One run: perturb `operands` in `tokens`, all on one side of `cut`, and compare the rows that must not depend on them.
struct Probe {
  Property property = Property::kCausal;
  std::int64_t cut = 0;
  std::vector<Operand> operands;
  TokenRange tokens;
  Perturbation perturbation = Perturbation::kHuge12;

  [[nodiscard]] Region nearest_region() const;
  // One operand in one region: the leak that it finds needs no further attribution.
  [[nodiscard]] bool is_single() const;
  // The probes of each operand in each region alone.
  [[nodiscard]] std::vector<Probe> singles() const;
  // "v", or "q,k,v"
  [[nodiscard]] std::string operand_names() const;
};

// The probes for `cuts` of s tokens, in the order in which they run. First each operand in each region alone with each
// perturbation for the causal property at the detailed cuts, so that later finds are attributed already; then all
// operands and regions at once at the other cuts. The gradient properties, whose runs cost several times as much,
// perturb all operands at once: region by region at one detailed cut and all regions at once at up to two others.
[[nodiscard]] std::vector<Probe> plan_probes(const std::vector<std::int64_t>& cuts, std::int64_t s, bool gradients,
                                             bool non_finite);

}  // namespace checkvalve::audit_detail
