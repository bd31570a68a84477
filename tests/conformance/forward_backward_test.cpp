// forward_backward_test.cpp: every host backend x recipe x shape x mask against the brute-force oracle of
// tests/support.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "support/oracle.h"
#include "support/tensors.h"

namespace checkvalve::test {
namespace {

// Float32 arithmetic of a backend: logits of 256 products with |s| below 2^7 are off by less than 2^-24 * 2^4 * 2^7 of
// an exponent, sums of a few hundred terms by as much of their magnitude.
constexpr double kSlack = 4e-5;
// lse is stored in float32; its error is that of the largest logit.
constexpr double kLseSlack = 1e-5;

std::vector<Case> cases() {
  std::vector<Case> all;
  // Lengths around block, span and tile edges.
  for (const std::int64_t s : {1, 2, 9, 12, 31, 32, 33, 63, 64, 65, 97, 127, 128, 129, 257, 300}) {
    all.push_back({.h_q = 2, .h_kv = 1, .s_q = s, .s_kv = s, .d_qk = 32, .d_v = 32});
  }
  // s_q != s_kv, decode, more queries than keys.
  for (const auto& [s_q, s_kv] : std::vector<std::pair<int, int>>{{2, 5}, {5, 2}, {1, 300}, {40, 290}, {290, 40}}) {
    all.push_back({.h_q = 2, .h_kv = 2, .s_q = s_q, .s_kv = s_kv, .d_qk = 32, .d_v = 32});
  }
  // Head ratios.
  for (const auto& [h_q, h_kv] : std::vector<std::pair<int, int>>{{7, 1}, {6, 1}, {5, 1}, {6, 2}, {16, 1}, {4, 4}}) {
    all.push_back({.b = 2, .h_q = h_q, .h_kv = h_kv, .s_q = 70, .s_kv = 70, .d_qk = 16, .d_v = 16});
  }
  // Head dimensions, equal or not.
  for (const auto& [d_qk, d_v] : std::vector<std::pair<int, int>>{{1, 1},
                                                                  {7, 5},
                                                                  {8, 8},
                                                                  {40, 40},
                                                                  {72, 72},
                                                                  {80, 80},
                                                                  {96, 96},
                                                                  {128, 128},
                                                                  {192, 128},
                                                                  {64, 128},
                                                                  {256, 256}}) {
    all.push_back({.s_q = 50, .s_kv = 50, .d_qk = d_qk, .d_v = d_v});
  }
  // Layouts, dtypes, windows, no mask.
  for (const Layout layout : {Layout::kBshd, Layout::kSbhd, Layout::kBhsd}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      all.push_back({.b = 2,
                     .h_q = 4,
                     .h_kv = 2,
                     .s_q = 40,
                     .s_kv = 40,
                     .d_qk = 24,
                     .d_v = 16,
                     .dtype = dtype,
                     .layout = layout});
    }
  }
  for (const std::int64_t window : {0, 1, 31, 32, 100, 128, 150, 299}) {
    all.push_back({.s_q = 300, .s_kv = 300, .d_qk = 16, .d_v = 16, .window_left = window});
  }
  all.push_back({.s_q = 60, .s_kv = 200, .d_qk = 16, .d_v = 16, .causal = false});
  // Data that is hard on scales.
  for (const Data data : {Data::kOutliers, Data::kTokenRange, Data::kSink, Data::kNegative}) {
    all.push_back({.h_q = 2, .h_kv = 1, .s_q = 280, .s_kv = 280, .d_qk = 64, .d_v = 64, .data = data});
  }
  return all;
}

struct Param {
  std::string backend;
  Recipe recipe;

  friend void PrintTo(const Param& p, std::ostream* os) { *os << p.backend << " " << p.recipe.name; }
};

std::vector<Param> params() {
  std::vector<Param> all;
  for (const Recipe& recipe : recipes()) {
    AttentionProblem problem;
    problem.s_q = problem.s_kv = problem.d_qk = problem.d_v = 64;
    for (const std::string& backend : host_backends(problem, recipe)) {
      all.push_back({backend, recipe});
    }
  }
  return all;
}

double row_norm(const HostTensor& t, std::int64_t s, std::int64_t h) {
  double sum = 0.0;
  for (std::int64_t c = 0; c < t.view.shape[3]; ++c) {
    sum += std::pow(t.at(0, s, h, c), 2);
  }
  return std::sqrt(sum);
}

class Conformance : public testing::TestWithParam<Param> {
 protected:
  void check(const Case& c, Options options) {
    SCOPED_TRACE(to_string(c));
    const Inputs in = make_inputs(c);
    options.backend = GetParam().backend;
    options.allow_leak = true;
    const Results got = run(in, GetParam().recipe, options, Passes::kForwardBackward);
    EXPECT_EQ(got.report.backend_used, GetParam().backend);
    const Expected want = expect(in, GetParam().recipe, options);
    EXPECT_EQ(check_rows("out", got.out, want.out, kSlack, &largest_forward_), "");
    EXPECT_EQ(check_rows("dq", got.dq, want.dq, kSlack, &largest_backward_), "");
    EXPECT_EQ(check_rows("dk", got.dk, want.dk, kSlack, &largest_backward_), "");
    EXPECT_EQ(check_rows("dv", got.dv, want.dv, kSlack, &largest_backward_), "");
    for (std::size_t at = 0; at < want.lse.size(); ++at) {
      const double lse = static_cast<double>(static_cast<const float*>(got.lse.view.data)[at]);
      if (std::isinf(want.lse[at])) {
        ASSERT_EQ(lse, want.lse[at]) << "lse " << at;
      } else {
        ASSERT_LE(std::fabs(lse - want.lse[at]), kLseSlack * (1.0 + std::fabs(want.lse[at]))) << "lse " << at;
      }
    }
  }

