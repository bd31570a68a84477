// audit_recipes_test.cpp: the public audit on the built-in recipes: the leaky ones are caught, the others are clean.
#include <gmock/gmock.h>

#include <random>
#include <set>
#include <string>
#include <vector>

#include "checkvalve/audit.h"
#include "numerics/element.h"

namespace checkvalve {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

// Three spans, so that some keys of int8_token and mxfp8_token are read from their shared copies.
constexpr std::int64_t kTokens = 320;
constexpr std::int64_t kQueryHeads = 2;
constexpr std::int64_t kHeadDim = 32;

// The audit of `recipe` on normally distributed bfloat16 data.
AuditReport audit_recipe(const std::string& recipe, const Options& run = {}) {
  std::mt19937 generator(11);
  std::normal_distribution<float> normal;
  std::vector<std::vector<std::uint16_t>> storage;
  const auto tensor = [&](std::int64_t heads) {
    auto& bits = storage.emplace_back(static_cast<std::size_t>(kTokens * heads * kHeadDim));
    for (std::uint16_t& element : bits) {
      element = numerics::float_to_bf16(normal(generator));
    }
    return make_view(static_cast<const void*>(bits.data()), DType::kBFloat16, Layout::kBshd, 1, kTokens, heads,
                     kHeadDim);
  };
  const ConstTensorView q = tensor(kQueryHeads);
  const ConstTensorView k = tensor(1);
  const ConstTensorView v = tensor(1);
  AttentionProblem problem = problem_of(q, k, v);
  problem.out_dtype = DType::kFloat32;
  return audit(recipe_callable(recipe_from_name(recipe), run), problem, q, k, v, {.influence_bins = 10});
}

std::set<std::string> properties(const AuditReport& report) {
  std::set<std::string> all;
  for (const Leak& leak : report.leaks) {
    all.insert(leak.property);
  }
  return all;
}

// A recipe and how it is run.
struct Case {
  std::string name;
  std::string recipe;
  Options run{};
};

Options two_pass() {
  Options options;
  options.own_block_two_pass = true;
  return options;
}

Options rebased_diagonal_first() {
  Options options;
  options.rebase_mx = true;
  options.tile_order = TileOrder::kDiagonalFirst;
  return options;
}

Options hybrid() {
  Options options;
  options.backward = BackwardPrecision::kHybrid;
  return options;
}

class AuditCleanRecipe : public ::testing::TestWithParam<Case> {};

TEST_P(AuditCleanRecipe, IsCleanBitForBit) {
  const AuditReport report = audit_recipe(GetParam().recipe, GetParam().run);
  EXPECT_EQ(report.verdict, Verdict::kClean) << report.to_string();
  EXPECT_THAT(report.influence.leaked, Each(0.0));
  EXPECT_THAT(report.negative_control, HasSubstr("causal: caught; gradient: caught; key_gradient: caught"));
}

INSTANTIATE_TEST_SUITE_P(
    Recipes, AuditCleanRecipe,
    ::testing::Values(Case{"bf16", "bf16"}, Case{"mxfp8_own_block", "mxfp8_own_block"},
                      Case{"mxfp8_own_block_two_pass", "mxfp8_own_block", two_pass()},
                      Case{"mxfp8_token", "mxfp8_token"},
                      Case{"mxfp8_token_rebased_diagonal_first", "mxfp8_token", rebased_diagonal_first()},
                      Case{"int8_token", "int8_token"}, Case{"int8_token_hybrid", "int8_token", hybrid()}),
    [](const auto& instance) { return instance.param.name; });

TEST(AuditLeakyRecipe, TensorScalesLeakEverywhere) {
  const AuditReport report = audit_recipe("fp8_tensor");
  EXPECT_EQ(report.verdict, Verdict::kLeak);
  EXPECT_THAT(properties(report), ::testing::IsSupersetOf({"causal", "gradient", "key_gradient"}));
  std::set<std::string> causes;
  for (const Leak& leak : report.leaks) {
    causes.insert(leak.operand + " " + name_of(leak.region));
  }
  EXPECT_THAT(report.to_string(), HasSubstr("more of the same by other perturbations"));
  for (const std::string operand : {"q", "k", "v"}) {
    for (const std::string region : {"own_block", "own_span", "beyond"}) {
      EXPECT_THAT(causes, Contains(operand + " " + region));
    }
  }
}

TEST(AuditLeakyRecipe, ColumnwiseMxLeaksVInsideTheBlock) {
  const AuditReport report = audit_recipe("mxfp8");
  EXPECT_EQ(report.verdict, Verdict::kLeak);
  std::set<std::string> finite;
  std::set<std::string> non_finite;
  for (const Leak& leak : report.leaks) {
    if (leak.property == "causal") {
      const bool is_finite = leak.perturbation != Perturbation::kNaN && leak.perturbation != Perturbation::kInf;
      (is_finite ? finite : non_finite).insert(leak.tensor + " " + leak.operand + " " + name_of(leak.region));
    }
  }
  EXPECT_THAT(finite, UnorderedElementsAre("out v own_block"));
  // A NaN scale, unlike a wrong one, reaches the lse.
  EXPECT_THAT(non_finite, UnorderedElementsAre("out v own_block", "lse v own_block"));
}

}  // namespace
}  // namespace checkvalve
