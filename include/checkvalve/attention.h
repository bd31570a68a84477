// attention.h: quantize, forward, backward, and the merge of two partial results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "checkvalve/problem.h"
#include "checkvalve/recipe.h"
#include "checkvalve/tensor.h"

namespace checkvalve {

enum class BackwardPrecision : std::uint8_t {
  kBFloat16,  // five products on bf16 operands
  kHybrid,    // Q K^T and dO V^T on 8-bit operands, the three that reduce over tokens in bf16
};

enum class TileOrder : std::uint8_t {
  kFirstToLast,    // key tiles from token 0 up to the diagonal
  kDiagonalFirst,  // from the diagonal down to token 0
};

// How a call is to be run. The defaults are right for a user; the rest lets tests mirror a backend exactly.
struct Options {
  std::string backend;      // empty: the first backend that can serve; a name: that one or an error
  bool allow_leak = false;  // required by a recipe whose scales look at later tokens
  BackwardPrecision backward = BackwardPrecision::kBFloat16;

  TileOrder tile_order = TileOrder::kFirstToLast;
  // Re-express MX elements on one power-of-two scale per token or per block, as hardware without block-scaled MMA does.
  bool rebase_mx = false;
  // mxfp8_own_block as two passes joined by merge_partials (the published composition) instead of one folded pass.
  bool own_block_two_pass = false;

  void* workspace = nullptr;  // device backends: at least workspace_bytes(...) bytes; host backends ignore it
  std::size_t workspace_size = 0;
  void* stream = nullptr;  // device backends: a cudaStream_t
};

// What ran.
struct Report {
  std::string backend_used;
  std::string recipe_used;
  bool leaks = false;  // the recipe shares scales with later tokens
};

// Quantised operands. All tensors are dense and row-major; n_rows is the s of the tensor (total tokens if packed, with
// b = 1), n_blocks(s) = ceil(s / 32) blocks counted from each sequence's own token 0; packed: the blocks of sequence n
// start at cu[n] / 32 + n, and there are total_kv / 32 + b of them. Absent tensors have data == nullptr and rank 0.
struct QuantizedQKV {
  TensorView q;        // (b, h_q, s_q, d_qk)     e4m3 or int8; the high-precision recipes: the input's dtype
  TensorView q_scale;  // kRow32: e8m0 (b, h_q, s_q, ceil(d_qk/32)); kToken: float32 (b, h_q, s_q); kTensor: float32 (1)
  TensorView k;        // (b, h_kv, s_kv, d_qk)   token copy
  TensorView k_scale;  // as q_scale with h_kv, s_kv
  TensorView k_shared;        // (b, h_kv, s_kv, d_qk)   shared copy of int8_token
  TensorView k_shared_scale;  // float32 (b, h_kv, n_blocks)
  TensorView v;               // (b, h_kv, s_kv, d_v)    token copy (the only copy under TokenCopyRule::kAll)
  TensorView v_scale;   // kToken: e8m0 (b, h_kv, s_kv); kColumn32: e8m0 (b, h_kv, n_blocks, d_v); kTensor: float32 (1)
  TensorView v_shared;  // (b, h_kv, s_kv, d_v)    shared copy
  TensorView v_shared_scale;  // kBlock: e8m0 (b, h_kv, n_blocks); kColumn32: e8m0 (b, h_kv, n_blocks, d_v)
};

// The tensors that `recipe` needs for `problem`: shapes, strides and dtypes set, data null.
[[nodiscard]] QuantizedQKV quantized_layout(const AttentionProblem& problem, const Recipe& recipe);

// A QuantizedQKV in host memory together with its storage.
struct HostQuantizedQKV {
  QuantizedQKV tensors;
  std::vector<std::byte> storage;
};
[[nodiscard]] HostQuantizedQKV allocate_quantized(const AttentionProblem& problem, const Recipe& recipe);

// Quantises q (b, s_q, h_q, d_qk), k (b, s_kv, h_kv, d_qk), v (b, s_kv, h_kv, d_v) into caller-allocated `out`.
// The bytes are the same on every backend.
Report quantize(const AttentionProblem& problem, const Recipe& recipe, const ConstTensorView& q,
                const ConstTensorView& k, const ConstTensorView& v, const QuantizedQKV& out,
                const Options& options = {});

// out (b, s_q, h_q, d_v) = softmax(q k^T * scale + mask) v; lse (b, h_q, s_q), or (h_q, total_q) if packed, is the
// natural log of the softmax denominator in float32 and may be absent. q, k, v as for quantize. Strides of any kind;
// inputs are never written to. Throws InvalidArgument, or Unsupported with every backend's reasons.
Report forward(const AttentionProblem& problem, const Recipe& recipe, const ConstTensorView& q,
               const ConstTensorView& k, const ConstTensorView& v, const TensorView& out, const TensorView& lse,
               const Options& options = {});

// The same from operands that quantize() made; bit for bit equal to the call above.
Report forward(const AttentionProblem& problem, const Recipe& recipe, const QuantizedQKV& operands,
               const TensorView& out, const TensorView& lse, const Options& options = {});

// Gradients of sum(out * d_out): dq, dk, dv with the shapes of q, k, v and problem.out_dtype. lse is the forward's.
// `out` is the forward's output in float32, from which delta_i = sum_d dO_id O_id is taken; if absent, delta_i is
// recomputed as sum_j P_ij dP_ij. An output rounded to 16 bits is refused: it is not accurate enough for delta.
Report backward(const AttentionProblem& problem, const Recipe& recipe, const ConstTensorView& q,
                const ConstTensorView& k, const ConstTensorView& v, const ConstTensorView& out,
                const ConstTensorView& lse, const ConstTensorView& d_out, const TensorView& dq, const TensorView& dk,
                const TensorView& dv, const Options& options = {});

// Bytes of Options::workspace that forward and backward of this call need on the backend that serves it.
[[nodiscard]] std::size_t workspace_bytes(const AttentionProblem& problem, const Recipe& recipe,
                                          const Options& options = {});

// Joins two attention results over disjoint sets of keys, row by row, in float64:
// lse = log(e^lse1 + e^lse2), out = (e^lse1 out1 + e^lse2 out2) / e^lse. An empty partial has lse = -inf and weight
// exactly 0; both empty give out = 0, lse = -inf. out* (b, s, h, d) float32, lse* (b, h, s) float32, host memory;
// `out` and `lse` may alias the first or the second pair.
void merge_partials(const ConstTensorView& out1, const ConstTensorView& lse1, const ConstTensorView& out2,
                    const ConstTensorView& lse2, const TensorView& out, const TensorView& lse);

// The yardstick for errors: float64 attention on the *original* inputs, no quantisation, no rounding of P.
// out and lse are float64, shapes as for forward. Host memory only.
void exact_forward(const AttentionProblem& problem, const ConstTensorView& q, const ConstTensorView& k,
                   const ConstTensorView& v, const TensorView& out, const TensorView& lse);

// Its gradients in float64: dq, dk, dv are float64.
void exact_backward(const AttentionProblem& problem, const ConstTensorView& q, const ConstTensorView& k,
                    const ConstTensorView& v, const ConstTensorView& d_out, const TensorView& dq, const TensorView& dk,
                    const TensorView& dv);

}  // namespace checkvalve
