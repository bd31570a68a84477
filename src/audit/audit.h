// audit.h: the audit with a negative control of the caller's choice.
#pragma once

#include <string>

#include "checkvalve/audit.h"

namespace checkvalve::audit_detail {

// A callable that is known to leak in every property that the audit probes.
struct NegativeControl {
  std::string name;
  AttentionCallable callable;
};

// As checkvalve::audit, with `control` instead of the built-in one.
[[nodiscard]] AuditReport audit_with_control(const AttentionCallable& callable, const NegativeControl& control,
                                             const AttentionProblem& problem, const ConstTensorView& q,
                                             const ConstTensorView& k, const ConstTensorView& v,
                                             const AuditOptions& options);

}  // namespace checkvalve::audit_detail
