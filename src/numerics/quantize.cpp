// quantize.cpp: rowwise and columnwise MX, token, block, tensor and INT8 quantisation of host tensors.
#include "numerics/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "api/sequences.h"
#include "numerics/element.h"
#include "numerics/float8.h"
#include "numerics/hadamard.h"
#include "numerics/scale_rule.h"
#include "numerics/span_rule.h"

namespace checkvalve::numerics {
namespace {

constexpr std::int64_t kMxBlock = 32;

// The largest magnitude seen, or infinity if anything was not finite.
class Amax {
 public:
  void add(float x) {
    const float magnitude = is_finite(x) ? std::fabs(x) : std::numeric_limits<float>::infinity();
    value_ = std::max(value_, magnitude);
  }
  void add(std::span<const float> xs) {
    for (const float x : xs) {
      add(x);
    }
  }
  [[nodiscard]] float value() const { return value_; }

 private:
  float value_ = 0.0F;
};

std::uint8_t element_e4m3(float x, std::uint8_t scale) {
  return scale == kE8M0NaN ? std::uint8_t{0} : encode_e4m3(x * decode_e8m0_reciprocal(scale));
}

// The source rows of one sequence and head, in float32, rotated if the recipe says so: (rows, d).
struct Rows {
  std::int64_t n = 0;
  std::int64_t d = 0;
  std::vector<float> values;

  [[nodiscard]] std::span<const float> row(std::int64_t i) const {
    return {values.data() + i * d, static_cast<std::size_t>(d)};
  }
};

Rows load_rows(const ConstTensorView& t, std::int64_t batch, std::int64_t begin, std::int64_t n, std::int64_t head,
               bool rotate) {
  Rows rows{.n = n, .d = t.shape[3], .values = {}};
  rows.values.resize(static_cast<std::size_t>(n * rows.d));
  for (std::int64_t i = 0; i < n; ++i) {
    float* row = rows.values.data() + i * rows.d;
    for (std::int64_t c = 0; c < rows.d; ++c) {
      row[c] = static_cast<float>(load_element(t, offset_of(t, batch, begin + i, head, c)));
    }
    if (rotate) {
      rotate_row(row, static_cast<int>(rows.d));
    }
  }
  return rows;
}

std::uint8_t* bytes_at(const TensorView& t, std::int64_t offset) { return static_cast<std::uint8_t*>(t.data) + offset; }

// Where the rows and scales of one sequence and head go.
struct Destination {
  std::int64_t batch, head, row, block;
};

// One copy of an operand that is to be written: its source rows, its scales' scope, and the tensors.
struct Copy {
  const Rows& rows;
  Format format;
  ScaleScope scope;
  ScaleRounding rounding;
  const TensorView& data;
  const TensorView& scale;
  Destination to;

