// recipe.cpp: the built-in recipes, and which scales look at later tokens.
#include "checkvalve/recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "checkvalve/error.h"

namespace checkvalve {
namespace {

Recipe high_precision(const char* name, Format p) { return Recipe{.name = name, .p = p}; }

Recipe mx(const char* name) {
  return Recipe{
      .name = name, .qk = Format::kE4M3, .qk_scale = ScaleScope::kRow32, .v = Format::kE4M3, .p = Format::kE4M3};
}

Recipe fp8_tensor() {
  Recipe r = mx("fp8_tensor");
  r.qk_scale = ScaleScope::kTensor;
  r.v_scale = ScaleScope::kTensor;
  return r;
}

Recipe mxfp8() {
  Recipe r = mx("mxfp8");
  r.v_scale = ScaleScope::kColumn32;
  return r;
}

Recipe mxfp8_own_block() {
  Recipe r = mx("mxfp8_own_block");
  r.v_scale = ScaleScope::kToken;
  r.v_shared_scale = ScaleScope::kColumn32;
  r.token_copy = TokenCopyRule::kOwnBlock;
  r.folded = true;
  return r;
}

Recipe mxfp8_token() {
  Recipe r = mx("mxfp8_token");
  r.v_scale = ScaleScope::kToken;
  r.v_shared_scale = ScaleScope::kBlock;
  r.token_copy = TokenCopyRule::kFirstAndOwnSpan;
  r.folded = true;
  return r;
}

Recipe int8_token() {
  Recipe r = mxfp8_token();
  r.name = "int8_token";
  r.qk = Format::kInt8;
  r.qk_scale = ScaleScope::kToken;
  r.k_shared_scale = ScaleScope::kBlock;
  r.rotate_qk = true;
  return r;
}

const std::array<Recipe, 8>& table() {
  static const std::array<Recipe, 8> kRecipes = {high_precision("fp32", Format::kFloat32),
                                                 high_precision("bf16", Format::kBFloat16),
                                                 high_precision("fp16", Format::kFloat16),
                                                 fp8_tensor(),
                                                 mxfp8(),
                                                 mxfp8_own_block(),
                                                 mxfp8_token(),
                                                 int8_token()};
  return kRecipes;
}

bool spans_tokens(ScaleScope scope) {
  return scope == ScaleScope::kTensor || scope == ScaleScope::kColumn32 || scope == ScaleScope::kBlock;
}

}  // namespace

bool Recipe::leaks() const {
  // A shared copy is read only for completed blocks (span_rule.h); the token copy is read for the row's own block.
  // A tensor scale that the caller fixed looks at no data of this call.
  const auto looks_ahead = [](ScaleScope scope, float given) {
    return spans_tokens(scope) && !(scope == ScaleScope::kTensor && given != 0.0F);
  };
  return looks_ahead(qk_scale, tensor_scale_q) || looks_ahead(qk_scale, tensor_scale_k) ||
         looks_ahead(v_scale, tensor_scale_v);
}

std::span<const Recipe> recipes() { return table(); }

const Recipe& recipe_from_name(std::string_view name) {
  const auto found = std::ranges::find(table(), name, &Recipe::name);
  if (found != table().end()) {
    return *found;
  }
  std::string names;
  for (const Recipe& r : table()) {
    fmt::format_to(std::back_inserter(names), "{}{}", names.empty() ? "" : ", ", r.name);
  }
  throw InvalidArgument(fmt::format("recipe '{}' is not known (accepted: {})", name, names));
}

}  // namespace checkvalve
