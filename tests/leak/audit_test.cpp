// audit_test.cpp: the audit passes an exact callable and names each planted defect; its negative control guards
// "clean".
#include "audit/audit.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "checkvalve/error.h"
#include "leak/audit_callables.h"
#include "numerics/element.h"

namespace checkvalve {
namespace {

using audit_detail::audit_with_control;
using audit_detail::NegativeControl;
using test::attention_with;
using test::Defect;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::UnorderedElementsAre;

struct Sizes {
  std::int64_t b = 1, s = 160, h_q = 2, h_kv = 1, d_qk = 4, d_v = 3;
};

std::vector<std::byte> random_tensor(DType dtype, std::int64_t numel, unsigned seed) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(numel) * size_of(dtype));
  const auto view = make_dense(static_cast<void*>(bytes.data()), dtype, 1, {numel});
  std::mt19937 generator(seed);
  for (std::int64_t i = 0; i < numel; ++i) {
    numerics::store_element(view, i, static_cast<double>(generator()) * 0x1p-31 - 1.0);
  }
  return bytes;
}

// Random q, k, v and the dense causal problem that they pose.
struct Inputs {
  explicit Inputs(const Sizes& z = {}, DType dtype = DType::kFloat32, DType out_dtype = DType::kFloat32,
                  Layout layout = Layout::kBshd)
      : q_bytes(random_tensor(dtype, z.b * z.s * z.h_q * z.d_qk, 1)),
        k_bytes(random_tensor(dtype, z.b * z.s * z.h_kv * z.d_qk, 2)),
        v_bytes(random_tensor(dtype, z.b * z.s * z.h_kv * z.d_v, 3)),
        q(view(q_bytes, dtype, layout, z.b, z.s, z.h_q, z.d_qk)),
        k(view(k_bytes, dtype, layout, z.b, z.s, z.h_kv, z.d_qk)),
        v(view(v_bytes, dtype, layout, z.b, z.s, z.h_kv, z.d_v)) {
    problem.b = z.b;
    problem.h_q = z.h_q;
    problem.h_kv = z.h_kv;
    problem.s_q = z.s;
    problem.s_kv = z.s;
    problem.d_qk = z.d_qk;
    problem.d_v = z.d_v;
    problem.dtype = dtype;
    problem.out_dtype = out_dtype;
  }

  static ConstTensorView view(const std::vector<std::byte>& bytes, DType dtype, Layout layout, std::int64_t b,
                              std::int64_t s, std::int64_t h, std::int64_t d) {
    return make_view(static_cast<const void*>(bytes.data()), dtype, layout, b, s, h, d);
  }

  std::vector<std::byte> q_bytes, k_bytes, v_bytes;
  ConstTensorView q, k, v;
  AttentionProblem problem;
};

// Leaks in every property that is probed, in the key gradients too: row j - 1 sees key j.
NegativeControl leaky_control() {
  return {.name = "planted", .callable = [](const AuditRun& run) { attention_with(Defect::kMaskOffByOne)(run); }};
}

AuditReport audit_of(Defect defect, const AuditOptions& options = {}, const Inputs& inputs = Inputs()) {
  return audit_with_control(attention_with(defect), leaky_control(), inputs.problem, inputs.q, inputs.k, inputs.v,
                            options);
}

std::set<std::string> properties(const AuditReport& report) {
  std::set<std::string> all;
  for (const Leak& leak : report.leaks) {
    all.insert(leak.property);
  }
  return all;
}

// "tensor operand" of every leak.
std::set<std::string> paths(const AuditReport& report) {
  std::set<std::string> all;
  for (const Leak& leak : report.leaks) {
    all.insert(leak.tensor + " " + leak.operand);
  }
  return all;
}

std::set<std::string> perturbations(const AuditReport& report) {
  std::set<std::string> all;
  for (const Leak& leak : report.leaks) {
    all.insert(name_of(leak.perturbation));
  }
  return all;
}

std::set<std::string> regions(const AuditReport& report) {
  std::set<std::string> all;
  for (const Leak& leak : report.leaks) {
    all.insert(name_of(leak.region));
  }
  return all;
}

