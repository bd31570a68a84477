// recipe.h: a recipe says which quantisation scales exist and which elements each of them may look at.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace checkvalve {

// How an operand is stored once quantised. kAsGiven keeps the caller's dtype.
enum class Format : std::uint8_t { kAsGiven, kFloat32, kFloat16, kBFloat16, kE4M3, kInt8 };

// The elements that share one scale (per batch and head unless said).
enum class ScaleScope : std::uint8_t {
  kNone,      // no scale
  kTensor,    // one float32 scale for the whole tensor: every token looks at every other
  kRow32,     // one E8M0 scale per token and 32 consecutive channels (MX, rowwise)
  kColumn32,  // one E8M0 scale per channel and 32 consecutive tokens (MX, columnwise)
  kToken,     // one scale per token, over head_dim
  kBlock,     // one scale per 32 consecutive tokens, over tokens and head_dim
};

// Which keys of row i use the token copy of K and V; all other visible keys use the shared copy.
enum class TokenCopyRule : std::uint8_t {
  kAll,              // there is only one copy
  kOwnBlock,         // keys of row i's own 32-token block
  kFirstAndOwnSpan,  // keys 0..127, and keys of row i's own 128-token span
};

enum class ScaleRounding : std::uint8_t {
  kUp,     // smallest power of two with amax <= max * 2^e: no element saturates (Transformer Engine, cuDNN)
  kFloor,  // floor(log2 amax) - emax, the text rule of the OCP MX specification: elements may saturate
};

struct Recipe {
  std::string name;

  Format qk = Format::kAsGiven;
  ScaleScope qk_scale = ScaleScope::kNone;        // of Q, and of K's token copy
  ScaleScope k_shared_scale = ScaleScope::kNone;  // of K's shared copy; kNone: K has one copy
  bool rotate_qk = false;                         // Hadamard rotation of Q and K rows before quantising

  Format v = Format::kAsGiven;
  ScaleScope v_scale = ScaleScope::kNone;         // of V's token copy (its only copy under kAll)
  ScaleScope v_shared_scale = ScaleScope::kNone;  // of V's shared copy; kNone: V has one copy

  TokenCopyRule token_copy = TokenCopyRule::kAll;
  Format p = Format::kFloat32;  // rounding of the unnormalised probabilities
  bool folded = false;          // V's exponents enter the logits (docs/numerics.md, Folding)

  ScaleRounding mx_rounding = ScaleRounding::kUp;  // of kRow32 and kColumn32 scales

  // kTensor only: scales of Q, K, V fixed by the caller (delayed scaling); 0 computes amax / 448 of this call.
  float tensor_scale_q = 0.0F;
  float tensor_scale_k = 0.0F;
  float tensor_scale_v = 0.0F;

  // True if some scale that row i uses may look at a token after i.
  [[nodiscard]] bool leaks() const;
};

// The built-in recipes: fp32, bf16, fp16, fp8_tensor, mxfp8, mxfp8_own_block, mxfp8_token, int8_token.
[[nodiscard]] std::span<const Recipe> recipes();

inline constexpr std::string_view kDefaultRecipe = "int8_token";

// The built-in recipe of that name. Throws InvalidArgument that lists the accepted names.
[[nodiscard]] const Recipe& recipe_from_name(std::string_view name);

}  // namespace checkvalve
