// forward.cpp: rows are independent; each is computed by row.cpp and written in the output's dtype.
#include "backends/reference/forward.h"

#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>

#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "backends/reference/merge.h"
#include "backends/reference/operands.h"
#include "backends/reference/output.h"
#include "backends/reference/row.h"

namespace checkvalve::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// One row under the recipe: a single pass, or the published two passes joined by their lse.
double attend_row(const KeyValue& kv, const RowPlace& place, const double* q, double scale, const Recipe& recipe,
                  const Options& options, std::span<double> out) {
  RowMode mode{.folded = recipe.folded, .only_copy = -1, .p = recipe.p, .order = options.tile_order};
  if (!options.own_block_two_pass) {
    return forward_row(kv, place, q, scale, mode, out);
  }
  std::vector<double> completed(out.size());
  mode.only_copy = 1;
  mode.folded = false;
  const double lse_completed = forward_row(kv, place, q, scale, mode, completed);
  mode.only_copy = 0;
  mode.folded = true;
  const double lse_own = forward_row(kv, place, q, scale, mode, out);
  return merge_row(completed, lse_completed, out, lse_own, out);
}

}  // namespace

void forward(const AttentionProblem& problem, const Recipe& recipe, const QuantizedQKV& operands, const TensorView& out,
             const TensorView& lse, const Options& options) {
  const double scale = static_cast<double>(problem.scale());
  const std::int64_t group = problem.h_q / problem.h_kv;
  fill_output(out, 0.0);
  fill_output(lse, -kInfinity);
  for (std::int64_t n = 0; n < problem.b; ++n) {
    const Sequence seq = sequence_of(problem, n);
    for (std::int64_t kv_head = 0; kv_head < problem.h_kv; ++kv_head) {
      const KeyValue kv = decode_key_value(problem, recipe, operands, options, seq, kv_head);
      for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        const Matrix q = decode_query(problem, recipe, operands, options, seq, head);
        tbb::parallel_for(tbb::blocked_range<std::int64_t>(0, seq.s_q, 16), [&](const auto& rows) {
          std::vector<double> o(static_cast<std::size_t>(problem.d_v));
          for (std::int64_t i = rows.begin(); i < rows.end(); ++i) {
            const double row_lse = attend_row(kv, place_of(problem, seq, i), q.row(i), scale, recipe, options, o);
            store_row(out, seq.batch, seq.q_begin + i, head, o);
            store_lse(lse, problem, seq, head, i, row_lse);
          }
        });
      }
    }
  }
}

}  // namespace checkvalve::reference