class AuditExact : public ::testing::TestWithParam<std::pair<DType, DType>> {};

TEST_P(AuditExact, IsCleanWithEveryProperty) {
  const auto [dtype, out_dtype] = GetParam();
  const AuditReport report = audit_of(Defect::kNone, {}, Inputs({.b = 2, .s = 140}, dtype, out_dtype));
  EXPECT_EQ(report.verdict, Verdict::kClean) << report.to_string();
  EXPECT_TRUE(report.ok());
  EXPECT_THAT(report.leaks, IsEmpty());
  EXPECT_THAT(report.defects, IsEmpty());
  EXPECT_THAT(report.influence.leaked, Each(0.0));
  EXPECT_GT(report.runs, 200);
  EXPECT_GT(report.comparisons, 200000);
  EXPECT_EQ(report.largest_relative_change, 0.0);
  EXPECT_THAT(report.negative_control, HasSubstr("causal: caught; gradient: caught; key_gradient: caught"));
}

INSTANTIATE_TEST_SUITE_P(Dtypes, AuditExact,
                         ::testing::Values(std::pair{DType::kFloat32, DType::kFloat32},
                                           std::pair{DType::kBFloat16, DType::kBFloat16},
                                           std::pair{DType::kBFloat16, DType::kFloat32},
                                           std::pair{DType::kFloat16, DType::kFloat16}));

TEST(Audit, ShortSequencesAreClean) {
  for (const std::int64_t s : {3, 31, 33, 64}) {
    const AuditReport report = audit_of(Defect::kNone, {.influence_bins = 4}, Inputs({.s = s}));
    EXPECT_EQ(report.verdict, Verdict::kClean) << "s = " << s << "\n" << report.to_string();
  }
}

TEST(Audit, StridedAndExpandedInputsGiveTheSameReport) {
  const Sizes sizes{.b = 2, .s = 70, .h_q = 4, .h_kv = 2};
  Inputs dense(sizes);
  // The same values in (s, b, h, d) order, found through strides.
  Inputs strided(sizes);
  const auto reorder = [](const std::vector<std::byte>& from, const ConstTensorView& seen, std::vector<std::byte>& to,
                          ConstTensorView& view) {
    view = make_view(static_cast<const void*>(to.data()), seen.dtype, Layout::kSbhd, seen.shape[0], seen.shape[1],
                     seen.shape[2], seen.shape[3]);
    const TensorView target = make_view(static_cast<void*>(to.data()), seen.dtype, Layout::kSbhd, seen.shape[0],
                                        seen.shape[1], seen.shape[2], seen.shape[3]);
    ConstTensorView source = seen;
    source.data = from.data();
    for (std::int64_t n = 0; n < seen.shape[0]; ++n) {
      for (std::int64_t i = 0; i < seen.shape[1]; ++i) {
        for (std::int64_t h = 0; h < seen.shape[2]; ++h) {
          for (std::int64_t c = 0; c < seen.shape[3]; ++c) {
            numerics::store_element(target, numerics::offset_of(target, n, i, h, c),
                                    numerics::load_element(source, numerics::offset_of(source, n, i, h, c)));
          }
        }
      }
    }
  };
  reorder(dense.q_bytes, dense.q, strided.q_bytes, strided.q);
  reorder(dense.k_bytes, dense.k, strided.k_bytes, strided.k);
  reorder(dense.v_bytes, dense.v, strided.v_bytes, strided.v);
  EXPECT_EQ(audit_of(Defect::kNone, {}, strided).verdict, Verdict::kClean);
  EXPECT_EQ(audit_of(Defect::kBlockScaledV, {}, strided).to_string(),
            audit_of(Defect::kBlockScaledV, {}, dense).to_string());

  // One key/value head expanded over two.
  dense.k.strides[2] = 0;
  dense.v.strides[2] = 0;
  EXPECT_EQ(audit_of(Defect::kNone, {}, dense).verdict, Verdict::kClean);
}

