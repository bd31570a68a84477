// audit_callables.h: small attention callables, one exact and the others with one planted defect each.
#pragma once

#include "checkvalve/audit.h"

namespace checkvalve::test {

enum class Defect {
  kNone,                     // exact causal attention in float64
  kBlockScaledV,             // V is rounded to a step that the largest value of its 32-token block sets
  kMaskOffByOne,             // row i also sees token i + 1
  kMaskedValueTimesZero,     // masked V of the own 32-token block is multiplied by 0 instead of skipped
  kOneElement,               // out[0, i, 0, 0] adds v[0, last token of i's block, 0, 0]
  kLseOnly,                  // the lse, and only it, also counts token i + 1
  kLengthDependent,          // out is scaled by a function of the length
  kGradientSeesLaterV,       // dq, and only it, uses block-scaled V
  kGradientSeesEarlierQ,     // dk[j] adds q[j - 1]
  kGradientSeesEarlierDOut,  // dv[j] adds d_out[j - 1]
  kWritesInput,              // v[0, 0, 0, 0] is set to 7
  kWritesInputIfNaN,         // q[0, 0, 0, 0] is set to 7 if some q is NaN
  kUnwrittenOut,             // one element of out is left alone
  kUnwrittenDv,              // one element of dv is left alone
  kNotDeterministic,         // each call adds a different number to out
};

// A callable that attends in float64 and rounds its results to the dtypes asked for. Tokens that a row may not see are
// skipped, and so are rows without d_out in the gradients: NaN cannot spread.
[[nodiscard]] AttentionCallable attention_with(Defect defect);

}  // namespace checkvalve::test
