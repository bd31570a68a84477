// forward.h: the reference's forward pass over all sequences and heads.
#pragma once

#include "checkvalve/attention.h"

namespace checkvalve::reference {

void forward(const AttentionProblem& problem, const Recipe& recipe, const QuantizedQKV& operands, const TensorView& out,
             const TensorView& lse, const Options& options);

}  // namespace checkvalve::reference