TEST(Audit, BlockScaledVLeaksInsideTheBlockOnly) {
  const AuditReport report = audit_of(Defect::kBlockScaledV);
  EXPECT_EQ(report.verdict, Verdict::kLeak);
  EXPECT_THAT(properties(report), IsSupersetOf({"causal", "gradient"}));
  EXPECT_THAT(regions(report), UnorderedElementsAre("own_block"));
  for (const Leak& leak : report.leaks) {
    if (leak.property == "causal") {
      EXPECT_EQ(leak.tensor, "out");
      EXPECT_THAT(leak.operand, HasSubstr("v"));
      EXPECT_EQ(leak.row / 32, leak.first_token / 32);
      EXPECT_LE(leak.row, leak.cut);
      EXPECT_GT(leak.first_token, leak.cut);
      EXPECT_NE(leak.before, leak.after);
      EXPECT_GT(leak.relative_change, 0.0);
    }
  }
  EXPECT_GT(report.largest_relative_change, 0.1);
}

TEST(Audit, OffByOneMaskIsFoundInOutputsAndAllGradients) {
  const AuditReport report = audit_of(Defect::kMaskOffByOne);
  EXPECT_THAT(properties(report), UnorderedElementsAre("causal", "gradient", "key_gradient", "prefix"));
  EXPECT_THAT(paths(report), IsSupersetOf({"out k", "out v", "lse k", "dq k", "dq v", "dk q", "dv d_out", "out length",
                                           "lse length"}));
  EXPECT_THAT(paths(report), ::testing::Not(::testing::Contains("lse v")));
}

TEST(Audit, OffByOneAcrossABlockBoundaryIsFoundAtTheBoundary) {
  const AuditReport report = audit_of(Defect::kMaskOffByOne, {.gradients = false, .cuts = {31}});
  EXPECT_EQ(report.verdict, Verdict::kLeak);
  EXPECT_THAT(regions(report), ::testing::Contains("own_span"));
  ASSERT_FALSE(report.leaks.empty());
  EXPECT_EQ(report.leaks.front().row, 31);
}

TEST(Audit, ZeroTimesMaskedValueIsFoundWithNaNAndInfOnly) {
  const AuditReport report = audit_of(Defect::kMaskedValueTimesZero);
  EXPECT_EQ(report.verdict, Verdict::kLeak);
  EXPECT_THAT(perturbations(report), UnorderedElementsAre("inf", "nan"));
  EXPECT_THAT(regions(report), UnorderedElementsAre("own_block"));
  EXPECT_THAT(report.leaks.front().operand, "v");
  EXPECT_EQ(report.leaks.front().relative_change, HUGE_VAL);
  EXPECT_EQ(audit_of(Defect::kMaskedValueTimesZero, {.non_finite = false}).verdict, Verdict::kClean);
}

TEST(Audit, OneElementOfVInTheOwnBlockIsNamed) {
  const AuditReport report = audit_of(Defect::kOneElement, {.gradients = false});
  EXPECT_THAT(paths(report), UnorderedElementsAre("out v", "out length"));
  EXPECT_THAT(perturbations(report), UnorderedElementsAre("huge12", "huge20", "tiny", "sign", "nan", "inf"));
  for (const Leak& leak : report.leaks) {
    EXPECT_EQ(leak.batch, 0);
    EXPECT_EQ(leak.head, 0);
    EXPECT_EQ(leak.element, 0);
    if (leak.property == "causal") {
      EXPECT_EQ(leak.region, Region::kOwnBlock);
      EXPECT_EQ(leak.row, leak.cut / 32 * 32);
    }
  }
}

TEST(Audit, LeakOfTheLseAloneIsFound) {
  const AuditReport report = audit_of(Defect::kLseOnly);
  EXPECT_THAT(paths(report), UnorderedElementsAre("lse k", "lse length"));
  EXPECT_EQ(audit_of(Defect::kLseOnly, {.lse = false}).verdict, Verdict::kClean);
}

TEST(Audit, DependenceOnTheLengthIsFoundByThePrefixCheckOnly) {
  const AuditReport report = audit_of(Defect::kLengthDependent);
  EXPECT_THAT(properties(report), UnorderedElementsAre("prefix"));
  EXPECT_THAT(paths(report), UnorderedElementsAre("out length"));
  EXPECT_EQ(audit_of(Defect::kLengthDependent, {.prefix = false}).verdict, Verdict::kClean);
}