  [[nodiscard]] std::uint8_t* row_bytes(std::int64_t i) const {
    return bytes_at(data, offset_of(data, to.batch, to.head, to.row + i));
  }
};

void write_tensor_scaled(const Copy& copy, float tensor_scale) {
  for (std::int64_t i = 0; i < copy.rows.n; ++i) {
    const auto row = copy.rows.row(i);
    for (std::size_t c = 0; c < row.size(); ++c) {
      copy.row_bytes(i)[c] = is_finite(tensor_scale) ? encode_e4m3(row[c] / tensor_scale) : std::uint8_t{0};
    }
  }
}

void write_row32(const Copy& copy) {
  for (std::int64_t i = 0; i < copy.rows.n; ++i) {
    for (std::int64_t c = 0; c < copy.rows.d; c += kMxBlock) {
      const auto group = copy.rows.row(i).subspan(static_cast<std::size_t>(c),
                                                  static_cast<std::size_t>(std::min(kMxBlock, copy.rows.d - c)));
      Amax amax;
      amax.add(group);
      const std::uint8_t byte = power_of_two_scale<E4M3>(amax.value(), copy.rounding);
      *bytes_at(copy.scale, offset_of(copy.scale, copy.to.batch, copy.to.head, copy.to.row + i, c / kMxBlock)) = byte;
      std::ranges::transform(group, copy.row_bytes(i) + c, [byte](float x) { return element_e4m3(x, byte); });
    }
  }
}

void write_column32(const Copy& copy) {
  for (std::int64_t i0 = 0; i0 < copy.rows.n; i0 += kBlockTokens) {
    const std::int64_t i1 = std::min(i0 + kBlockTokens, copy.rows.n);
    for (std::int64_t c = 0; c < copy.rows.d; ++c) {
      const auto at = static_cast<std::size_t>(c);
      Amax amax;
      for (std::int64_t i = i0; i < i1; ++i) {
        amax.add(copy.rows.row(i)[at]);
      }
      const std::uint8_t byte = power_of_two_scale<E4M3>(amax.value(), copy.rounding);
      *bytes_at(copy.scale, offset_of(copy.scale, copy.to.batch, copy.to.head, copy.to.block + i0 / kBlockTokens, c)) =
          byte;
      for (std::int64_t i = i0; i < i1; ++i) {
        copy.row_bytes(i)[c] = element_e4m3(copy.rows.row(i)[at], byte);
      }
    }
  }
}

// One scale for every token, or for every block of tokens.
void write_token_scaled(const Copy& copy) {
  const bool per_token = copy.scope == ScaleScope::kToken;
  const std::int64_t unit = per_token ? 1 : kBlockTokens;
  for (std::int64_t i0 = 0; i0 < copy.rows.n; i0 += unit) {
    const std::int64_t i1 = std::min(i0 + unit, copy.rows.n);
    Amax amax;
    for (std::int64_t i = i0; i < i1; ++i) {
      amax.add(copy.rows.row(i));
    }
    const std::int64_t scale_at = offset_of(copy.scale, copy.to.batch, copy.to.head,
                                            per_token ? copy.to.row + i0 : copy.to.block + i0 / kBlockTokens);
    if (copy.format == Format::kInt8) {
      const float s = linear_scale(amax.value(), 127.0F);
      store_bits(copy.scale.data, scale_at, s);
      for (std::int64_t i = i0; i < i1; ++i) {
        std::ranges::transform(copy.rows.row(i), copy.row_bytes(i), [s](float x) {
          return is_finite(s) ? static_cast<std::uint8_t>(encode_int8(x, s)) : std::uint8_t{0};
        });
      }
    } else {
      const std::uint8_t byte =
          power_of_two_scale<E4M3>(amax.value(), ScaleRounding::kUp, kFoldMinExponent, kFoldMaxExponent);
      *bytes_at(copy.scale, scale_at) = byte;
      for (std::int64_t i = i0; i < i1; ++i) {
        std::ranges::transform(copy.rows.row(i), copy.row_bytes(i), [byte](float x) { return element_e4m3(x, byte); });
      }
    }
  }
}

void write_copy(const Copy& copy, float tensor_scale) {
  switch (copy.scope) {
    case ScaleScope::kNone:
      return;
    case ScaleScope::kTensor:
      return write_tensor_scaled(copy, tensor_scale);
    case ScaleScope::kRow32:
      return write_row32(copy);
    case ScaleScope::kColumn32:
      return write_column32(copy);
    case ScaleScope::kToken:
    case ScaleScope::kBlock:
      return write_token_scaled(copy);
  }
}

struct Side {
  const ConstTensorView& source;
  bool query;
  bool rotate;
  Format format;
  float given_tensor_scale;
  ScaleScope scope;
  const TensorView& data;
  const TensorView& scale;
  ScaleScope shared_scope;
  const TensorView& shared_data;
  const TensorView& shared_scale;
};

void zero(const TensorView& t) {
  if (t.data != nullptr) {
    std::memset(t.data, 0, static_cast<std::size_t>(t.numel()) * size_of(t.dtype));
  }
}

// Copies the elements unchanged into (b, h, s, d) order.
void copy_as_given(const Rows& rows, const ConstTensorView& source, std::int64_t begin, const TensorView& data,
                   const Destination& to) {
  const std::size_t bytes = size_of(source.dtype);
  for (std::int64_t i = 0; i < rows.n; ++i) {
    for (std::int64_t c = 0; c < rows.d; ++c) {
      std::memcpy(static_cast<std::byte*>(data.data) +
                      static_cast<std::size_t>(offset_of(data, to.batch, to.head, to.row + i, c)) * bytes,
                  static_cast<const std::byte*>(source.data) +
                      offset_of(source, to.batch, begin + i, to.head, c) * static_cast<std::int64_t>(bytes),
                  bytes);
    }
  }
}

void quantize_side(const AttentionProblem& problem, const Recipe& recipe, const Side& side) {
  zero(side.data);
  zero(side.scale);
  zero(side.shared_data);
  zero(side.shared_scale);
  const std::int64_t heads = side.query ? problem.h_q : problem.h_kv;
  const auto for_each = [&](auto&& visit) {
    for (std::int64_t n = 0; n < problem.b; ++n) {
      const Sequence seq = sequence_of(problem, n);
      for (std::int64_t h = 0; h < heads; ++h) {
        const std::int64_t begin = side.query ? seq.q_begin : seq.kv_begin;
        const Rows rows = load_rows(side.source, seq.batch, begin, side.query ? seq.s_q : seq.s_kv, h, side.rotate);
        visit(rows, begin, Destination{.batch = seq.batch, .head = h, .row = begin, .block = seq.kv_block});
      }
    }
  };

  float tensor_scale = side.given_tensor_scale;
  if (side.scope == ScaleScope::kTensor) {
    if (tensor_scale == 0.0F) {
      Amax amax;
      for_each([&](const Rows& rows, std::int64_t, const Destination&) { amax.add(rows.values); });
      tensor_scale = linear_scale(amax.value(), E4M3::kMax);
    }
    store_bits(side.scale.data, 0, tensor_scale);
  }
  for_each([&](const Rows& rows, std::int64_t begin, const Destination& to) {
    if (side.format == Format::kAsGiven) {
      copy_as_given(rows, side.source, begin, side.data, to);
      return;
    }
    write_copy({rows, side.format, side.scope, recipe.mx_rounding, side.data, side.scale, to}, tensor_scale);
    write_copy({rows, side.format, side.shared_scope, recipe.mx_rounding, side.shared_data, side.shared_scale, to},
               tensor_scale);
  });
}

}  // namespace

void quantize_host(const AttentionProblem& problem, const Recipe& recipe, const ConstTensorView& q,
                   const ConstTensorView& k, const ConstTensorView& v, const QuantizedQKV& out) {
  const TensorView absent;
  quantize_side(problem, recipe,
                {.source = q,
                 .query = true,
                 .rotate = recipe.rotate_qk,
                 .format = recipe.qk,
                 .given_tensor_scale = recipe.tensor_scale_q,
                 .scope = recipe.qk_scale,
                 .data = out.q,
                 .scale = out.q_scale,
                 .shared_scope = ScaleScope::kNone,
                 .shared_data = absent,
                 .shared_scale = absent});
  quantize_side(problem, recipe,
                {.source = k,
                 .query = false,
                 .rotate = recipe.rotate_qk,
                 .format = recipe.qk,
                 .given_tensor_scale = recipe.tensor_scale_k,
                 .scope = recipe.qk_scale,
                 .data = out.k,
                 .scale = out.k_scale,
                 .shared_scope = recipe.k_shared_scale,
                 .shared_data = out.k_shared,
                 .shared_scale = out.k_shared_scale});
  quantize_side(problem, recipe,
                {.source = v,
                 .query = false,
                 .rotate = false,
                 .format = recipe.v,
                 .given_tensor_scale = recipe.tensor_scale_v,
                 .scope = recipe.v_scale,
                 .data = out.v,
                 .scale = out.v_scale,
                 .shared_scope = recipe.v_shared_scale,
                 .shared_data = out.v_shared,
                 .shared_scale = out.v_shared_scale});
}

std::uint8_t quantize_row_e4m3(const float* row, std::int64_t n, int min_exponent, int max_exponent,
                               std::uint8_t* bytes) {
  const std::span<const float> values(row, static_cast<std::size_t>(n));
  Amax amax;
  amax.add(values);
  const std::uint8_t scale = power_of_two_scale<E4M3>(amax.value(), ScaleRounding::kUp, min_exponent, max_exponent);
  for (std::size_t c = 0; c < values.size(); ++c) {
    bytes[c] = element_e4m3(values[c], scale);
  }
  return scale;
}

}  // namespace checkvalve::numerics
