// backward.cpp: P from the forward's lse, dS = P (dP - delta), and the three products that reduce over tokens.
#include "backends/reference/backward.h"

#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <vector>

#include "backends/reference/operands.h"
#include "backends/reference/output.h"
#include "backends/reference/row.h"
#include "numerics/hadamard.h"
#include "numerics/quantize.h"
#include "numerics/scale_rule.h"

namespace checkvalve::reference {
namespace {

using numerics::load_element;
using numerics::offset_of;

constexpr std::int64_t kChunk = 128;  // query rows whose P and dS are kept at a time

// dO of one sequence and head: as it enters dO V^T and delta, and as it enters P^T dO.
struct OutputGradient {
  Matrix for_dp;
  Matrix for_dv;
  std::vector<bool> zero;  // the whole row is zero
};

// The operands of one query head.
struct Head {
  const KeyValue& kv;
  Matrix q;         // decoded, for Q K^T
  Matrix q_for_dk;  // the same rounded to the operand format of dS^T Q
  Matrix k_for_dq[2];
  OutputGradient d_out;
  std::vector<double> lse;    // natural log
  std::vector<double> delta;  // empty: sum_j P dP
};

// The format of P, dS and the operands of the products that reduce over tokens.
Format product_format(const Recipe& recipe) { return recipe.qk == Format::kAsGiven ? recipe.p : Format::kBFloat16; }

Matrix rounded(Matrix m, Format format) {
  std::ranges::for_each(m.values, [format](double& x) { x = round_to(format, x); });
  return m;
}

OutputGradient load_d_out(const AttentionProblem& problem, const Recipe& recipe, const ConstTensorView& d_out,
                          const Sequence& seq, std::int64_t head, BackwardPrecision precision) {
  Matrix rows(seq.s_q, problem.d_v);
  std::vector<bool> zero(static_cast<std::size_t>(seq.s_q));
  for (std::int64_t i = 0; i < seq.s_q; ++i) {
    for (std::int64_t c = 0; c < problem.d_v; ++c) {
      rows.row(i)[c] = load_element(d_out, offset_of(d_out, seq.batch, seq.q_begin + i, head, c));
    }
    zero[static_cast<std::size_t>(i)] = std::all_of(rows.row(i), rows.row(i + 1), [](double x) { return x == 0.0; });
  }
  Matrix for_dv = rounded(rows, product_format(recipe));
  if (precision == BackwardPrecision::kBFloat16) {
    return {.for_dp = for_dv, .for_dv = for_dv, .zero = std::move(zero)};
  }
  std::vector<float> row(static_cast<std::size_t>(problem.d_v));
  std::vector<std::uint8_t> bytes(row.size());
  for (std::int64_t i = 0; i < seq.s_q; ++i) {
    std::transform(rows.row(i), rows.row(i + 1), row.begin(), [](double x) { return static_cast<float>(x); });
    const std::uint8_t scale = numerics::quantize_row_e4m3(row.data(), problem.d_v, numerics::kE8M0MinExponent,
                                                           numerics::kE8M0MaxExponent, bytes.data());
    for (std::size_t c = 0; c < bytes.size(); ++c) {
      rows.row(i)[c] =
          static_cast<double>(numerics::decode_e4m3(bytes[c])) * static_cast<double>(numerics::decode_e8m0(scale));
    }
  }
  return {.for_dp = std::move(rows), .for_dv = std::move(for_dv), .zero = std::move(zero)};
}

// delta_i = sum_d dO_id O_id with the dO that dP uses and the float32 output.
std::vector<double> load_delta(const ConstTensorView& out, const Sequence& seq, std::int64_t head,
                               const OutputGradient& d_out) {
  std::vector<double> delta(static_cast<std::size_t>(seq.s_q), 0.0);
  for (std::int64_t i = 0; i < seq.s_q; ++i) {
    for (std::int64_t c = 0; c < d_out.for_dp.d; ++c) {
      delta[static_cast<std::size_t>(i)] +=
          d_out.for_dp.row(i)[c] * load_element(out, offset_of(out, seq.batch, seq.q_begin + i, head, c));
    }
  }
  return delta;
}

double dot(const double* a, const double* b, std::int64_t n) {
  double sum = 0.0;
  for (std::int64_t c = 0; c < n; ++c) {
    sum += a[c] * b[c];
  }
  return sum;
}

void add_scaled(double* to, double factor, const double* from, std::int64_t n) {
  for (std::int64_t c = 0; c < n; ++c) {
    to[c] += factor * from[c];
  }
}

// P and dS of one row over its visible keys, rounded to `format`; both rows start at key 0.
void row_p_ds(const Head& head, const RowPlace& place, std::int64_t i, double scale, Format format, double* p,
              double* ds) {
  const auto at = static_cast<std::size_t>(i);
  const auto [begin, end] = place.visible;
  const double log2e = std::numbers::log2e;
  row_logits(head.kv, place, head.q.row(i), scale * log2e, begin, end, p + begin);
  double p_dp = 0.0;
  for (std::int64_t j = begin; j < end; ++j) {
    const ValueCopy& v = head.kv.v[copy_of(head.kv.v_rule, place, j)];
    const double e = v.exponent[static_cast<std::size_t>(j)];
    p[j] = std::exp2(p[j] - head.lse[at] * log2e);
    ds[j] = dot(head.d_out.for_dp.row(i), v.vhat.row(j), v.vhat.d) * std::exp2(e);
    p_dp += p[j] * ds[j];
  }
  const double delta = head.delta.empty() ? p_dp : head.delta[at];
  for (std::int64_t j = begin; j < end; ++j) {
    ds[j] = round_to(format, p[j] * (ds[j] - delta));
    p[j] = round_to(format, p[j]);
  }
}

void store_gradient(const TensorView& t, const Sequence& seq, std::int64_t begin, std::int64_t head, Matrix& rows,
                    double factor, bool rotated) {
  const std::int64_t n = rows.d == 0 ? 0 : static_cast<std::int64_t>(rows.values.size()) / rows.d;
  for (std::int64_t i = 0; i < n; ++i) {
    double* row = rows.row(i);
    if (rotated) {
      numerics::rotate_row(row, static_cast<int>(rows.d));
    }
    std::for_each(row, row + rows.d, [factor](double& x) { x *= factor; });
    store_row(t, seq.batch, begin + i, head, {row, static_cast<std::size_t>(rows.d)});
  }
}

// Adds one query head's share to dk and dv, and writes its dq. Rows are taken in order, so every sum has a fixed order.
void backward_head(const AttentionProblem& problem, const Sequence& seq, const Head& head, Format format, Matrix& dq,
                   Matrix& dk, Matrix& dv) {
  const double scale = static_cast<double>(problem.scale());
  Matrix p(kChunk, seq.s_kv);
  Matrix ds(kChunk, seq.s_kv);
  std::vector<RowPlace> places(static_cast<std::size_t>(kChunk));
  for (std::int64_t i0 = 0; i0 < seq.s_q; i0 += kChunk) {
    const std::int64_t i1 = std::min(i0 + kChunk, seq.s_q);
    tbb::parallel_for(tbb::blocked_range<std::int64_t>(i0, i1, 8), [&](const auto& range) {
      for (std::int64_t i = range.begin(); i < range.end(); ++i) {
        RowPlace& place = places[static_cast<std::size_t>(i - i0)];
        place = place_of(problem, seq, i);
        if (head.d_out.zero[static_cast<std::size_t>(i)]) {
          // Nothing flows back from this row, whatever its output is: 0 * NaN must not reach earlier keys.
          place.visible.end = place.visible.begin;
        }
        row_p_ds(head, place, i, scale, format, p.row(i - i0), ds.row(i - i0));
        for (std::int64_t j = place.visible.begin; j < place.visible.end; ++j) {
          const Matrix& k = head.k_for_dq[copy_of(head.kv.k_rule, place, j)];
          add_scaled(dq.row(i), ds.row(i - i0)[j], k.row(j), dq.d);
        }
      }
    });
    tbb::parallel_for(tbb::blocked_range<std::int64_t>(0, seq.s_kv, 32), [&](const auto& keys) {
      for (std::int64_t i = i0; i < i1; ++i) {
        const auto [begin, end] = places[static_cast<std::size_t>(i - i0)].visible;
        for (std::int64_t j = std::max(begin, keys.begin()); j < std::min(end, keys.end()); ++j) {
          add_scaled(dk.row(j), ds.row(i - i0)[j], head.q_for_dk.row(i), dk.d);
          add_scaled(dv.row(j), p.row(i - i0)[j], head.d_out.for_dv.row(i), dv.d);
        }
      }
    });
  }
}

std::vector<double> load_lse(const AttentionProblem& problem, const ConstTensorView& lse, const Sequence& seq,
                             std::int64_t head) {
  std::vector<double> values(static_cast<std::size_t>(seq.s_q));
  for (std::int64_t i = 0; i < seq.s_q; ++i) {
    values[static_cast<std::size_t>(i)] = load_element(lse, lse_offset(lse, problem, seq, head, i));
  }
  return values;
}

}  // namespace

void backward(const AttentionProblem& problem, const Recipe& recipe, const QuantizedQKV& operands,
              const ConstTensorView& out, const ConstTensorView& lse, const ConstTensorView& d_out,
              const TensorView& dq, const TensorView& dk, const TensorView& dv, const Options& options) {
  const double scale = static_cast<double>(problem.scale());
  const std::int64_t group = problem.h_q / problem.h_kv;
  const Format format = product_format(recipe);
  for (const TensorView& t : {dq, dk, dv}) {
    fill_output(t, 0.0);
  }
  for (std::int64_t n = 0; n < problem.b; ++n) {
    const Sequence seq = sequence_of(problem, n);
    for (std::int64_t kv_head = 0; kv_head < problem.h_kv; ++kv_head) {
      const KeyValue kv = decode_key_value(problem, recipe, operands, options, seq, kv_head);
      Matrix dk_sum(seq.s_kv, problem.d_qk);
      Matrix dv_sum(seq.s_kv, problem.d_v);
      for (std::int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
        Head head{.kv = kv,
                  .q = decode_query(problem, recipe, operands, options, seq, h),
                  .q_for_dk = {},
                  .k_for_dq = {rounded(kv.k[0].rows, format), rounded(kv.k[1].rows, format)},
                  .d_out = load_d_out(problem, recipe, d_out, seq, h, options.backward),
                  .lse = load_lse(problem, lse, seq, h),
                  .delta = {}};
        head.q_for_dk = rounded(head.q, format);
        if (out) {
          head.delta = load_delta(out, seq, h, head.d_out);
        }
        Matrix dq_rows(seq.s_q, problem.d_qk);
        backward_head(problem, seq, head, format, dq_rows, dk_sum, dv_sum);
        store_gradient(dq, seq, seq.q_begin, h, dq_rows, scale, recipe.rotate_qk);
      }
      store_gradient(dk, seq, seq.kv_begin, kv_head, dk_sum, scale, recipe.rotate_qk);
      store_gradient(dv, seq, seq.kv_begin, kv_head, dv_sum, 1.0, false);
    }
  }
}

}  // namespace checkvalve::reference
