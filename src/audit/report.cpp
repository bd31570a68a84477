// report.cpp: names of the enumerators, and the report in words.
#include <fmt/format.h>

#include <set>
#include <string>
#include <string_view>
#include <tuple>

#include "audit/tokens.h"
#include "checkvalve/audit.h"
#include "checkvalve/error.h"

namespace checkvalve {
namespace {

std::string_view done_to_tokens(Perturbation p) {
  switch (p) {
    case Perturbation::kHuge12:
      return "multiplied by 2^12";
    case Perturbation::kHuge20:
      return "multiplied by 2^20";
    case Perturbation::kTiny:
      return "multiplied by 2^-20";
    case Perturbation::kSign:
      return "negated";
    case Perturbation::kNaN:
      return "set to NaN";
    case Perturbation::kInf:
      return "set to infinity";
  }
  throw InvalidArgument("unknown perturbation");
}

// Where the perturbed tokens stand; empty if they reach over several regions.
std::string place_of(const Leak& leak) {
  if (audit_detail::region_of(leak.cut, leak.first_token) != audit_detail::region_of(leak.cut, leak.last_token)) {
    return "";
  }
  switch (leak.region) {
    case Region::kOwnBlock:
      return fmt::format(" in the 32-token block of token {}", leak.cut);
    case Region::kOwnSpan:
      return fmt::format(" in the 128-token span of token {} but not in its block", leak.cut);
    case Region::kBeyond:
      return fmt::format(" outside the 128-token span of token {}", leak.cut);
  }
  throw InvalidArgument("unknown region");
}

std::string tokens_text(std::int64_t first, std::int64_t last) {
  return first == last ? fmt::format("token {}", first) : fmt::format("tokens {}..{}", first, last);
}

}  // namespace

std::string name_of(Perturbation p) {
  switch (p) {
    case Perturbation::kHuge12:
      return "huge12";
    case Perturbation::kHuge20:
      return "huge20";
    case Perturbation::kTiny:
      return "tiny";
    case Perturbation::kSign:
      return "sign";
    case Perturbation::kNaN:
      return "nan";
    case Perturbation::kInf:
      return "inf";
  }
  throw InvalidArgument("unknown perturbation");
}

std::string name_of(Region r) {
  switch (r) {
    case Region::kOwnBlock:
      return "own_block";
    case Region::kOwnSpan:
      return "own_span";
    case Region::kBeyond:
      return "beyond";
  }
  throw InvalidArgument("unknown region");
}

std::string name_of(Verdict v) {
  switch (v) {
    case Verdict::kClean:
      return "clean";
    case Verdict::kLeak:
      return "leak";
    case Verdict::kInconclusive:
      return "inconclusive";
  }
  throw InvalidArgument("unknown verdict");
}

std::string Leak::to_string() const {
  const std::string where =
      fmt::format("{} at batch {}, row {}, head {}, element {}", tensor, batch, row, head, element);
  if (property == "inputs") {
    return fmt::format("{}: the callable changed {} from {:.9g} to {:.9g}; inputs must not be written to", property,
                       where, before, after);
  }
  if (property == "written") {
    return fmt::format("{}: {} is not written; every element of an output must be", property, where);
  }
  if (property == "deterministic") {
    return fmt::format("{}: {} is {:.9g} in one run and {:.9g} in the next on the same inputs", property, where, before,
                       after);
  }
  const std::string change =
      fmt::format("{} changed from {:.9g} to {:.9g} (largest change of a row: {:.3g} of its norm)", where, before,
                  after, relative_change);
  if (property == "prefix") {
    return fmt::format("{}: {} when {} follow", property, change, tokens_text(first_token, last_token));
  }
  return fmt::format("{}: {} when {} of {}{} was {}", property, change, operand, tokens_text(first_token, last_token),
                     place_of(*this), done_to_tokens(perturbation));
}

std::string AuditReport::to_string() const {
  std::string text = fmt::format("{}: {} runs, {} elements compared bit for bit, {} kinds of leak", name_of(verdict),
                                 runs, comparisons, leaks.size());
  if (!leaks.empty()) {
    text += fmt::format(", largest change of a row {:.3g} of its norm", largest_relative_change);
  }
  for (const Leak& defect : defects) {
    text += "\n  defect, " + defect.to_string();
  }
  // One line for each way from an operand to a tensor.
  std::set<std::tuple<std::string, std::string, std::string>> printed;
  for (const Leak& leak : leaks) {
    if (printed.emplace(leak.property, leak.tensor, leak.operand).second) {
      text += "\n  " + leak.to_string();
    }
  }
  if (printed.size() < leaks.size()) {
    text += fmt::format("\n  {} more of the same by other perturbations or in other regions",
                        leaks.size() - printed.size());
  }
  return text + "\n  negative control: " + negative_control;
}

}  // namespace checkvalve
