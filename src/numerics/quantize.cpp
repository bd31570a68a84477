// quantize.cpp: rowwise and columnwise MX, token, block, tensor and INT8 quantisation of host tensors.
#include "numerics/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
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

// Writes the elements and scales of one operand copy. `tensor_scale` is for ScaleScope::kTensor.
void write_copy(const Rows& rows, const Recipe& recipe, Format format, ScaleScope scope, float tensor_scale,
                const TensorView& data, const TensorView& scale, const Destination& to) {
  const auto row_bytes = [&](std::int64_t i) { return bytes_at(data, offset_of(data, to.batch, to.head, to.row + i)); };
  switch (scope) {
    case ScaleScope::kNone:
      break;
    case ScaleScope::kTensor:
      for (std::int64_t i = 0; i < rows.n; ++i) {
        for (std::int64_t c = 0; c < rows.d; ++c) {
          const float x = rows.row(i)[static_cast<std::size_t>(c)] / tensor_scale;
          row_bytes(i)[c] = is_finite(tensor_scale) ? encode_e4m3(x) : std::uint8_t{0};
        }
      }
      break;
    case ScaleScope::kRow32:
      for (std::int64_t i = 0; i < rows.n; ++i) {
        for (std::int64_t c = 0; c < rows.d; c += kMxBlock) {
          const auto group = rows.row(i).subspan(static_cast<std::size_t>(c),
                                                 static_cast<std::size_t>(std::min(kMxBlock, rows.d - c)));
          Amax amax;
          amax.add(group);
          const std::uint8_t byte = power_of_two_scale<E4M3>(amax.value(), recipe.mx_rounding);
          *bytes_at(scale, offset_of(scale, to.batch, to.head, to.row + i, c / kMxBlock)) = byte;
          for (std::size_t g = 0; g < group.size(); ++g) {
            row_bytes(i)[c + static_cast<std::int64_t>(g)] = element_e4m3(group[g], byte);
          }
        }
      }
      break;
    case ScaleScope::kColumn32:
      for (std::int64_t i0 = 0; i0 < rows.n; i0 += kBlockTokens) {
        const std::int64_t i1 = std::min(i0 + kBlockTokens, rows.n);
        for (std::int64_t c = 0; c < rows.d; ++c) {
          Amax amax;
          for (std::int64_t i = i0; i < i1; ++i) {
            amax.add(rows.row(i)[static_cast<std::size_t>(c)]);
          }
          const std::uint8_t byte = power_of_two_scale<E4M3>(amax.value(), recipe.mx_rounding);
          *bytes_at(scale, offset_of(scale, to.batch, to.head, to.block + i0 / kBlockTokens, c)) = byte;
          for (std::int64_t i = i0; i < i1; ++i) {
            row_bytes(i)[c] = element_e4m3(rows.row(i)[static_cast<std::size_t>(c)], byte);
          }
        }
      }
      break;
    case ScaleScope::kToken:
    case ScaleScope::kBlock: {
      const bool per_token = scope == ScaleScope::kToken;
      const std::int64_t unit = per_token ? 1 : kBlockTokens;
      for (std::int64_t i0 = 0; i0 < rows.n; i0 += unit) {
        const std::int64_t i1 = std::min(i0 + unit, rows.n);
        Amax amax;
        for (std::int64_t i = i0; i < i1; ++i) {
          amax.add(rows.row(i));
        }
        const std::int64_t scale_at =
            offset_of(scale, to.batch, to.head, per_token ? to.row + i0 : to.block + i0 / kBlockTokens);
        if (format == Format::kInt8) {
          const float s = linear_scale(amax.value(), 127.0F);
          store_bits(scale.data, scale_at, s);
          for (std::int64_t i = i0; i < i1; ++i) {
            for (std::int64_t c = 0; c < rows.d; ++c) {
              const float x = rows.row(i)[static_cast<std::size_t>(c)];
              row_bytes(i)[c] = is_finite(s) ? static_cast<std::uint8_t>(encode_int8(x, s)) : std::uint8_t{0};
            }
          }
        } else {
          const std::uint8_t byte =
              power_of_two_scale<E4M3>(amax.value(), ScaleRounding::kUp, kFoldMinExponent, kFoldMaxExponent);
          *bytes_at(scale, scale_at) = byte;
          for (std::int64_t i = i0; i < i1; ++i) {
            for (std::int64_t c = 0; c < rows.d; ++c) {
              row_bytes(i)[c] = element_e4m3(rows.row(i)[static_cast<std::size_t>(c)], byte);
            }
          }
        }
      }
      break;
    }
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
    write_copy(rows, recipe, side.format, side.scope, tensor_scale, side.data, side.scale, to);
    write_copy(rows, recipe, side.format, side.shared_scope, tensor_scale, side.shared_data, side.shared_scale, to);
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