TEST(Audit, LeakOfAGradientAloneIsFound) {
  const AuditReport later_v = audit_of(Defect::kGradientSeesLaterV);
  EXPECT_THAT(properties(later_v), UnorderedElementsAre("gradient"));
  EXPECT_THAT(paths(later_v), UnorderedElementsAre("dq v"));
  EXPECT_THAT(regions(later_v), UnorderedElementsAre("own_block"));
  EXPECT_EQ(audit_of(Defect::kGradientSeesLaterV, {.gradients = false}).verdict, Verdict::kClean);

  const AuditReport earlier_q = audit_of(Defect::kGradientSeesEarlierQ);
  EXPECT_THAT(properties(earlier_q), UnorderedElementsAre("key_gradient"));
  EXPECT_THAT(paths(earlier_q), UnorderedElementsAre("dk q"));
  for (const Leak& leak : earlier_q.leaks) {
    EXPECT_EQ(leak.row, leak.cut);
    EXPECT_EQ(leak.last_token, leak.cut - 1);
  }

  const AuditReport earlier_d_out = audit_of(Defect::kGradientSeesEarlierDOut);
  EXPECT_THAT(properties(earlier_d_out), UnorderedElementsAre("key_gradient"));
  EXPECT_THAT(paths(earlier_d_out), UnorderedElementsAre("dv d_out"));
}

TEST(Audit, OneLeakForEachKind) {
  const AuditReport report = audit_of(Defect::kMaskOffByOne);
  std::set<std::string> kinds;
  for (const Leak& leak : report.leaks) {
    EXPECT_TRUE(
        kinds.insert(leak.property + leak.tensor + leak.operand + name_of(leak.perturbation) + name_of(leak.region))
            .second)
        << leak.to_string();
  }
}

TEST(Audit, WritingToAnInputIsADefect) {
  const AuditReport report = audit_of(Defect::kWritesInput);
  EXPECT_EQ(report.verdict, Verdict::kInconclusive);
  ASSERT_EQ(report.defects.size(), 1U);
  EXPECT_EQ(report.defects[0].property, "inputs");
  EXPECT_EQ(report.defects[0].tensor, "v");
  EXPECT_EQ(report.defects[0].after, 7.0);

  const AuditReport rare = audit_of(Defect::kWritesInputIfNaN);
  EXPECT_EQ(rare.verdict, Verdict::kInconclusive);
  ASSERT_EQ(rare.defects.size(), 1U);
  EXPECT_EQ(rare.defects[0].tensor, "q");
}

TEST(Audit, UnwrittenOutputsAreADefect) {
  const AuditReport out = audit_of(Defect::kUnwrittenOut);
  EXPECT_EQ(out.verdict, Verdict::kInconclusive);
  ASSERT_EQ(out.defects.size(), 1U);
  EXPECT_EQ(out.defects[0].property, "written");
  EXPECT_EQ(out.defects[0].tensor, "out");
  EXPECT_EQ(out.defects[0].row, 159);
  const AuditReport dv = audit_of(Defect::kUnwrittenDv, {}, Inputs({}, DType::kBFloat16, DType::kBFloat16));
  ASSERT_EQ(dv.defects.size(), 1U);
  EXPECT_EQ(dv.defects[0].property, "written");
  EXPECT_EQ(dv.defects[0].tensor, "dv");
  EXPECT_EQ(audit_of(Defect::kUnwrittenDv, {.gradients = false}).verdict, Verdict::kClean);
}

TEST(Audit, RunsThatDifferAreADefectAndEndTheAudit) {
  const AuditReport report = audit_of(Defect::kNotDeterministic);
  EXPECT_EQ(report.verdict, Verdict::kInconclusive);
  ASSERT_EQ(report.defects.size(), 1U);
  EXPECT_EQ(report.defects[0].property, "deterministic");
  EXPECT_EQ(report.defects[0].element, 0);
  EXPECT_EQ(report.defects[0].head, 1);
  EXPECT_EQ(report.runs, 2);
  EXPECT_THAT(report.to_string(), HasSubstr("in one run and"));
}

