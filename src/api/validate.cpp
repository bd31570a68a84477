// validate.cpp: argument checks shared by all backends.
#include "api/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "api/sequences.h"
#include "checkvalve/error.h"

namespace checkvalve {
namespace {

constexpr std::int64_t kMaxHeadDim = 256;

void check_at_least(std::string_view name, std::int64_t value, std::int64_t least) {
  if (value < least) {
    throw InvalidArgument(fmt::format("{} is {}; accepted: {} or more", name, value, least));
  }
}

void check_head_dim(std::string_view name, std::int64_t value) {
  if (value < 1 || value > kMaxHeadDim) {
    throw InvalidArgument(fmt::format("{} is {}; accepted: 1 to {}", name, value, kMaxHeadDim));
  }
}

void check_shape(std::string_view name, const ConstTensorView& view, std::initializer_list<std::int64_t> expected) {
  const bool fits = view.rank == static_cast<int>(expected.size()) &&
                    std::equal(expected.begin(), expected.end(), view.shape.begin());
  if (!fits) {
    std::array<std::int64_t, kMaxRank> shape{};
    std::copy(expected.begin(), expected.end(), shape.begin());
    const auto wanted =
        make_dense(static_cast<const void*>(nullptr), view.dtype, static_cast<int>(expected.size()), shape);
    throw InvalidArgument(fmt::format("{} is {}; the problem needs {}", name, to_string(view), to_string(wanted)));
  }
}

void check_dtype_device(std::string_view name, const ConstTensorView& view, DType dtype, Device device) {
  if (view.dtype != dtype) {
    throw InvalidArgument(fmt::format("{} is {}; accepted here: {}, convert it or change the problem's dtype", name,
                                      name_of(view.dtype), name_of(dtype)));
  }
  if (view.device != device) {
    throw InvalidArgument(fmt::format("{} is in {} memory but q is in {} memory; move one of them", name,
                                      view.device == Device::kHost ? "host" : "device",
                                      device == Device::kHost ? "host" : "device"));
  }
  if (view.data == nullptr && view.numel() != 0) {
    throw InvalidArgument(fmt::format("{} is missing: its data pointer is null", name));
  }
}

void check_cumulative(std::string_view name, const std::int32_t* cu, std::int64_t b, std::string_view total_name,
                      std::int64_t total, std::int64_t longest, std::string_view longest_name) {
  if (cu[0] != 0) {
    throw InvalidArgument(fmt::format("{}[0] is {}; it must be 0", name, cu[0]));
  }
  for (std::int64_t n = 0; n < b; ++n) {
    if (cu[n + 1] < cu[n]) {
      throw InvalidArgument(
          fmt::format("{} decreases from {} to {} at entry {}; it must never decrease", name, cu[n], cu[n + 1], n + 1));
    }
    if (cu[n + 1] - cu[n] > longest) {
      throw InvalidArgument(fmt::format("sequence {} of {} has {} rows but {} is {}; raise {}", n, name,
                                        cu[n + 1] - cu[n], longest_name, longest, longest_name));
    }
  }
  if (cu[b] > total) {
    throw InvalidArgument(fmt::format("{}[{}] is {} but {} is {}; the sequences do not fit into the packed tensor",
                                      name, b, cu[b], total_name, total));
  }
}

void check_used(std::string_view name, const std::int32_t* used, std::int64_t b, std::int64_t longest) {
  for (std::int64_t n = 0; n < b; ++n) {
    if (used[n] < 0 || used[n] > longest) {
      throw InvalidArgument(fmt::format("{}[{}] is {}; accepted: 0 to {}", name, n, used[n], longest));
    }
  }
}

}  // namespace

void validate_problem(const AttentionProblem& p, const Recipe& recipe, const Options& options) {
  check_at_least("b", p.b, 0);
  check_at_least("h_q", p.h_q, 1);
  check_at_least("h_kv", p.h_kv, 1);
  check_at_least("s_q", p.s_q, 0);
  check_at_least("s_kv", p.s_kv, 0);
  check_head_dim("d_qk (head_dim of q and k)", p.d_qk);
  check_head_dim("d_v (head_dim of v)", p.d_v);
  if (p.h_q % p.h_kv != 0) {
    throw InvalidArgument(fmt::format(
        "h_q is {} and h_kv is {}; the query heads must be a multiple of the key/value heads", p.h_q, p.h_kv));
  }
  if (p.dtype != DType::kFloat32 && p.dtype != DType::kBFloat16 && p.dtype != DType::kFloat16) {
    throw InvalidArgument(fmt::format("q, k and v are {}; accepted: float32, bfloat16, float16", name_of(p.dtype)));
  }
  if (p.out_dtype != p.dtype && p.out_dtype != DType::kFloat32) {
    throw InvalidArgument(fmt::format("the output dtype is {}; accepted: {} (that of q) or float32",
                                      name_of(p.out_dtype), name_of(p.dtype)));
  }
  if (p.window_left < -1) {
    throw InvalidArgument(fmt::format("window_left is {}; accepted: -1 (no window) or 0 and more", p.window_left));
  }
  if (p.softmax_scale && !(std::isfinite(*p.softmax_scale) && *p.softmax_scale > 0.0F)) {
    throw InvalidArgument(fmt::format("softmax_scale is {}; accepted: a positive finite number", *p.softmax_scale));
  }
  if ((p.cu_seqlens_q == nullptr) != (p.cu_seqlens_kv == nullptr)) {
    throw InvalidArgument("only one of cu_seqlens_q and cu_seqlens_kv is given; packed sequences need both");
  }
  if (p.packed() && (p.seqused_q != nullptr || p.seqused_kv != nullptr)) {
    throw InvalidArgument("seqused_q or seqused_kv is given together with cu_seqlens; give only one of the two");
  }
  if (!p.packed() && (p.total_q != 0 || p.total_kv != 0)) {
    throw InvalidArgument("total_q or total_kv is given without cu_seqlens; leave them 0");
  }
  for (const auto& [name, scale] : {std::pair{"tensor_scale_q", recipe.tensor_scale_q},
                                    {"tensor_scale_k", recipe.tensor_scale_k},
                                    {"tensor_scale_v", recipe.tensor_scale_v}}) {
    if (!(std::isfinite(scale) && scale >= 0.0F)) {
      throw InvalidArgument(
          fmt::format("{} is {}; accepted: a positive finite number, or 0 to compute it from this call", name, scale));
    }
  }
  if (recipe.leaks() && !options.allow_leak) {
    throw InvalidArgument(fmt::format(
        "recipe '{}' lets earlier tokens see later ones (it shares a scale between them); pass allow_leak to run it "
        "anyway, or use '{}'",
        recipe.name, kDefaultRecipe));
  }
  if (options.own_block_two_pass && recipe.token_copy != TokenCopyRule::kOwnBlock) {
    throw InvalidArgument(
        fmt::format("own_block_two_pass is set for recipe '{}'; it is for mxfp8_own_block only", recipe.name));
  }
}

void validate_lengths(const AttentionProblem& p) {
  if (p.packed()) {
    check_cumulative("cu_seqlens_q", p.cu_seqlens_q, p.b, "total_q", p.total_q, p.s_q, "s_q");
    check_cumulative("cu_seqlens_kv", p.cu_seqlens_kv, p.b, "total_kv", p.total_kv, p.s_kv, "s_kv");
  }
  if (p.seqused_q != nullptr) check_used("seqused_q", p.seqused_q, p.b, p.s_q);
  if (p.seqused_kv != nullptr) check_used("seqused_kv", p.seqused_kv, p.b, p.s_kv);
}

void validate_tensor(std::string_view name, const ConstTensorView& view, const AttentionProblem& p, RowsOf rows,
                     std::int64_t head_dim, DType dtype, Device device) {
  const TensorSizes sizes = tensor_sizes(p);
  const bool query = rows == RowsOf::kQuery;
  check_shape(name, view, {sizes.b, query ? sizes.rows_q : sizes.rows_kv, query ? p.h_q : p.h_kv, head_dim});
  check_dtype_device(name, view, dtype, device);
}

void validate_lse(const ConstTensorView& lse, const AttentionProblem& p, DType dtype, Device device) {
  if (p.packed()) {
    check_shape("lse", lse, {p.h_q, p.total_q});
  } else {
    check_shape("lse", lse, {p.b, p.h_q, p.s_q});
  }
  check_dtype_device("lse", lse, dtype, device);
}

void validate_quantized(const QuantizedQKV& operands, const AttentionProblem& problem, const Recipe& recipe) {
  const QuantizedQKV layout = quantized_layout(problem, recipe);
  const struct {
    std::string_view name;
    const TensorView& given;
    const TensorView& wanted;
  } tensors[] = {
      {"q", operands.q, layout.q},
      {"q_scale", operands.q_scale, layout.q_scale},
      {"k", operands.k, layout.k},
      {"k_scale", operands.k_scale, layout.k_scale},
      {"k_shared", operands.k_shared, layout.k_shared},
      {"k_shared_scale", operands.k_shared_scale, layout.k_shared_scale},
      {"v", operands.v, layout.v},
      {"v_scale", operands.v_scale, layout.v_scale},
      {"v_shared", operands.v_shared, layout.v_shared},
      {"v_shared_scale", operands.v_shared_scale, layout.v_shared_scale},
  };
  for (const auto& [name, given, wanted] : tensors) {
    if (given.rank != wanted.rank || given.shape != wanted.shape || given.strides != wanted.strides ||
        given.dtype != wanted.dtype) {
      throw InvalidArgument(fmt::format("quantized operand {} is {}; recipe '{}' needs a dense {}", name,
                                        given.rank == 0 ? "absent" : to_string(given), recipe.name,
                                        wanted.rank == 0 ? "absent one" : to_string(wanted)));
    }
    if (given.data == nullptr && wanted.rank != 0 && wanted.numel() != 0) {
      throw InvalidArgument(fmt::format("quantized operand {} is missing: its data pointer is null", name));
    }
  }
}

}  // namespace checkvalve
