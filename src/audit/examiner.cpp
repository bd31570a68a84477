// examiner.cpp: runs probes and compares with the unperturbed run.
#include "audit/examiner.h"

#include <algorithm>
#include <utility>

#include "audit/compare.h"

namespace checkvalve::audit_detail {
namespace {

constexpr unsigned char kPoison = 0xFF;       // NaN in every dtype
constexpr unsigned char kOtherPoison = 0x3C;  // a small finite number in every dtype

std::vector<Output> checked_outputs(Property property) {
  switch (property) {
    case Property::kCausal:
      return {Output::kOut, Output::kLse};
    case Property::kGradient:
      return {Output::kDq, Output::kDk, Output::kDv};
    case Property::kKeyGradient:
      return {Output::kDk, Output::kDv};
  }
  return {};
}

std::int64_t d_out_end_of(const Probe& probe, std::int64_t s) {
  return probe.property == Property::kGradient ? probe.cut + 1 : s;
}

std::int64_t elements(const ConstTensorView& rows, TokenRange range) {
  return rows.shape[0] * range.size() * rows.shape[2] * rows.shape[3];
}

Leak leak_of(const Difference& difference) {
  Leak leak;
  leak.batch = difference.batch;
  leak.row = difference.row;
  leak.head = difference.head;
  leak.element = difference.element;
  leak.before = difference.before;
  leak.after = difference.after;
  leak.relative_change = difference.relative_change;
  return leak;
}

bool holds_poison(const ConstTensorView& rows, const Leak& at, unsigned char poison) {
  const std::int64_t element =
      at.batch * rows.strides[0] + at.row * rows.strides[1] + at.head * rows.strides[2] + at.element * rows.strides[3];
  const std::size_t size = size_of(rows.dtype);
  const auto* bytes = static_cast<const unsigned char*>(rows.data) + static_cast<std::size_t>(element) * size;
  return std::all_of(bytes, bytes + size, [&](unsigned char byte) { return byte == poison; });
}

}  // namespace

RunRequest request_of(const Probe& probe, const AttentionProblem& problem) {
  RunRequest request{.tokens = problem.s_q,
                     .gradients = probe.property != Property::kCausal,
                     .d_out_end = d_out_end_of(probe, problem.s_q),
                     .edits = {}};
  for (const Operand operand : probe.operands) {
    request.edits.push_back({.operand = operand, .tokens = probe.tokens, .perturbation = probe.perturbation});
  }
  return request;
}

std::vector<Leak> Examiner::check_repeatable(bool gradients) {
  const std::int64_t s = session_.problem().s_q;
  RunRequest request{.tokens = s, .gradients = gradients, .d_out_end = s, .edits = {}, .poison = kPoison};
  Result first = session_.run(request);
  request.poison = kOtherPoison;
  const Result second = session_.run(request);

  std::vector<Leak> defects = session_.writes_to_inputs();
  for (std::size_t i = 0; i < kOutputs; ++i) {
    const auto output = static_cast<Output>(i);
    if (!first.has(output)) {
      continue;
    }
    const TokenRange all{.first = 0, .last = s - 1};
    comparisons_ += elements(first.rows(output), all);
    if (const auto difference = compare_rows(first.rows(output), second.rows(output), all)) {
      Leak& defect = defects.emplace_back(leak_of(*difference));
      const bool untouched =
          holds_poison(first.rows(output), defect, kPoison) && holds_poison(second.rows(output), defect, kOtherPoison);
      defect.property = untouched ? "written" : "deterministic";
      defect.tensor = name_of(output);
    }
  }
  if (gradients) {
    base_gradient_ = std::move(first);
    d_out_end_ = s;
  } else {
    base_forward_ = std::move(first);
  }
  return defects;
}

const Result& Examiner::base_forward() {
  if (!base_forward_) {
    base_forward_ = session_.run({.tokens = session_.problem().s_q, .edits = {}});
  }
  return *base_forward_;
}

const Result& Examiner::base_gradient(std::int64_t d_out_end) {
  if (!base_gradient_ || d_out_end_ != d_out_end) {
    base_gradient_ =
        session_.run({.tokens = session_.problem().s_q, .gradients = true, .d_out_end = d_out_end, .edits = {}});
    d_out_end_ = d_out_end;
  }
  return *base_gradient_;
}

const Result& Examiner::base_of(const Probe& probe) {
  return probe.property == Property::kCausal ? base_forward()
                                             : base_gradient(d_out_end_of(probe, session_.problem().s_q));
}

std::vector<Leak> Examiner::differences(const Probe& probe, const Result& base, const Result& result) {
  const TokenRange rows = probe.property == Property::kKeyGradient
                              ? TokenRange{.first = probe.cut, .last = session_.problem().s_q - 1}
                              : TokenRange{.first = 0, .last = probe.cut};
  std::vector<Leak> found;
  for (const Output output : checked_outputs(probe.property)) {
    if (!base.has(output)) {
      continue;
    }
    comparisons_ += elements(base.rows(output), rows);
    if (const auto difference = compare_rows(base.rows(output), result.rows(output), rows)) {
      Leak& leak = found.emplace_back(leak_of(*difference));
      leak.property = name_of(probe.property);
      leak.tensor = name_of(output);
      leak.operand = probe.operand_names();
      leak.perturbation = probe.perturbation;
      leak.region = probe.nearest_region();
      leak.cut = probe.cut;
      leak.first_token = probe.tokens.first;
      leak.last_token = probe.tokens.last;
    }
  }
  return found;
}

// Whether this tensor has a find of the perturbation in the region, whichever the operand.
bool Examiner::known(const Leak& leak) const {
  return std::any_of(leaks_.begin(), leaks_.end(), [&](const Leak& other) {
    return other.property == leak.property && other.tensor == leak.tensor && other.region == leak.region &&
           other.perturbation == leak.perturbation;
  });
}

void Examiner::keep(const Leak& leak) {
  const bool duplicate = std::any_of(leaks_.begin(), leaks_.end(), [&](const Leak& other) {
    return other.property == leak.property && other.tensor == leak.tensor && other.operand == leak.operand &&
           other.perturbation == leak.perturbation && other.region == leak.region;
  });
  if (!duplicate) {
    leaks_.push_back(leak);
  }
}

bool Examiner::inspect(const Probe& probe, const Result& base, const Result& result) {
  const std::vector<Leak> found = differences(probe, base, result);
  const bool all_known = std::all_of(found.begin(), found.end(), [&](const Leak& leak) { return known(leak); });
  if (!probe.is_single() && !all_known) {
    for (const Probe& single : probe.singles()) {
      const Result alone = session_.run(request_of(single, session_.problem()));
      for (const Leak& leak : differences(single, base, alone)) {
        keep(leak);
      }
    }
  }
  for (const Leak& leak : found) {
    if (probe.is_single() || !known(leak)) {
      keep(leak);
    }
  }
  return !found.empty();
}

bool Examiner::examine(const Probe& probe) {
  const Result& base = base_of(probe);
  return inspect(probe, base, session_.run(request_of(probe, session_.problem())));
}

void Examiner::check_prefix(std::int64_t cut) {
  const Result& whole = base_forward();
  const Result prefix = session_.run({.tokens = cut + 1, .edits = {}});
  const TokenRange rows{.first = 0, .last = cut};
  for (const Output output : checked_outputs(Property::kCausal)) {
    if (!whole.has(output)) {
      continue;
    }
    comparisons_ += elements(whole.rows(output), rows);
    if (const auto difference = compare_rows(whole.rows(output), prefix.rows(output), rows)) {
      Leak leak = leak_of(*difference);
      leak.property = "prefix";
      leak.tensor = name_of(output);
      leak.operand = "length";
      leak.region = region_of(cut, cut + 1);
      leak.cut = cut;
      leak.first_token = cut + 1;
      leak.last_token = session_.problem().s_q - 1;
      keep(leak);
    }
  }
}

}  // namespace checkvalve::audit_detail