AuditReport exact_with_control(const AttentionCallable& control, const AuditOptions& options = {}) {
  const Inputs inputs;
  return audit_with_control(attention_with(Defect::kNone), {.name = "planted", .callable = control}, inputs.problem,
                            inputs.q, inputs.k, inputs.v, options);
}

TEST(AuditControl, ACleanControlMakesTheAuditInconclusive) {
  const AuditReport report = exact_with_control(attention_with(Defect::kNone));
  EXPECT_EQ(report.verdict, Verdict::kInconclusive);
  EXPECT_FALSE(report.ok());
  EXPECT_THAT(report.leaks, IsEmpty());
  EXPECT_THAT(report.negative_control, HasSubstr("causal: not caught"));
  EXPECT_THAT(report.to_string(), HasSubstr("inconclusive"));
}

TEST(AuditControl, EachAuditedPropertyMustCatchTheControl) {
  const AuditReport both = exact_with_control(attention_with(Defect::kBlockScaledV));
  EXPECT_EQ(both.verdict, Verdict::kInconclusive);
  EXPECT_THAT(both.negative_control, HasSubstr("causal: caught; gradient: caught; key_gradient: not caught"));
  const AuditReport forward = exact_with_control(attention_with(Defect::kBlockScaledV), {.gradients = false});
  EXPECT_EQ(forward.verdict, Verdict::kClean);
}

TEST(AuditControl, AControlThatCannotRunMakesTheAuditInconclusive) {
  const AuditReport report =
      exact_with_control([](const AuditRun&) { throw Unsupported("head_dim 4 is not supported"); });
  EXPECT_EQ(report.verdict, Verdict::kInconclusive);
  EXPECT_THAT(report.negative_control, HasSubstr("could not run: head_dim 4"));
}

TEST(AuditControl, ALeakIsALeakWhateverTheControl) {
  const Inputs inputs;
  const AuditReport report = audit_with_control(attention_with(Defect::kMaskOffByOne),
                                                {.name = "planted", .callable = attention_with(Defect::kNone)},
                                                inputs.problem, inputs.q, inputs.k, inputs.v, {});
  EXPECT_EQ(report.verdict, Verdict::kLeak);
}

TEST(AuditControl, CutsOnBlockBoundariesOnlyAreInconclusive) {
  const AuditReport boundary = exact_with_control(attention_with(Defect::kMaskOffByOne), {.cuts = {31, 63, 127}});
  EXPECT_EQ(boundary.verdict, Verdict::kInconclusive);
  EXPECT_THAT(boundary.negative_control, HasSubstr("no cut lies inside a 32-token block"));
  EXPECT_EQ(exact_with_control(attention_with(Defect::kMaskOffByOne), {.cuts = {31, 40}}).verdict, Verdict::kClean);
}

TEST(AuditInfluence, LeakedEntriesAreSeparateFromAllowedOnes) {
  const AuditReport exact = audit_of(Defect::kNone, {.gradients = false, .influence_bins = 10});
  ASSERT_EQ(exact.influence.bins, 10);
  ASSERT_EQ(exact.influence.tokens_per_bin, 16);
  ASSERT_EQ(exact.influence.changed.size(), 100U);
  ASSERT_EQ(exact.influence.leaked.size(), 100U);
  for (std::size_t r = 0; r < 10; ++r) {
    for (std::size_t c = 0; c < 10; ++c) {
      EXPECT_EQ(exact.influence.changed[r * 10 + c] > 0.0, c <= r) << r << " " << c;
    }
  }
  // Blocks of two bins: the token at the end of a block changes both bins of the block.
  const AuditReport block = audit_of(Defect::kBlockScaledV, {.gradients = false, .influence_bins = 10});
  for (std::size_t r = 0; r < 10; ++r) {
    for (std::size_t c = 0; c < 10; ++c) {
      EXPECT_EQ(block.influence.leaked[r * 10 + c] > 0.0, r / 2 == c / 2 && r <= c) << r << " " << c;
    }
  }
}

