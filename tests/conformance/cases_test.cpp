// cases_test.cpp: inputs that broke other attention libraries, each with its right answer, on every host backend.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "checkvalve/error.h"
#include "numerics/element.h"
#include "support/oracle.h"
#include "support/tensors.h"

namespace checkvalve::test {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Calls `check(recipe, backend)` for every recipe and each backend that serves it.
template <typename F>
void for_each_recipe(F&& check, bool with_leaky = true) {
  AttentionProblem problem;
  problem.s_q = problem.s_kv = problem.d_qk = problem.d_v = 64;
  for (const Recipe& recipe : recipes()) {
    if (recipe.leaks() && !with_leaky) {
      continue;
    }
    for (const std::string& backend : host_backends(problem, recipe)) {
      SCOPED_TRACE(fmt::format("{} on {}", recipe.name, backend));
      check(recipe, backend);
    }
  }
}

Options on(const std::string& backend) {
  Options options;
  options.backend = backend;
  return options;
}

void fill(HostTensor& t, double value) {
  for (std::int64_t b = 0; b < t.view.shape[0]; ++b)
    for (std::int64_t s = 0; s < t.view.shape[1]; ++s)
      for (std::int64_t h = 0; h < t.view.shape[2]; ++h)
        for (std::int64_t d = 0; d < t.view.shape[3]; ++d) t.set(b, s, h, d, value);
}

void expect_finite(const HostTensor& t) {
  for (std::int64_t i = 0; i < t.view.numel(); ++i) {
    ASSERT_TRUE(std::isfinite(numerics::load_element(t.view, i))) << "element " << i;
  }
}

// out[row, 0] of q = k = 1 and V zero but for the given tokens' channel 0.
double probe(const Recipe& recipe, const std::string& backend, std::int64_t row,
             const std::vector<std::pair<std::int64_t, double>>& v) {
  Inputs in = make_inputs({.s_q = 128, .s_kv = 128, .d_qk = 128, .d_v = 128});
  fill(in.q, 1.0);
  fill(in.k, 1.0);
  fill(in.v, 0.0);
  for (const auto& [token, value] : v) {
    in.v.set(0, token, 0, 0, value);
  }
  return run(in, recipe, on(backend), Passes::kForward).out.at(0, row, 0, 0);
}

// Case 1 (Transformer Engine issue 3248): one scale for 32 tokens of V. O[7, 0] = V[0, 0] / 8.
TEST(Cases, C01SharedColumnScale) {
  for_each_recipe([](const Recipe& recipe, const std::string& backend) {
    const double base = probe(recipe, backend, 7, {{0, 0x1p-20}});
    const double same_block = probe(recipe, backend, 7, {{0, 0x1p-20}, {16, 1.0}});
    const double next_block = probe(recipe, backend, 7, {{0, 0x1p-20}, {32, 1.0}});
    EXPECT_EQ(base, 0x1p-23);
    if (recipe.name == "mxfp8") {
      EXPECT_EQ(same_block, 0.0) << "the leaky recipe loses the row to a later token of its block";
      EXPECT_EQ(next_block, 0x1p-23);
    } else if (recipe.name == "fp8_tensor") {
      EXPECT_EQ(same_block, 0.0);
      EXPECT_EQ(next_block, 0.0);
    } else {
      EXPECT_EQ(same_block, 0x1p-23);
      EXPECT_EQ(next_block, 0x1p-23);
    }
  });
}

// Case 2: one scale for the tensor.
TEST(Cases, C02TensorScale) {
  for_each_recipe([](const Recipe& recipe, const std::string& backend) {
    EXPECT_EQ(probe(recipe, backend, 7, {{0, 0x1p-10}}), 0x1p-13);
    EXPECT_EQ(probe(recipe, backend, 7, {{0, 0x1p-10}, {64, 1024.0}}), recipe.name == "fp8_tensor" ? 0.0 : 0x1p-13);
  });
}

// Case 3: the error of a small V must not depend on a later row of its block at all, whatever the ratio.
TEST(Cases, C03ThresholdSweep) {
  int lost = 0;
  for_each_recipe([&lost](const Recipe& recipe, const std::string& backend) {
    for (int k = 1; k <= 40; ++k) {
      for (const double sign : {1.0, -1.0}) {
        const double base = probe(recipe, backend, 7, {{0, sign * std::exp2(-k)}});
        const double later = probe(recipe, backend, 7, {{0, sign * std::exp2(-k)}, {9, 1.0}});
        if (recipe.leaks()) {
          lost += recipe.name == "mxfp8" && backend == "reference" && later == 0.0 ? 1 : 0;
        } else {
          ASSERT_EQ(base, later) << "k = " << k;
          ASSERT_EQ(base, sign * std::exp2(-k) / 8.0) << "k = " << k;
        }
      }
    }
  });
  EXPECT_EQ(lost, 2 * (40 - 18 + 1)) << "mxfp8 flushes 2^-k to zero from k = 18 on, both signs";
}

// Case 9: decode over 1..1023 keys; no jump of the error at multiples of the tile.
TEST(Cases, C09DecodeLengths) {
  for_each_recipe(
      [](const Recipe& recipe, const std::string& backend) {
        for (std::int64_t n = 1; n <= 1023; n += (n % 128 >= 126 || n % 128 <= 1) ? 1 : 31) {
          const Inputs in = make_inputs({.h_q = 6, .h_kv = 1, .s_q = 1, .s_kv = n, .d_qk = 32, .d_v = 32});
          Options options = on(backend);
          options.allow_leak = true;
          const Results got = run(in, recipe, options, Passes::kForward);
          double largest = 0.0;
          ASSERT_EQ(check_rows("out", got.out, expect(in, recipe, options).out, 4e-5, &largest), "") << n << " keys";
        }
      },
      false);
}

// Case 10: V = 1 gives 1 at any length (narrow accumulators lose it), and so does V = |n| its mean.
TEST(Cases, C10FlatRowsAtLength) {
  for_each_recipe([](const Recipe& recipe, const std::string& backend) {
    const std::int64_t s_kv = 131072;
    Inputs in = make_inputs({.s_q = 1, .s_kv = s_kv, .d_qk = 8, .d_v = 8});
    fill(in.q, 0.0);
    fill(in.v, 1.0);
    EXPECT_NEAR(run(in, recipe, on(backend), Passes::kForward).out.at(0, 0, 0, 0), 1.0, 1e-3);
  });
}

// Case 11: zero operands.
TEST(Cases, C11Zeros) {
  for_each_recipe([](const Recipe& recipe, const std::string& backend) {
    const Inputs in = make_inputs({.h_q = 2, .h_kv = 1, .s_q = 200, .s_kv = 200});
    const auto zeroed = [&](HostTensor Inputs::*which) {
      Inputs copy = in;
      copy.q = clone(in.q);
      copy.k = clone(in.k);
      copy.v = clone(in.v);
      fill(copy.*which, 0.0);
      return copy;
    };
    const Inputs no_v = zeroed(&Inputs::v);
    const Results v0 = run(no_v, recipe, on(backend), Passes::kForwardBackward);
    for (std::int64_t i = 0; i < 200; ++i) {
      ASSERT_EQ(v0.out.at(0, i, 1, 5), 0.0);
    }
    expect_finite(v0.dq);
    expect_finite(v0.dk);
    expect_finite(v0.dv);
    expect_finite(v0.lse);
    for (HostTensor Inputs::*which : {&Inputs::q, &Inputs::k}) {
      Inputs uniform = zeroed(which);
      fill(uniform.v, 2.0);
      const Results got = run(uniform, recipe, on(backend), Passes::kForwardBackward);
      for (std::int64_t i = 0; i < 200; ++i) {
        ASSERT_NEAR(got.out.at(0, i, 0, 0), 2.0, 2.0 * 0x1p-4) << "uniform average";
        ASSERT_NEAR(got.lse.at(0, 0, i), std::log(static_cast<double>(i + 1)), 1e-5);
      }
      expect_finite(got.dq);
    }
  });
}

// Case 15: subnormal and huge rows give no NaN; the rest of the rows is right.
TEST(Cases, C15ExtremeRows) {
  for_each_recipe(
      [](const Recipe& recipe, const std::string& backend) {
        for (const double value : {1e-38, 1e-45, -1e-45}) {
          Case c{.s_q = 70, .s_kv = 70, .dtype = DType::kFloat32};
          Inputs in = make_inputs(c);
          for (HostTensor* t : {&in.q, &in.k, &in.v}) {
            for (std::int64_t d = 0; d < 64; ++d) {
              t->set(0, 33, 0, d, value);
            }
          }
          Options options = on(backend);
          options.allow_leak = true;
          const Results got = run(in, recipe, options, Passes::kForwardBackward);
          expect_finite(got.out);
          expect_finite(got.dq);
          expect_finite(got.dk);
          double largest = 0.0;
          EXPECT_EQ(check_rows("out", got.out, expect(in, recipe, options).out, 4e-5, &largest), "") << value;
        }
        // 3e38 in one token's V is beyond the folded range and saturates at 448 * 2^60; it stays finite and positive.
        Inputs in = make_inputs({.s_q = 40, .s_kv = 40});
        for (std::int64_t d = 0; d < 64; ++d) {
          in.v.set(0, 35, 0, d, 3e38);
        }
        const Results got = run(in, recipe, on(backend), Passes::kForward);
        EXPECT_FALSE(std::isnan(got.out.at(0, 39, 0, 0)));
        EXPECT_GT(got.out.at(0, 39, 0, 0), 1e15);
      },
      false);
}

// Case 17: heads and batch entries of very different size; a dropped or doubled scale cannot hide.
TEST(Cases, C17ScalesOfHeadsDiffer) {
  for_each_recipe([](const Recipe& recipe, const std::string& backend) {
    if (recipe.name == "fp8_tensor") {
      return;  // one scale for all heads flushes the small ones by design
    }
    Inputs in = make_inputs({.b = 2, .h_q = 6, .h_kv = 3, .s_q = 150, .s_kv = 150, .dtype = DType::kFloat32});
    for (std::int64_t b = 0; b < 2; ++b) {
      for (std::int64_t h = 0; h < 3; ++h) {
        const double factor = std::exp2(static_cast<double>(3 * h - 5 * b)) * 1.37;
        for (std::int64_t s = 0; s < 150; ++s) {
          for (std::int64_t d = 0; d < 64; ++d) {
            in.v.set(b, s, h, d, in.v.at(b, s, h, d) * factor);
            in.k.set(b, s, h, d, in.k.at(b, s, h, d) * std::sqrt(factor) / 4.0);
          }
        }
      }
    }
    HostTensor exact = make_attention_tensor(DType::kFloat64, Layout::kBshd, 2, 150, 6, 64);
    exact_forward(in.problem, in.q.view, in.k.view, in.v.view, exact.view, {});
    const Results got = run(in, recipe, on(backend), Passes::kForward);
    for (std::int64_t b = 0; b < 2; ++b) {
      for (std::int64_t h = 0; h < 6; ++h) {
        double error = 0.0;
        double size = 0.0;
        for (std::int64_t s = 0; s < 150; ++s) {
          for (std::int64_t d = 0; d < 64; ++d) {
            error += std::pow(got.out.at(b, s, h, d) - exact.at(b, s, h, d), 2);
            size += std::pow(exact.at(b, s, h, d), 2);
          }
        }
        // E4M3 operands are off by 2^-4 of each element at most; four such roundings add up in the worst case.
        EXPECT_LE(std::sqrt(error / size), 0.25) << "b " << b << " h " << h;
      }
    }
  });
}

// Cases 23, 24, 33: rows without keys, and bottom-right alignment.
TEST(Cases, C23C24C33Alignment) {
  for_each_recipe([](const Recipe& recipe, const std::string& backend) {
    Inputs in = make_inputs({.s_q = 5, .s_kv = 2});
    fill(in.v, 1.0);
    const Results got = run(in, recipe, on(backend), Passes::kForwardBackward);
    for (std::int64_t i = 0; i < 5; ++i) {
      // Row 3 sees one key; row 4 sees two, whose rounded P need not sum to their exact denominator.
      ASSERT_NEAR(got.out.at(0, i, 0, 0), i < 3 ? 0.0 : 1.0, i < 4 ? 0.0 : 0x1p-4) << i;
      ASSERT_EQ(got.lse.at(0, 0, i) == -kInfinity, i < 3);
      for (std::int64_t d = 0; d < 64; ++d) {
        ASSERT_TRUE(i >= 3 ? std::isfinite(got.dq.at(0, i, 0, d)) : got.dq.at(0, i, 0, d) == 0.0);
      }
    }
    expect_finite(got.dk);
    expect_finite(got.dv);
    // (2, 5): the first query sees four keys, the second five.
    Inputs wide = make_inputs({.s_q = 2, .s_kv = 5});
    fill(wide.q, 0.0);
    const Results counted = run(wide, recipe, on(backend), Passes::kForward);
    ASSERT_NEAR(counted.lse.at(0, 0, 0), std::log(4.0), 1e-6);
    ASSERT_NEAR(counted.lse.at(0, 0, 1), std::log(5.0), 1e-6);
  });
}

// Case 29: merging with an empty partial is exact; two empty ones stay empty; large lse do not overflow.
TEST(Cases, C29Merge) {
  HostTensor o1 = make_attention_tensor(DType::kFloat32, Layout::kBshd, 1, 4, 1, 2);
  HostTensor o2 = clone(o1);
  HostTensor l1 = make_dense_tensor(DType::kFloat32, {1, 1, 4});
  HostTensor l2 = clone(l1);
  const double lse1[] = {1.5, -kInfinity, -kInfinity, 3000.0};
  const double lse2[] = {-kInfinity, 2.5, -kInfinity, 2999.0};
  for (std::int64_t i = 0; i < 4; ++i) {
    l1.set(0, 0, i, 0, lse1[i]);
    l2.set(0, 0, i, 0, lse2[i]);
    for (std::int64_t d = 0; d < 2; ++d) {
      o1.set(0, i, 0, d, std::isinf(lse1[i]) ? kNaN : 0.7 + static_cast<double>(d));
      o2.set(0, i, 0, d, std::isinf(lse2[i]) ? kNaN : -0.3);
    }
  }
  HostTensor o = clone(o1);
  HostTensor l = clone(l1);
  merge_partials(o1.view, l1.view, o2.view, l2.view, o.view, l.view);
  EXPECT_EQ(o.at(0, 0, 0, 1), o1.at(0, 0, 0, 1));
  EXPECT_EQ(l.at(0, 0, 0), 1.5);
  EXPECT_EQ(o.at(0, 1, 0, 1), o2.at(0, 1, 0, 1));
  EXPECT_EQ(l.at(0, 0, 1), 2.5);
  EXPECT_EQ(o.at(0, 2, 0, 0), 0.0);
  EXPECT_EQ(l.at(0, 0, 2), -kInfinity);
  const double w = 1.0 / (1.0 + std::exp(-1.0));
  EXPECT_NEAR(o.at(0, 3, 0, 0), w * 0.7 + (1.0 - w) * -0.3, 1e-6);
  EXPECT_NEAR(l.at(0, 0, 3), 3000.0 + std::log1p(std::exp(-1.0)), 1e-3);
}

// Case 35: empty tensors.
TEST(Cases, C35Empties) {
  for_each_recipe([](const Recipe& recipe, const std::string& backend) {
    const Results no_batch =
        run(make_inputs({.b = 0, .h_q = 2, .s_q = 10, .s_kv = 10}), recipe, on(backend), Passes::kForwardBackward);
    EXPECT_EQ(no_batch.out.view.numel(), 0);
    const Results no_query = run(make_inputs({.s_q = 0, .s_kv = 10}), recipe, on(backend), Passes::kForwardBackward);
    for (std::int64_t j = 0; j < 10; ++j) {
      EXPECT_EQ(no_query.dk.at(0, j, 0, 0), 0.0);
      EXPECT_EQ(no_query.dv.at(0, j, 0, 0), 0.0);
    }
    const Results no_key = run(make_inputs({.s_q = 3, .s_kv = 0}), recipe, on(backend), Passes::kForwardBackward);
    for (std::int64_t i = 0; i < 3; ++i) {
      EXPECT_EQ(no_key.out.at(0, i, 0, 0), 0.0);
      EXPECT_EQ(no_key.lse.at(0, 0, i), -kInfinity);
      EXPECT_EQ(no_key.dq.at(0, i, 0, 0), 0.0);
    }
  });
}

// Case 37: rows beyond cu_seqlens[b] are 0 in out and all gradients, and the slack is never read.
TEST(Cases, C37PackedSlack) {
  for_each_recipe([](const Recipe& recipe, const std::string& backend) {
    Inputs in = make_inputs({.h_q = 2, .h_kv = 1, .s_q = 96, .s_kv = 96});
    in.cu_q = in.cu_kv = {0, 40, 40, 94};
    in.problem.b = 3;
    in.problem.s_q = in.problem.s_kv = 54;
    in.problem.total_q = in.problem.total_kv = 96;
    in.problem.cu_seqlens_q = in.cu_q.data();
    in.problem.cu_seqlens_kv = in.cu_kv.data();
    for (HostTensor* t : {&in.q, &in.k, &in.v, &in.d_out}) {
      for (std::int64_t s = 94; s < 96; ++s) {
        for (std::int64_t h = 0; h < t->view.shape[2]; ++h) {
          for (std::int64_t d = 0; d < 64; ++d) {
            t->set(0, s, h, d, kNaN);
          }
        }
      }
    }
    const Results got = run(in, recipe, on(backend), Passes::kForwardBackward);
    for (const HostTensor* t : {&got.out, &got.dq, &got.dk, &got.dv}) {
      expect_finite(*t);
      EXPECT_EQ(t->at(0, 94, 0, 0), 0.0);
      EXPECT_EQ(t->at(0, 95, 0, 63), 0.0);
    }
    EXPECT_EQ(got.lse.at(1, 95), -kInfinity);
  });
}

// Case 42: a window of S - 1 keys to the left is plain causal, bit for bit.
TEST(Cases, C42FullWindowIsCausal) {
  for_each_recipe([](const Recipe& recipe, const std::string& backend) {
    const Inputs in = make_inputs({.s_q = 200, .s_kv = 200});
    const Results causal = run(in, recipe, on(backend), Passes::kForwardBackward);
    Inputs windowed = make_inputs({.s_q = 200, .s_kv = 200, .window_left = 199});
    const Results got = run(windowed, recipe, on(backend), Passes::kForwardBackward);
    EXPECT_EQ(first_difference(causal.out, got.out, 1, 0, 200), "");
    EXPECT_EQ(first_difference(causal.dk, got.dk, 1, 0, 200), "");
  });
}

// Case 43: one value in memory for many tokens (stride 0), and a view with gaps, give the bits of dense copies.
TEST(Cases, C43Strides) {
  for_each_recipe([](const Recipe& recipe, const std::string& backend) {
    Inputs dense = make_inputs({.h_q = 4, .h_kv = 2, .s_q = 90, .s_kv = 90, .d_qk = 32, .d_v = 32});
    for (std::int64_t s = 1; s < 90; ++s) {
      for (std::int64_t h = 0; h < 2; ++h) {
        for (std::int64_t d = 0; d < 32; ++d) {
          dense.k.set(0, s, h, d, dense.k.at(0, 0, h, d));
        }
      }
      for (std::int64_t h = 0; h < 4; ++h) {
        for (std::int64_t d = 0; d < 32; ++d) {
          dense.d_out.set(0, s, h, d, dense.d_out.at(0, 0, 0, 0));
        }
      }
    }
    for (std::int64_t h = 0; h < 4; ++h) {
      for (std::int64_t d = 0; d < 32; ++d) {
        dense.d_out.set(0, 0, h, d, dense.d_out.at(0, 0, 0, 0));
      }
    }
    Inputs strided = dense;
    strided.q = make_attention_tensor(DType::kBFloat16, Layout::kBhsd, 1, 90, 4, 64);
    strided.q.view.shape[3] = 32;
    for (std::int64_t s = 0; s < 90; ++s) {
      for (std::int64_t h = 0; h < 4; ++h) {
        for (std::int64_t d = 0; d < 32; ++d) {
          strided.q.set(0, s, h, d, dense.q.at(0, s, h, d));
        }
      }
    }
    strided.k.view.strides[1] = 0;
    strided.d_out.view.strides = {0, 0, 0, 0};
    const Results a = run(dense, recipe, on(backend), Passes::kForwardBackward);
    const Results b = run(strided, recipe, on(backend), Passes::kForwardBackward);
    EXPECT_EQ(first_difference(a.out, b.out, 1, 0, 90), "");
    EXPECT_EQ(first_difference(a.dq, b.dq, 1, 0, 90), "");
    EXPECT_EQ(first_difference(a.dk, b.dk, 1, 0, 90), "");
    EXPECT_EQ(first_difference(a.dv, b.dv, 1, 0, 90), "");
  });
}

// Case 58: logits beyond the float16 range stay finite.
TEST(Cases, C58LargeLogits) {
  for_each_recipe([](const Recipe& recipe, const std::string& backend) {
    Inputs in = make_inputs({.s_q = 50, .s_kv = 50, .dtype = DType::kFloat16});
    for (std::int64_t s = 0; s < 50; ++s) {
      for (std::int64_t d = 0; d < 64; ++d) {
        in.q.set(0, s, 0, d, 72.0 * (d % 2 == 0 ? 1.0 : -1.0));
        in.k.set(0, s, 0, d, (48.0 - static_cast<double>(s % 5)) * (d % 2 == 0 ? 1.0 : -1.0));
      }
    }
    const Results got = run(in, recipe, on(backend), Passes::kForwardBackward);
    expect_finite(got.out);
    expect_finite(got.lse);
    expect_finite(got.dq);
    expect_finite(got.dk);
    EXPECT_GT(got.lse.at(0, 0, 49), 20000.0);
  });
}

// Case 7 and G5's kernel: one query against t keys is row t - 1 of the whole call, bit for bit.
TEST(Cases, C07DecodeEqualsPrefill) {
  for_each_recipe(
      [](const Recipe& recipe, const std::string& backend) {
        const Inputs whole = make_inputs({.h_q = 2, .h_kv = 1, .s_q = 256, .s_kv = 256, .data = Data::kTokenRange});
        const Results base = run(whole, recipe, on(backend), Passes::kForward);
        for (const std::int64_t t : {1, 2, 31, 32, 33, 88, 96, 97, 98, 127, 128, 129, 200, 255, 256}) {
          Inputs last = whole;
          last.q = clone(whole.q);
          last.k = clone(whole.k);
          last.v = clone(whole.v);
          last.d_out = clone(whole.d_out);
          last.q.view.shape[1] = last.d_out.view.shape[1] = 1;
          last.q.view.data = static_cast<std::byte*>(last.q.view.data) +
                             (t - 1) * last.q.view.strides[1] * static_cast<std::int64_t>(sizeof(std::uint16_t));
          last.k.view.shape[1] = last.v.view.shape[1] = t;
          last.problem.s_q = 1;
          last.problem.s_kv = t;
          const Results got = run(last, recipe, on(backend), Passes::kForward);
          for (std::int64_t h = 0; h < 2; ++h) {
            for (std::int64_t d = 0; d < 64; ++d) {
              ASSERT_EQ(got.out.at(0, 0, h, d), base.out.at(0, t - 1, h, d)) << t << " keys";
            }
          }
        }
      },
      false);
}

}  // namespace
}  // namespace checkvalve::test