  void TearDown() override {
    fmt::print("largest error as a share of its bound: forward {:.3f}, backward {:.3f}\n", largest_forward_,
               largest_backward_);
  }

  double largest_forward_ = 0.0;
  double largest_backward_ = 0.0;
};

TEST_P(Conformance, MatchesTheDecodedOracle) {
  for (const Case& c : cases()) {
    check(c, {});
  }
}

TEST_P(Conformance, HybridBackward) {
  if (GetParam().recipe.qk == Format::kAsGiven) {
    Options options;
    options.backward = BackwardPrecision::kHybrid;
    EXPECT_THROW(run(make_inputs({}), GetParam().recipe, options, Passes::kForwardBackward), std::exception);
    return;
  }
  Options options;
  options.backward = BackwardPrecision::kHybrid;
  for (const std::int64_t s : {1, 33, 129, 300}) {
    check({.h_q = 2, .h_kv = 1, .s_q = s, .s_kv = s, .d_qk = 48, .d_v = 40}, options);
  }
  check({.s_q = 280, .s_kv = 280, .data = Data::kSink}, options);
}

// delta from the float32 output instead of sum_j P dP: the two differ by the forward's rounding of P only.
TEST_P(Conformance, DeltaFromOutput) {
  const Inputs in = make_inputs({.h_q = 2, .h_kv = 1, .s_q = 200, .s_kv = 200, .data = Data::kSink});
  for (const BackwardPrecision precision : {BackwardPrecision::kBFloat16, BackwardPrecision::kHybrid}) {
    if (precision == BackwardPrecision::kHybrid && GetParam().recipe.qk == Format::kAsGiven) {
      continue;
    }
    Options options;
    options.backend = GetParam().backend;
    options.allow_leak = true;
    options.backward = precision;
    const Results a = run(in, GetParam().recipe, options, Passes::kForwardBackward, DeltaFrom::kProbabilities);
    const Results b = run(in, GetParam().recipe, options, Passes::kForwardBackward, DeltaFrom::kOutput);
    const Expected want = expect(in, GetParam().recipe, options);
    double largest_k = 0.0;
    for (std::int64_t j = 0; j < 200; ++j) {
      largest_k = std::max(largest_k, row_norm(in.k, j, 0));
    }
    // Row 0 sees one key: P = 1 in every format, so out is exactly what dP is taken from, and dS = dP - delta is 0.
    for (std::int64_t h = 0; h < 2; ++h) {
      ASSERT_LE(row_norm(b.dq, 0, h), kSlack * want.dq.magnitude[static_cast<std::size_t>(h)]) << "head " << h;
    }
    for (std::int64_t i = 0; i < 200; ++i) {
      for (std::int64_t h = 0; h < 2; ++h) {
        double change = 0.0;
        for (std::int64_t c = 0; c < 64; ++c) {
          change += std::pow(a.dq.at(0, i, h, c) - b.dq.at(0, i, h, c), 2);
        }
        // |delta_i - sum_j P dP| <= |dO_i| * (error of out_i), and dq_i moves by that times sum_j P_ij K_j * scale.
        // Quantised K and dO are at most 1/8 longer than the originals; the rounding of dS adds its own bound twice.
        const auto at = static_cast<std::size_t>(i * 2 + h);
        const double forward_error = want.out.bound[at] + kSlack * want.out.magnitude[at];
        const double allowed = 1.125 * 1.125 * row_norm(in.d_out, i, h) * forward_error * largest_k *
                                   static_cast<double>(in.problem.scale()) +
                               2.0 * want.dq.bound[at] + 2.0 * kSlack * want.dq.magnitude[at];
        ASSERT_LE(std::sqrt(change), allowed) << "row " << i << " head " << h;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Conformance, testing::ValuesIn(params()),
                         [](const auto& p) { return p.param.backend + "_" + p.param.recipe.name; });

}  // namespace
}  // namespace checkvalve::test
