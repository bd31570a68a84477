// exact.cpp: float64 attention on the original inputs by the textbook formulas, independent of the tiled recurrence.
#include <fmt/format.h>
#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "api/sequences.h"
#include "api/validate.h"
#include "backends/reference/output.h"
#include "checkvalve/attention.h"
#include "checkvalve/error.h"
#include "numerics/element.h"

namespace checkvalve {
namespace {

using reference::fill_output;
using reference::store_lse;
using reference::store_row;

struct Rows {
  std::int64_t d = 0;
  std::vector<double> values;
  [[nodiscard]] double* row(std::int64_t i) { return values.data() + i * d; }
  [[nodiscard]] const double* row(std::int64_t i) const { return values.data() + i * d; }
};

Rows zeros(std::int64_t n, std::int64_t d) { return {d, std::vector<double>(static_cast<std::size_t>(n * d))}; }

Rows load(const ConstTensorView& t, std::int64_t batch, std::int64_t begin, std::int64_t n, std::int64_t head) {
  Rows rows = zeros(n, t.shape[3]);
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t c = 0; c < rows.d; ++c) {
      rows.row(i)[c] = numerics::load_element(t, numerics::offset_of(t, batch, begin + i, head, c));
    }
  }
  return rows;
}

double dot(const double* a, const double* b, std::int64_t n) {
  double sum = 0.0;
  for (std::int64_t c = 0; c < n; ++c) {
    sum += a[c] * b[c];
  }
  return sum;
}

struct Softmax {
  numerics::KeyRange visible;
  std::vector<double> p;  // of keys visible.begin ..
  double lse = -std::numeric_limits<double>::infinity();
};

Softmax softmax_row(const AttentionProblem& problem, const Sequence& seq, const Rows& k, const double* q,
                    std::int64_t i) {
  Softmax s;
  s.visible = numerics::visible_keys(i + seq.s_kv - seq.s_q, seq.s_kv, problem.causal, problem.window_left);
  double top = s.lse;
  for (std::int64_t j = s.visible.begin; j < s.visible.end; ++j) {
    s.p.push_back(dot(q, k.row(j), k.d) * static_cast<double>(problem.scale()));
    top = std::max(top, s.p.back());
  }
  double sum = 0.0;
  for (double& x : s.p) {
    x = std::exp(x - top);
    sum += x;
  }
  for (double& x : s.p) {
    x /= sum;
  }
  if (!s.p.empty()) {
    s.lse = top + std::log(sum);
  }
  return s;
}

void validate(const AttentionProblem& problem, const ConstTensorView& q, const ConstTensorView& k,
              const ConstTensorView& v) {
  validate_problem(problem, recipe_from_name("fp32"), {});
  validate_lengths(problem);
  validate_tensor("q", q, problem, RowsOf::kQuery, problem.d_qk, problem.dtype, Device::kHost);
  validate_tensor("k", k, problem, RowsOf::kKeyValue, problem.d_qk, problem.dtype, Device::kHost);
  validate_tensor("v", v, problem, RowsOf::kKeyValue, problem.d_v, problem.dtype, Device::kHost);
}

}  // namespace

void exact_forward(const AttentionProblem& problem, const ConstTensorView& q, const ConstTensorView& k,
                   const ConstTensorView& v, const TensorView& out, const TensorView& lse) {
  validate(problem, q, k, v);
  validate_tensor("out", out, problem, RowsOf::kQuery, problem.d_v, DType::kFloat64, Device::kHost);
  if (lse) {
    validate_lse(lse, problem, DType::kFloat64, Device::kHost);
  }
  fill_output(out, 0.0);
  fill_output(lse, -std::numeric_limits<double>::infinity());
  const std::int64_t group = problem.h_q / problem.h_kv;
  for (std::int64_t n = 0; n < problem.b; ++n) {
    const Sequence seq = sequence_of(problem, n);
    for (std::int64_t h = 0; h < problem.h_q; ++h) {
      const Rows keys = load(k, seq.batch, seq.kv_begin, seq.s_kv, h / group);
      const Rows values = load(v, seq.batch, seq.kv_begin, seq.s_kv, h / group);
      const Rows queries = load(q, seq.batch, seq.q_begin, seq.s_q, h);
      tbb::parallel_for(tbb::blocked_range<std::int64_t>(0, seq.s_q, 16), [&](const auto& rows) {
        for (std::int64_t i = rows.begin(); i < rows.end(); ++i) {
          const Softmax s = softmax_row(problem, seq, keys, queries.row(i), i);
          std::vector<double> o(static_cast<std::size_t>(problem.d_v));
          for (std::size_t j = 0; j < s.p.size(); ++j) {
            const double* value = values.row(s.visible.begin + static_cast<std::int64_t>(j));
            for (std::size_t c = 0; c < o.size(); ++c) {
              o[c] += s.p[j] * value[c];
            }
          }
          store_row(out, seq.batch, seq.q_begin + i, h, o);
          store_lse(lse, problem, seq, h, i, s.lse);
        }
      });
    }
  }
}

