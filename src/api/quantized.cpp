// quantized.cpp: shapes and host storage of quantised operands.
#include <algorithm>
#include <array>
#include <initializer_list>
#include <memory>

#include "api/sequences.h"
#include "checkvalve/attention.h"

namespace checkvalve {
namespace {

constexpr std::size_t kAlignment = 64;

TensorView dense(DType dtype, std::initializer_list<std::int64_t> shape) {
  std::array<std::int64_t, kMaxRank> sizes{};
  std::copy(shape.begin(), shape.end(), sizes.begin());
  return make_dense(static_cast<void*>(nullptr), dtype, static_cast<int>(shape.size()), sizes);
}

DType element_dtype(Format format, DType given) {
  switch (format) {
    case Format::kE4M3:
      return DType::kE4M3;
    case Format::kInt8:
      return DType::kInt8;
    default:
      return given;
  }
}

// The scales of an operand with h heads, s rows and head_dim d; rank 0 if it has none.
TensorView scale_of(ScaleScope scope, Format format, const TensorSizes& sizes, std::int64_t h, std::int64_t s,
                    std::int64_t d) {
  const DType unit = format == Format::kInt8 ? DType::kFloat32 : DType::kE8M0;
  switch (scope) {
    case ScaleScope::kNone:
      return {};
    case ScaleScope::kTensor:
      return dense(DType::kFloat32, {1});
    case ScaleScope::kRow32:
      return dense(DType::kE8M0, {sizes.b, h, s, (d + 31) / 32});
    case ScaleScope::kColumn32:
      return dense(DType::kE8M0, {sizes.b, h, sizes.blocks, d});
    case ScaleScope::kToken:
      return dense(unit, {sizes.b, h, s});
    case ScaleScope::kBlock:
      return dense(unit, {sizes.b, h, sizes.blocks});
  }
  return {};
}

}  // namespace

QuantizedQKV quantized_layout(const AttentionProblem& p, const Recipe& r) {
  const TensorSizes sizes = tensor_sizes(p);
  QuantizedQKV t;
  t.q = dense(element_dtype(r.qk, p.dtype), {sizes.b, p.h_q, sizes.rows_q, p.d_qk});
  t.q_scale = scale_of(r.qk_scale, r.qk, sizes, p.h_q, sizes.rows_q, p.d_qk);
  t.k = dense(element_dtype(r.qk, p.dtype), {sizes.b, p.h_kv, sizes.rows_kv, p.d_qk});
  t.k_scale = scale_of(r.qk_scale, r.qk, sizes, p.h_kv, sizes.rows_kv, p.d_qk);
  if (r.k_shared_scale != ScaleScope::kNone) {
    t.k_shared = t.k;
    t.k_shared_scale = scale_of(r.k_shared_scale, r.qk, sizes, p.h_kv, sizes.rows_kv, p.d_qk);
  }
  t.v = dense(element_dtype(r.v, p.dtype), {sizes.b, p.h_kv, sizes.rows_kv, p.d_v});
  t.v_scale = scale_of(r.v_scale, r.v, sizes, p.h_kv, sizes.rows_kv, p.d_v);
  if (r.v_shared_scale != ScaleScope::kNone) {
    t.v_shared = t.v;
    t.v_shared_scale = scale_of(r.v_shared_scale, r.v, sizes, p.h_kv, sizes.rows_kv, p.d_v);
  }
  return t;
}

HostQuantizedQKV allocate_quantized(const AttentionProblem& problem, const Recipe& recipe) {
  HostQuantizedQKV result{.tensors = quantized_layout(problem, recipe), .storage = {}};
  QuantizedQKV& t = result.tensors;
  TensorView* const all[] = {&t.q, &t.q_scale, &t.k,        &t.k_scale,       &t.k_shared, &t.k_shared_scale,
                             &t.v, &t.v_scale, &t.v_shared, &t.v_shared_scale};
  const auto bytes_of = [](const TensorView& view) {
    const auto bytes = view.rank == 0 ? 0 : static_cast<std::size_t>(view.numel()) * size_of(view.dtype);
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  };
  std::size_t total = kAlignment;
  for (const TensorView* view : all) {
    total += bytes_of(*view);
  }
  result.storage.resize(total);
  void* at = result.storage.data();
  for (TensorView* view : all) {
    const std::size_t bytes = bytes_of(*view);
    std::align(kAlignment, bytes, at, total);
    view->data = view->rank == 0 ? nullptr : at;
    at = static_cast<std::byte*>(at) + bytes;
    total -= bytes;
  }
  return result;
}

}  // namespace checkvalve
