// operands.cpp: from quantised bytes and scales to float64 rows.
#include "backends/reference/operands.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "numerics/element.h"
#include "numerics/span_rule.h"

namespace checkvalve::reference {
namespace {

using numerics::kBlockTokens;
using numerics::load_element;
using numerics::offset_of;

struct Source {
  const TensorView& data;
  const TensorView& scale;
  ScaleScope scope;
  std::int64_t batch, head, row, block;
};

double scale_at(const Source& s, std::int64_t i, std::int64_t c) {
  switch (s.scope) {
    case ScaleScope::kNone:
      return 1.0;
    case ScaleScope::kTensor:
      return load_element(s.scale, 0);
    case ScaleScope::kRow32:
      return load_element(s.scale, offset_of(s.scale, s.batch, s.head, s.row + i, c / 32));
    case ScaleScope::kColumn32:
      return load_element(s.scale, offset_of(s.scale, s.batch, s.head, s.block + i / kBlockTokens, c));
    case ScaleScope::kToken:
      return load_element(s.scale, offset_of(s.scale, s.batch, s.head, s.row + i));
    case ScaleScope::kBlock:
      return load_element(s.scale, offset_of(s.scale, s.batch, s.head, s.block + i / kBlockTokens));
  }
  return 1.0;
}

Matrix decode_rows(const Source& s, std::int64_t n, std::int64_t d) {
  Matrix rows(n, d);
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t c = 0; c < d; ++c) {
      rows.row(i)[c] = load_element(s.data, offset_of(s.data, s.batch, s.head, s.row + i, c)) * scale_at(s, i, c);
    }
  }
  return rows;
}

// log2 of the largest scale of rows [i0, i1), NaN if one of them is NaN.
double largest_exponent(const Source& s, std::int64_t i0, std::int64_t i1, std::int64_t d) {
  double largest = 0.0;
  for (std::int64_t i = i0; i < i1; ++i) {
    for (std::int64_t c = 0; c < d; ++c) {
      const double scale = scale_at(s, i, c);
      if (std::isnan(scale)) {
        return scale;
      }
      largest = std::max(largest, scale);
    }
  }
  return std::log2(largest);
}

double e4m3(double x) { return static_cast<double>(numerics::round_to_e4m3(static_cast<float>(x))); }

// Rewrites MX values as E4M3 on one power-of-two scale for each `unit` of rows (docs/numerics.md, Re-expression).
void rebase(Matrix& rows, const Source& s, std::int64_t n, std::int64_t unit) {
  for (std::int64_t i0 = 0; i0 < n; i0 += unit) {
    const std::int64_t i1 = std::min(i0 + unit, n);
    const double scale = std::exp2(largest_exponent(s, i0, i1, rows.d));
    std::for_each(rows.row(i0), rows.row(i1), [scale](double& x) { x = e4m3(x / scale) * scale; });
  }
}

void index_by_block(KeyCopy& copy, std::int64_t n) {
  const std::int64_t d = copy.rows.d;
  const std::int64_t blocks = (n + kBlockTokens - 1) / kBlockTokens;
  copy.by_block.assign(static_cast<std::size_t>(blocks * kBlockTokens * d), 0.0);
  for (std::int64_t j = 0; j < n; ++j) {
    for (std::int64_t c = 0; c < d; ++c) {
      const std::int64_t at = (j / kBlockTokens * d + c) * kBlockTokens + j % kBlockTokens;
      copy.by_block[static_cast<std::size_t>(at)] = copy.rows.row(j)[c];
    }
  }
}

double clamp_folded(double exponent) {
  return std::isnan(exponent) ? exponent
                              : std::clamp<double>(exponent, numerics::kFoldMinExponent, numerics::kFoldMaxExponent);
}

// V as 2^e * vhat. e is the scale's exponent where one scale holds for the row, the largest of the block (in the range
// of folded exponents) for columnwise scales, and 0 for values without a power-of-two scale.
ValueCopy decode_values(const Source& s, std::int64_t n, std::int64_t d, bool rebase_mx) {
  ValueCopy copy{.vhat = decode_rows(s, n, d), .exponent = std::vector<double>(static_cast<std::size_t>(n), 0.0)};
  if (s.scope == ScaleScope::kNone || s.scope == ScaleScope::kTensor) {
    return copy;
  }
  const std::int64_t unit = s.scope == ScaleScope::kToken ? 1 : kBlockTokens;
  for (std::int64_t i0 = 0; i0 < n; i0 += unit) {
    const std::int64_t i1 = std::min(i0 + unit, n);
    const double e = clamp_folded(largest_exponent(s, i0, i1, d));
    std::fill(copy.exponent.begin() + i0, copy.exponent.begin() + i1, e);
    const double reciprocal = std::exp2(-e);
    for (double* x = copy.vhat.row(i0); x != copy.vhat.row(i1); ++x) {
      *x *= reciprocal;
      if (rebase_mx) {
        *x = e4m3(*x);
      }
    }
  }
  return copy;
}

}  // namespace

Matrix decode_query(const AttentionProblem& problem, const Recipe& recipe, const QuantizedQKV& operands,
                    const Options& options, const Sequence& seq, std::int64_t head) {
  const Source source{operands.q, operands.q_scale, recipe.qk_scale, seq.batch, head, seq.q_begin, 0};
  Matrix rows = decode_rows(source, seq.s_q, problem.d_qk);
  if (options.rebase_mx && recipe.qk_scale == ScaleScope::kRow32) {
    rebase(rows, source, seq.s_q, 1);
  }
  return rows;
}

KeyValue decode_key_value(const AttentionProblem& problem, const Recipe& recipe, const QuantizedQKV& operands,
                          const Options& options, const Sequence& seq, std::int64_t kv_head) {
  const auto source = [&](const TensorView& data, const TensorView& scale, ScaleScope scope) {
    return Source{data, scale, scope, seq.batch, kv_head, seq.kv_begin, seq.kv_block};
  };
  KeyValue kv;
  const Source k = source(operands.k, operands.k_scale, recipe.qk_scale);
  kv.k[0].rows = decode_rows(k, seq.s_kv, problem.d_qk);
  if (recipe.k_shared_scale != ScaleScope::kNone) {
    kv.k_rule = recipe.token_copy;
    kv.k[1].rows =
        decode_rows(source(operands.k_shared, operands.k_shared_scale, recipe.k_shared_scale), seq.s_kv, problem.d_qk);
  } else if (options.rebase_mx && recipe.qk_scale == ScaleScope::kRow32) {
    kv.k_rule = TokenCopyRule::kFirstAndOwnSpan;
    kv.k[1].rows = kv.k[0].rows;
    rebase(kv.k[0].rows, k, seq.s_kv, 1);
    rebase(kv.k[1].rows, k, seq.s_kv, kBlockTokens);
  }
  for (KeyCopy& copy : kv.k) {
    if (copy.rows.d != 0) {
      index_by_block(copy, seq.s_kv);
    }
  }

  kv.v[0] =
      decode_values(source(operands.v, operands.v_scale, recipe.v_scale), seq.s_kv, problem.d_v, options.rebase_mx);
  if (recipe.v_shared_scale != ScaleScope::kNone) {
    kv.v_rule = recipe.token_copy;
    kv.v[1] = decode_values(source(operands.v_shared, operands.v_shared_scale, recipe.v_shared_scale), seq.s_kv,
                            problem.d_v, options.rebase_mx);
  }
  return kv;
}

}  // namespace checkvalve::reference
