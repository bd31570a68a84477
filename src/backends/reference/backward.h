// backward.h: the reference's backward pass over all sequences and heads.
#pragma once

#include "checkvalve/attention.h"

namespace checkvalve::reference {

// operands are quantize()'s; the other arguments are those of checkvalve::backward.
void backward(const AttentionProblem& problem, const Recipe& recipe, const QuantizedQKV& operands,
              const ConstTensorView& out, const ConstTensorView& lse, const ConstTensorView& d_out,
              const TensorView& dq, const TensorView& dk, const TensorView& dv, const Options& options);

}  // namespace checkvalve::reference
