// perturb.h: rewrites the elements of a range of tokens.
#pragma once

#include "audit/tokens.h"
#include "checkvalve/audit.h"
#include "checkvalve/tensor.h"

namespace checkvalve::audit_detail {

// Every perturbation, finite ones first.
[[nodiscard]] std::vector<Perturbation> perturbations(bool non_finite);

// Applies `perturbation` to each element of tokens `tokens` of a (b, s, h, d) float32, float16 or bfloat16 tensor. Huge
// values stop at the dtype's largest finite one; a zero becomes the factor itself, so that a row of zeros changes too.
void perturb(const TensorView& tensor, TokenRange tokens, Perturbation perturbation);

}  // namespace checkvalve::audit_detail
