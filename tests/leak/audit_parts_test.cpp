// audit_parts_test.cpp: the pieces of the audit: regions and cuts, perturbations, row comparison, the plan.
#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>

#include "audit/compare.h"
#include "audit/perturb.h"
#include "audit/probe.h"
#include "audit/tokens.h"
#include "numerics/element.h"

namespace checkvalve::audit_detail {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

TEST(AuditTokens, RegionsChangeAtBlocksAndSpansOfTheCut) {
  EXPECT_EQ(region_of(40, 41), Region::kOwnBlock);
  EXPECT_EQ(region_of(40, 63), Region::kOwnBlock);
  EXPECT_EQ(region_of(40, 64), Region::kOwnSpan);
  EXPECT_EQ(region_of(40, 127), Region::kOwnSpan);
  EXPECT_EQ(region_of(40, 128), Region::kBeyond);
  EXPECT_EQ(region_of(40, 31), Region::kOwnSpan);
  EXPECT_EQ(region_of(140, 127), Region::kBeyond);
  EXPECT_EQ(region_of(31, 32), Region::kOwnSpan);
}

TEST(AuditTokens, SplitLeavesOutEmptyRegions) {
  const auto after = split_by_region(31, {.first = 32, .last = 199});
  ASSERT_EQ(after.size(), 2U);
  EXPECT_EQ(after[0].last, 127);
  EXPECT_EQ(after[1].first, 128);
  const auto before = split_by_region(170, {.first = 0, .last = 169});
  ASSERT_EQ(before.size(), 3U);
  EXPECT_EQ(before[0].last, 127);
  EXPECT_EQ(before[1].last, 159);
  EXPECT_EQ(before[2].last, 169);
  EXPECT_TRUE(split_by_region(0, {.first = 0, .last = -1}).empty());
}

TEST(AuditTokens, DefaultCutsLieInsideAtAndAcrossBoundaries) {
  EXPECT_THAT(default_cuts(512), ElementsAre(0, 1, 7, 30, 31, 32, 33, 63, 64, 127, 128, 301, 495, 510));
  EXPECT_THAT(default_cuts(2), ElementsAre(0));
  EXPECT_THAT(default_cuts(32), ElementsAre(0, 1, 7, 15, 30));
  for (std::int64_t s = 2; s < 400; ++s) {
    for (const std::int64_t cut : default_cuts(s)) {
      ASSERT_GE(cut, 0);
      ASSERT_LT(cut, s - 1) << "s = " << s;
    }
    ASSERT_THAT(default_cuts(s), Contains(s - 2));
  }
}

TEST(AuditTokens, DetailedCutsHaveAllRegionsAndLieInDifferentSpans) {
  const auto cuts = default_cuts(512);
  EXPECT_THAT(detailed_cuts(cuts, 512), ElementsAre(301, 33));
  for (const std::int64_t cut : detailed_cuts(cuts, 512)) {
    EXPECT_EQ(split_by_region(cut, {.first = cut + 1, .last = 511}).size(), 3U);
    EXPECT_TRUE(cuts_own_block(cut, 512));
  }
  EXPECT_FALSE(cuts_own_block(31, 512));
  EXPECT_FALSE(cuts_own_block(511, 512));
}

TEST(AuditPlan, EveryOperandPerturbationAndRegionOccursAlone) {
  for (const std::int64_t s : {160, 320, 512, 1000}) {
    std::set<std::tuple<Operand, Perturbation, Region>> causal;
    std::set<std::tuple<Operand, Perturbation, Region>> gradient;
    std::set<std::tuple<Operand, Perturbation, Region>> key_gradient;
    for (const Probe& probe : plan_probes(default_cuts(s), s, true, true)) {
      for (const Probe& single : probe.singles()) {
        const std::tuple key{single.operands.front(), single.perturbation, single.nearest_region()};
        if (probe.property == Property::kCausal && probe.is_single()) {
          EXPECT_GT(probe.tokens.first, probe.cut);
          causal.insert(key);
        } else if (probe.property == Property::kGradient) {
          EXPECT_GT(probe.tokens.first, probe.cut);
          gradient.insert(key);
        } else if (probe.property == Property::kKeyGradient) {
          EXPECT_LT(probe.tokens.last, probe.cut);
          key_gradient.insert(key);
        }
      }
    }
    EXPECT_EQ(causal.size(), 3U * 6U * 3U) << "s = " << s;
    EXPECT_EQ(gradient.size(), 3U * 6U * 3U) << "s = " << s;
    EXPECT_EQ(key_gradient.size(), 2U * 6U * 3U) << "s = " << s;
  }
}

TEST(AuditPlan, EveryCutIsProbedWithEveryPerturbationAndSizeIsModerate) {
  const auto cuts = default_cuts(512);
  const auto plan = plan_probes(cuts, 512, false, true);
  std::set<std::pair<std::int64_t, Perturbation>> probed;
  for (const Probe& probe : plan) {
    ASSERT_EQ(probe.property, Property::kCausal);
    probed.insert({probe.cut, probe.perturbation});
  }
  EXPECT_EQ(probed.size(), cuts.size() * 6U);
  EXPECT_LT(plan.size(), 200U);
  EXPECT_LT(plan_probes(cuts, 512, true, true).size() - plan.size(), 70U);
}

TEST(AuditPlan, FinitePlanHasNoNaNAndNoInf) {
  for (const Probe& probe : plan_probes({7}, 64, true, false)) {
    EXPECT_NE(probe.perturbation, Perturbation::kNaN);
    EXPECT_NE(probe.perturbation, Perturbation::kInf);
  }
}

// Perturbs tokens 1..2 of (1, 4, 1, 1) and returns all four values.
std::vector<double> after(DType dtype, double value, Perturbation perturbation) {
  std::vector<std::byte> bytes(4 * size_of(dtype));
  const auto view = make_dense(static_cast<void*>(bytes.data()), dtype, 4, {1, 4, 1, 1});
  for (std::int64_t i = 0; i < 4; ++i) {
    numerics::store_element(view, i, value);
  }
  perturb(view, {.first = 1, .last = 2}, perturbation);
  std::vector<double> values;
  for (std::int64_t i = 0; i < 4; ++i) {
    values.push_back(numerics::load_element(view, i));
  }
  return values;
}

TEST(AuditPerturb, MultipliesOnlyTheTokensAsked) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    EXPECT_THAT(after(dtype, -1.5, Perturbation::kHuge12), ElementsAre(-1.5, -6144.0, -6144.0, -1.5));
    EXPECT_THAT(after(dtype, 1.5, Perturbation::kTiny), ElementsAre(1.5, 0x1.8p-20, 0x1.8p-20, 1.5));
    EXPECT_THAT(after(dtype, 1.5, Perturbation::kSign), ElementsAre(1.5, -1.5, -1.5, 1.5));
    EXPECT_THAT(after(dtype, 1.5, Perturbation::kInf), ElementsAre(1.5, HUGE_VAL, HUGE_VAL, 1.5));
    const auto nan = after(dtype, 1.5, Perturbation::kNaN);
    EXPECT_EQ(nan[0], 1.5);
    EXPECT_TRUE(std::isnan(nan[1]) && std::isnan(nan[2]));
    EXPECT_EQ(nan[3], 1.5);
  }
}