TEST(AuditInfluence, BinsCoverTheTokens) {
  const AuditReport uneven = audit_of(Defect::kNone, {.gradients = false, .influence_bins = 7}, Inputs({.s = 33}));
  EXPECT_EQ(uneven.influence.tokens_per_bin, 5);
  EXPECT_EQ(uneven.influence.bins, 7);
  EXPECT_GT(uneven.influence.changed.back(), 0.0);
  const AuditReport small = audit_of(Defect::kNone, {.gradients = false, .influence_bins = 99}, Inputs({.s = 5}));
  EXPECT_EQ(small.influence.bins, 5);
  const AuditReport none = audit_of(Defect::kNone, {.gradients = false, .influence_bins = 0});
  EXPECT_EQ(none.influence.bins, 0);
  EXPECT_THAT(none.influence.changed, IsEmpty());
}

TEST(AuditInfluence, WhatOnlyTheInfluenceRunsReachIsALeakToo) {
  // The callable lets token 99 into the rows before it, and no probe cuts next to it.
  const auto callable = [](const AuditRun& run) {
    attention_with(Defect::kNone)(run);
    if (run.problem.s_q <= 99) {
      return;
    }
    const double v = numerics::load_element(run.v, numerics::offset_of(run.v, 0, 99, 0, 0));
    if (std::abs(v) > 2.0) {
      numerics::store_element(run.out, numerics::offset_of(run.out, 0, 98, 0, 0), v);
    }
  };
  const Inputs inputs;
  const AuditReport report = audit_with_control(callable, leaky_control(), inputs.problem, inputs.q, inputs.k, inputs.v,
                                                {.gradients = false, .cuts = {40}, .influence_bins = 8});
  EXPECT_EQ(report.verdict, Verdict::kLeak);
  ASSERT_EQ(report.leaks.size(), 1U) << report.to_string();
  EXPECT_EQ(report.leaks[0].operand, "v");
  EXPECT_EQ(report.leaks[0].first_token, 99);
  EXPECT_EQ(report.leaks[0].row, 98);
  EXPECT_GT(report.influence.leaked[4 * 8 + 4], 0.0);
}

TEST(Audit, CallableSeesTheContract) {
  std::int64_t forward_runs = 0;
  std::int64_t gradient_runs = 0;
  const auto exact = attention_with(Defect::kNone);
  const auto callable = [&](const AuditRun& run) {
    const auto& p = run.problem;
    EXPECT_EQ(p.s_q, p.s_kv);
    EXPECT_EQ(run.q.shape, (std::array<std::int64_t, 4>{p.b, p.s_q, p.h_q, p.d_qk}));
    EXPECT_EQ(run.v.shape, (std::array<std::int64_t, 4>{p.b, p.s_kv, p.h_kv, p.d_v}));
    EXPECT_EQ(run.q.strides, (std::array<std::int64_t, 4>{p.s_q * p.h_q * p.d_qk, p.h_q * p.d_qk, p.d_qk, 1}));
    EXPECT_EQ(run.lse.shape, (std::array<std::int64_t, 4>{p.b, p.h_q, p.s_q, 0}));
    EXPECT_EQ(run.lse.rank, 3);
    EXPECT_EQ(run.q.dtype, DType::kBFloat16);
    EXPECT_EQ(run.out.dtype, DType::kFloat32);
    EXPECT_EQ(static_cast<bool>(run.d_out), static_cast<bool>(run.dq));
    ++(run.d_out ? gradient_runs : forward_runs);
    exact(run);
  };
  const Inputs inputs({.b = 2, .s = 40}, DType::kBFloat16);
  std::vector<double> progress;
  const AuditReport report = audit_with_control(callable, leaky_control(), inputs.problem, inputs.q, inputs.k, inputs.v,
                                                {.progress = [&](double share) { progress.push_back(share); }});
  EXPECT_EQ(report.verdict, Verdict::kClean);
  EXPECT_EQ(report.runs, forward_runs + gradient_runs);
  EXPECT_GT(gradient_runs, 20);
  ASSERT_FALSE(progress.empty());
  EXPECT_TRUE(std::is_sorted(progress.begin(), progress.end()));
  EXPECT_EQ(progress.back(), 1.0);
}