void exact_backward(const AttentionProblem& problem, const ConstTensorView& q, const ConstTensorView& k,
                    const ConstTensorView& v, const ConstTensorView& d_out, const TensorView& dq, const TensorView& dk,
                    const TensorView& dv) {
  validate(problem, q, k, v);
  validate_tensor("d_out", d_out, problem, RowsOf::kQuery, problem.d_v, d_out.dtype, Device::kHost);
  validate_tensor("dq", dq, problem, RowsOf::kQuery, problem.d_qk, DType::kFloat64, Device::kHost);
  validate_tensor("dk", dk, problem, RowsOf::kKeyValue, problem.d_qk, DType::kFloat64, Device::kHost);
  validate_tensor("dv", dv, problem, RowsOf::kKeyValue, problem.d_v, DType::kFloat64, Device::kHost);
  for (const TensorView& t : {dq, dk, dv}) {
    fill_output(t, 0.0);
  }
  const double scale = static_cast<double>(problem.scale());
  const std::int64_t group = problem.h_q / problem.h_kv;
  for (std::int64_t n = 0; n < problem.b; ++n) {
    const Sequence seq = sequence_of(problem, n);
    for (std::int64_t kv_head = 0; kv_head < problem.h_kv; ++kv_head) {
      const Rows keys = load(k, seq.batch, seq.kv_begin, seq.s_kv, kv_head);
      const Rows values = load(v, seq.batch, seq.kv_begin, seq.s_kv, kv_head);
      Rows dk_rows = zeros(seq.s_kv, problem.d_qk);
      Rows dv_rows = zeros(seq.s_kv, problem.d_v);
      for (std::int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
        const Rows queries = load(q, seq.batch, seq.q_begin, seq.s_q, h);
        const Rows gradients = load(d_out, seq.batch, seq.q_begin, seq.s_q, h);
        for (std::int64_t i = 0; i < seq.s_q; ++i) {
          const Softmax s = softmax_row(problem, seq, keys, queries.row(i), i);
          const double* g = gradients.row(i);
          double delta = 0.0;
          for (std::size_t j = 0; j < s.p.size(); ++j) {
            delta += s.p[j] * dot(g, values.row(s.visible.begin + static_cast<std::int64_t>(j)), values.d);
          }
          std::vector<double> dq_row(static_cast<std::size_t>(problem.d_qk));
          for (std::size_t at = 0; at < s.p.size(); ++at) {
            const std::int64_t j = s.visible.begin + static_cast<std::int64_t>(at);
            const double ds = s.p[at] * (dot(g, values.row(j), values.d) - delta) * scale;
            for (std::int64_t c = 0; c < problem.d_qk; ++c) {
              dq_row[static_cast<std::size_t>(c)] += ds * keys.row(j)[c];
              dk_rows.row(j)[c] += ds * queries.row(i)[c];
            }
            for (std::int64_t c = 0; c < problem.d_v; ++c) {
              dv_rows.row(j)[c] += s.p[at] * g[c];
            }
          }
          store_row(dq, seq.batch, seq.q_begin + i, h, dq_row);
        }
      }
      for (std::int64_t j = 0; j < seq.s_kv; ++j) {
        store_row(dk, seq.batch, seq.kv_begin + j, kv_head, {dk_rows.row(j), static_cast<std::size_t>(dk_rows.d)});
        store_row(dv, seq.batch, seq.kv_begin + j, kv_head, {dv_rows.row(j), static_cast<std::size_t>(dv_rows.d)});
      }
    }
  }
}

}  // namespace checkvalve
