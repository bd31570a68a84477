// recipe_callable.cpp: a built-in recipe as a callable that can be audited.
#include <vector>

#include "checkvalve/attention.h"
#include "checkvalve/audit.h"

namespace checkvalve {

AttentionCallable recipe_callable(const Recipe& recipe, const Options& options) {
  Options allowed = options;
  allowed.allow_leak = true;
  return [recipe, allowed](const AuditRun& run) {
    const AttentionProblem& problem = run.problem;
    TensorView lse = run.lse;
    std::vector<float> own_lse;
    if (!lse) {
      own_lse.resize(static_cast<std::size_t>(problem.b * problem.h_q * problem.s_q));
      lse = make_dense(static_cast<void*>(own_lse.data()), DType::kFloat32, 3, {problem.b, problem.h_q, problem.s_q});
    }
    forward(problem, recipe, run.q, run.k, run.v, run.out, lse, allowed);
    if (run.d_out) {
      // A rounded output is not accurate enough for delta; without one it is recomputed.
      const ConstTensorView out = problem.out_dtype == DType::kFloat32 ? ConstTensorView(run.out) : ConstTensorView{};
      backward(problem, recipe, run.q, run.k, run.v, out, lse, run.d_out, run.dq, run.dk, run.dv, allowed);
    }
  };
}

}  // namespace checkvalve