TEST(Audit, SameSeedSameReport) {
  EXPECT_EQ(audit_of(Defect::kGradientSeesEarlierDOut, {.seed = 5}).to_string(),
            audit_of(Defect::kGradientSeesEarlierDOut, {.seed = 5}).to_string());
  EXPECT_NE(audit_of(Defect::kGradientSeesEarlierDOut, {.seed = 5}).to_string(),
            audit_of(Defect::kGradientSeesEarlierDOut, {.seed = 6}).to_string());
}

TEST(Audit, ReportNamesTheElementAndWhatWasDone) {
  const AuditReport report = audit_of(Defect::kOneElement, {.gradients = false});
  const std::string text = report.to_string();
  EXPECT_THAT(text, HasSubstr("leak: "));
  EXPECT_THAT(text, HasSubstr("causal: out at batch 0, row 32, head 0, element 0 changed from "));
  EXPECT_THAT(text, HasSubstr("when v of tokens "));
  EXPECT_THAT(text, HasSubstr("in the 32-token block of token "));
  EXPECT_THAT(text, HasSubstr("was multiplied by 2^12"));
  EXPECT_THAT(text, HasSubstr("negative control: planted"));

  Leak leak = report.leaks.front();
  leak.last_token = 159;  // beyond the block
  EXPECT_THAT(leak.to_string(), HasSubstr("..159 was multiplied by"));
}

TEST(AuditErrors, WhatTheCallableThrowsPassesThrough) {
  const Inputs inputs;
  EXPECT_THROW((void)audit_with_control([](const AuditRun&) { throw std::domain_error("no"); }, leaky_control(),
                                        inputs.problem, inputs.q, inputs.k, inputs.v, {}),
               std::domain_error);
}

// The message of the InvalidArgument that auditing `inputs` throws.
std::string refusal(const Inputs& inputs, const AuditOptions& options = {},
                    const AttentionCallable& callable = attention_with(Defect::kNone)) {
  try {
    (void)audit_with_control(callable, leaky_control(), inputs.problem, inputs.q, inputs.k, inputs.v, options);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(AuditErrors, InputsThatCannotBeAuditedAreRefused) {
  EXPECT_THAT(refusal(Inputs({.s = 1})), HasSubstr("s_q is 1"));
  Inputs not_causal;
  not_causal.problem.causal = false;
  EXPECT_THAT(refusal(not_causal), HasSubstr("not causal"));
  Inputs rectangular;
  rectangular.problem.s_kv = 161;
  EXPECT_THAT(refusal(rectangular), HasSubstr("s_kv is 161"));
  Inputs padded;
  const std::int32_t used = 100;
  padded.problem.seqused_kv = &used;
  EXPECT_THAT(refusal(padded), HasSubstr("padded"));
  Inputs wrong_dtype;
  wrong_dtype.problem.dtype = DType::kBFloat16;
  EXPECT_THAT(refusal(wrong_dtype), HasSubstr("q is float32"));
  Inputs wrong_shape;
  wrong_shape.v.shape[3] = 5;
  EXPECT_THAT(refusal(wrong_shape), HasSubstr("v is float32 (1, 160, 1, 5)"));
  Inputs missing;
  missing.k.data = nullptr;
  EXPECT_THAT(refusal(missing), HasSubstr("k is missing"));
  EXPECT_THAT(refusal(Inputs(), {.cuts = {159}}), HasSubstr("cut 159"));
  EXPECT_THAT(refusal(Inputs(), {.cuts = {-1}}), HasSubstr("0 to 158"));
  EXPECT_THAT(refusal(Inputs(), {.influence_bins = -1}), HasSubstr("influence_bins is -1"));
  EXPECT_THAT(refusal(Inputs(), {}, AttentionCallable{}), HasSubstr("callable is empty"));
}

}  // namespace
}  // namespace checkvalve
