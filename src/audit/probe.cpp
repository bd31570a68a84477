// probe.cpp: the plan of all probes of an audit.
#include "audit/probe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "audit/perturb.h"

namespace checkvalve::audit_detail {
namespace {

std::vector<Operand> operands_of(Property property) {
  if (property == Property::kKeyGradient) {
    return {Operand::kQ, Operand::kDOut};
  }
  return {Operand::kQ, Operand::kK, Operand::kV};
}

// The tokens on which the checked rows must not depend.
TokenRange foreign_tokens(Property property, std::int64_t cut, std::int64_t s) {
  return property == Property::kKeyGradient ? TokenRange{.first = 0, .last = cut - 1}
                                            : TokenRange{.first = cut + 1, .last = s - 1};
}

}  // namespace

std::string_view name_of(Property property) {
  constexpr std::array<std::string_view, kProperties> kNames{"causal", "gradient", "key_gradient"};
  return kNames[static_cast<std::size_t>(property)];
}

Region Probe::nearest_region() const { return region_of(cut, tokens.first > cut ? tokens.first : tokens.last); }

bool Probe::is_single() const {
  return operands.size() == 1 && region_of(cut, tokens.first) == region_of(cut, tokens.last);
}

std::vector<Probe> Probe::singles() const {
  std::vector<Probe> probes;
  for (const TokenRange range : split_by_region(cut, tokens)) {
    for (const Operand operand : operands) {
      Probe& probe = probes.emplace_back(*this);
      probe.operands = {operand};
      probe.tokens = range;
    }
  }
  return probes;
}

std::string Probe::operand_names() const {
  std::vector<std::string_view> names;
  std::transform(operands.begin(), operands.end(), std::back_inserter(names),
                 [](Operand operand) { return name_of(operand); });
  return fmt::format("{}", fmt::join(names, ","));
}

std::vector<Probe> plan_probes(const std::vector<std::int64_t>& cuts, std::int64_t s, bool gradients, bool non_finite) {
  std::vector<Probe> plan;
  const auto kinds = perturbations(non_finite);
  const auto all_at_once = [&](Property property, std::int64_t cut, Perturbation kind) {
    return Probe{.property = property,
                 .cut = cut,
                 .operands = operands_of(property),
                 .tokens = foreign_tokens(property, cut, s),
                 .perturbation = kind};
  };
  const auto detailed = detailed_cuts(cuts, s);

  for (const std::int64_t cut : detailed) {
    for (const Perturbation kind : kinds) {
      const auto singles = all_at_once(Property::kCausal, cut, kind).singles();
      plan.insert(plan.end(), singles.begin(), singles.end());
    }
  }
  for (const std::int64_t cut : cuts) {
    if (std::find(detailed.begin(), detailed.end(), cut) == detailed.end()) {
      for (const Perturbation kind : kinds) {
        plan.push_back(all_at_once(Property::kCausal, cut, kind));
      }
    }
  }
  if (!gradients) {
    return plan;
  }

  std::vector<std::int64_t> others{detailed.front(), cuts.back()};
  std::erase(others, detailed.back());
  others.erase(std::unique(others.begin(), others.end()), others.end());
  for (const Property property : {Property::kGradient, Property::kKeyGradient}) {
    for (const Perturbation kind : kinds) {
      Probe probe = all_at_once(property, detailed.back(), kind);
      for (const TokenRange range : split_by_region(probe.cut, probe.tokens)) {
        probe.tokens = range;
        plan.push_back(probe);
      }
    }
    for (const std::int64_t cut : others) {
      for (const Perturbation kind : kinds) {
        if (const Probe probe = all_at_once(property, cut, kind); !probe.tokens.empty()) {
          plan.push_back(probe);
        }
      }
    }
  }
  return plan;
}

}  // namespace checkvalve::audit_detail
