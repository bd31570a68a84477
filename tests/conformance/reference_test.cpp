// reference_test.cpp: options that only the reference has, and the exact yardstick.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "support/oracle.h"
#include "support/tensors.h"

namespace checkvalve::test {
namespace {

constexpr double kSlack = 1e-6;

Options reference_options() {
  Options options;
  options.backend = "reference";
  options.allow_leak = true;
  return options;
}

double relative_difference(const HostTensor& a, const HostTensor& b) {
  double difference = 0.0;
  double size = 0.0;
  const auto* x = static_cast<const float*>(a.view.data);
  const auto* y = static_cast<const float*>(b.view.data);
  for (std::int64_t i = 0; i < a.view.numel(); ++i) {
    difference += std::pow(static_cast<double>(x[i]) - static_cast<double>(y[i]), 2);
    size += std::pow(static_cast<double>(y[i]), 2);
  }
  return std::sqrt(difference / size);
}

TEST(Reference, ExactModeEqualsTheFp32RecipeToRounding) {
  for (const Case& c : {Case{.b = 2, .h_q = 4, .h_kv = 2, .s_q = 150, .s_kv = 170},
                        Case{.s_q = 200, .s_kv = 200, .window_left = 40}, Case{.s_q = 5, .s_kv = 2}}) {
    SCOPED_TRACE(to_string(c));
    const Inputs in = make_inputs(c);
    const auto like = [](const HostTensor& t, std::int64_t d) {
      return make_attention_tensor(DType::kFloat64, Layout::kBshd, t.view.shape[0], t.view.shape[1], t.view.shape[2],
                                   d);
    };
    HostTensor out = like(in.q, c.d_v);
    HostTensor dq = like(in.q, c.d_qk);
    HostTensor dk = like(in.k, c.d_qk);
    HostTensor dv = like(in.v, c.d_v);
    HostTensor lse = make_dense_tensor(DType::kFloat64, {c.b, c.h_q, c.s_q});
    exact_forward(in.problem, in.q.view, in.k.view, in.v.view, out.view, lse.view);
    exact_backward(in.problem, in.q.view, in.k.view, in.v.view, in.d_out.view, dq.view, dk.view, dv.view);
    const Results got = run(in, recipe_from_name("fp32"), reference_options(), Passes::kForwardBackward);
    const struct {
      const HostTensor& exact;
      const HostTensor& rounded;
    } pairs[] = {{out, got.out}, {dq, got.dq}, {dk, got.dk}, {dv, got.dv}};
    for (const auto& [exact, rounded] : pairs) {
      for (std::int64_t b = 0; b < exact.view.shape[0]; ++b) {
        for (std::int64_t s = 0; s < exact.view.shape[1]; ++s) {
          for (std::int64_t h = 0; h < exact.view.shape[2]; ++h) {
            for (std::int64_t d = 0; d < exact.view.shape[3]; ++d) {
              ASSERT_NEAR(rounded.at(b, s, h, d), exact.at(b, s, h, d), 1e-5);
            }
          }
        }
      }
    }
    for (std::int64_t i = 0; i < c.s_q; ++i) {
      const double want = lse.at(0, 0, i);
      ASSERT_TRUE(std::isinf(want) ? got.lse.at(0, 0, i) == want : std::fabs(got.lse.at(0, 0, i) - want) < 1e-5);
    }
  }
}

// One folded pass and the published two passes are both within the rounding of P of the decoded result.
TEST(Reference, OwnBlockTwoPassAgrees) {
  const Recipe& recipe = recipe_from_name("mxfp8_own_block");
  for (const Data data : {Data::kGauss, Data::kSink, Data::kOutliers}) {
    const Inputs in = make_inputs({.s_q = 300, .s_kv = 300, .data = data});
    Options options = reference_options();
    const Results one = run(in, recipe, options, Passes::kForward);
    options.own_block_two_pass = true;
    const Results two = run(in, recipe, options, Passes::kForward);
    const Expected want = expect(in, recipe, options);
    double sum = 0.0;
    for (std::int64_t i = 0; i < 300; ++i) {
      ASSERT_NEAR(one.lse.at(0, 0, i), two.lse.at(0, 0, i), 1e-5);
      double difference = 0.0;
      for (std::int64_t c = 0; c < 64; ++c) {
        difference += std::pow(one.out.at(0, i, 0, c) - two.out.at(0, i, 0, c), 2);
      }
      const auto at = static_cast<std::size_t>(i);
      // The two passes round P relative to each part's own maximum without V's exponent in the completed part: each
      // rounding is at most one step of the token's probability, plus the absolute step of the part's maximum.
      const double allowed = 2.0 * want.out.bound[at] + (0x1p-4 + 300.0 * 0x1p-18) * want.out.magnitude[at] + kSlack;
      ASSERT_LE(std::sqrt(difference), allowed) << "row " << i;
      sum += std::sqrt(difference);
    }
    EXPECT_GT(sum, 0.0) << "the two compositions round differently; equal bits mean that one option is ignored";
    fmt::print("{}: one pass against two, relative difference {:.4f}\n", name_of(data),
               relative_difference(one.out, two.out));
  }
}

TEST(Reference, TileOrderChangesOnlyTheRoundingOfP) {
  for (const Recipe& recipe : recipes()) {
    SCOPED_TRACE(recipe.name);
    const Inputs in = make_inputs({.h_q = 2, .h_kv = 1, .s_q = 400, .s_kv = 400});
    Options options = reference_options();
    const Expected want = expect(in, recipe, options);
    const Results up = run(in, recipe, options, Passes::kForward);
    options.tile_order = TileOrder::kDiagonalFirst;
    const Results down = run(in, recipe, options, Passes::kForward);
    double largest = 0.0;
    EXPECT_EQ(check_rows("out", down.out, want.out, kSlack, &largest), "");
    EXPECT_LE(relative_difference(up.out, down.out), 0.05);
  }
}

// Re-expressing MX bytes on a coarser scale is exact for values within 14 octaves of the new amax.
TEST(Reference, RebaseIsExactOnOrdinaryData) {
  for (const char* name : {"mxfp8", "mxfp8_own_block", "mxfp8_token"}) {
    SCOPED_TRACE(name);
    const Inputs in = make_inputs({.s_q = 300, .s_kv = 300});
    Options options = reference_options();
    const Results plain = run(in, recipe_from_name(name), options, Passes::kForward);
    options.rebase_mx = true;
    const Results rebased = run(in, recipe_from_name(name), options, Passes::kForward);
    EXPECT_LE(relative_difference(rebased.out, plain.out), 2e-3);
  }
  // One channel of K 2^20 larger than the rest pushes the rest below the re-expressed range.
  Inputs in = make_inputs({.s_q = 300, .s_kv = 300});
  for (std::int64_t s = 0; s < 300; ++s) {
    in.k.set(0, s, 0, 0, std::ldexp(in.k.at(0, s, 0, 0), 20));
    in.q.set(0, s, 0, 0, 0.0);
  }
  Options options = reference_options();
  const Results plain = run(in, recipe_from_name("mxfp8_token"), options, Passes::kForward);
  options.rebase_mx = true;
  const Results rebased = run(in, recipe_from_name("mxfp8_token"), options, Passes::kForward);
  EXPECT_GT(relative_difference(rebased.out, plain.out), 1e-2) << "the option must act on K";
}

TEST(Reference, PrequantisedOperandsGiveTheSameBits) {
  for (const Recipe& recipe : recipes()) {
    SCOPED_TRACE(recipe.name);
    const Inputs in = make_inputs({.b = 2, .h_q = 4, .h_kv = 2, .s_q = 180, .s_kv = 180, .d_qk = 40, .d_v = 24});
    const Results fused = run(in, recipe, reference_options(), Passes::kForward);
    const HostQuantizedQKV quantized = allocate_quantized(in.problem, recipe);
    quantize(in.problem, recipe, in.q.view, in.k.view, in.v.view, quantized.tensors, reference_options());
    Results apart = fused;
    HostTensor out = clone(fused.out);
    HostTensor lse = clone(fused.lse);
    out.poison();
    lse.poison();
    forward(in.problem, recipe, quantized.tensors, out.view, lse.view, reference_options());
    EXPECT_EQ(first_difference(out, fused.out, 1, 0, 180), "");
    EXPECT_EQ(first_difference(lse, fused.lse, 2, 0, 180), "");
  }
}

}  // namespace
}  // namespace checkvalve::test