TEST(AuditPerturb, HugeValuesStopAtTheLargestFiniteOne) {
  EXPECT_EQ(after(DType::kFloat16, 1.0, Perturbation::kHuge20)[1], 65504.0);
  EXPECT_EQ(after(DType::kFloat16, -32.0, Perturbation::kHuge12)[1], -65504.0);
  EXPECT_EQ(after(DType::kBFloat16, 0x1p120, Perturbation::kHuge20)[1], 0x1.FEp127);
  EXPECT_EQ(after(DType::kFloat32, -0x1p120, Perturbation::kHuge20)[1],
            -static_cast<double>(std::numeric_limits<float>::max()));
  EXPECT_EQ(after(DType::kFloat32, 1.0, Perturbation::kHuge20)[1], 0x1p20);
}

TEST(AuditPerturb, ZerosBecomeTheFactorAndTinyMayVanish) {
  EXPECT_EQ(after(DType::kFloat32, 0.0, Perturbation::kHuge12)[1], 4096.0);
  EXPECT_EQ(after(DType::kFloat16, 0.0, Perturbation::kHuge20)[1], 65504.0);
  EXPECT_EQ(after(DType::kFloat16, 0x1p-10, Perturbation::kTiny)[1], 0.0);
}

ConstTensorView rows_of(const std::vector<float>& values, std::int64_t s, std::int64_t h, std::int64_t d) {
  return make_dense(static_cast<const void*>(values.data()), DType::kFloat32, 4, {1, s, h, d});
}

TEST(AuditCompare, FindsTheFirstElementOfTheEarliestRow) {
  const std::vector<float> a{1, 2, 3, 4, 5, 6, 7, 8};  // (1, 2, 2, 2)
  std::vector<float> b = a;
  b[3] = 0.0F;
  b[6] = 0.0F;
  const auto found = compare_rows(rows_of(a, 2, 2, 2), rows_of(b, 2, 2, 2), {.first = 0, .last = 1});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->row, 0);
  EXPECT_EQ(found->head, 1);
  EXPECT_EQ(found->element, 1);
  EXPECT_EQ(found->before, 4.0);
  EXPECT_EQ(found->after, 0.0);
  EXPECT_DOUBLE_EQ(found->relative_change, std::max(4.0 / 5.0, 7.0 / std::sqrt(49.0 + 64.0)));
  const auto second_row = compare_rows(rows_of(a, 2, 2, 2), rows_of(b, 2, 2, 2), {.first = 1, .last = 1});
  ASSERT_TRUE(second_row.has_value());
  EXPECT_EQ(second_row->row, 1);
  b[6] = a[6];
  EXPECT_FALSE(compare_rows(rows_of(a, 2, 2, 2), rows_of(b, 2, 2, 2), {.first = 1, .last = 1}).has_value());
}

TEST(AuditCompare, ComparesBytes) {
  const TokenRange row{.first = 0, .last = 0};
  const std::vector<float> nan{kNaN, 1.0F};
  EXPECT_FALSE(compare_rows(rows_of(nan, 1, 1, 2), rows_of(nan, 1, 1, 2), row).has_value());
  const std::vector<float> other_nan{std::bit_cast<float>(0x7FC00001U), 1.0F};
  EXPECT_TRUE(compare_rows(rows_of(nan, 1, 1, 2), rows_of(other_nan, 1, 1, 2), row).has_value());
  const auto zeros = compare_rows(rows_of({0.0F, 1.0F}, 1, 1, 2), rows_of({-0.0F, 1.0F}, 1, 1, 2), row);
  ASSERT_TRUE(zeros.has_value());
  EXPECT_EQ(zeros->relative_change, 0.0);
}

TEST(AuditCompare, ChangeOfAZeroOrNonFiniteRowIsInfinite) {
  const auto change = [](std::vector<float> a, std::vector<float> b) {
    return relative_change(rows_of(a, 1, 1, 2), rows_of(b, 1, 1, 2), 0);
  };
  EXPECT_EQ(change({0.0F, 0.0F}, {0.0F, 1e-30F}), HUGE_VAL);
  EXPECT_EQ(change({1.0F, 2.0F}, {1.0F, kNaN}), HUGE_VAL);
  EXPECT_EQ(change({1.0F, kInf}, {1.0F, 2.0F}), HUGE_VAL);
  EXPECT_EQ(change({1.0F, kInf}, {1.0F, kInf}), 0.0);
  EXPECT_DOUBLE_EQ(change({3.0F, kInf}, {6.0F, kInf}), 1.0);
  EXPECT_EQ(change({0.0F, 0.0F}, {0.0F, 0.0F}), 0.0);
}

}  // namespace
}  // namespace checkvalve::audit_detail
