// guarantees_test.cpp: G1-G4, G6 and G8 bit for bit on every host backend and recipe, with the leaky recipes as
// negative controls: the same comparison must catch them.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tbb/global_control.h>

#include <cmath>
#include <functional>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "support/tensors.h"

namespace checkvalve::test {
namespace {

constexpr std::int64_t kLength = 300;  // three spans: the shared copies are in use
const std::vector<std::int64_t> kCuts = {0, 1, 7, 30, 31, 32, 33, 63, 64, 100, 127, 128, 150, 258, 297, 298};

struct Param {
  std::string backend;
  Recipe recipe;

  friend void PrintTo(const Param& p, std::ostream* os) { *os << p.backend << " " << p.recipe.name; }
};

std::vector<Param> params(bool leaking) {
  std::vector<Param> all;
  AttentionProblem problem;
  problem.s_q = problem.s_kv = kLength;
  problem.d_qk = problem.d_v = 32;
  for (const Recipe& recipe : recipes()) {
    for (const std::string& backend : host_backends(problem, recipe)) {
      if (recipe.leaks() == leaking) {
        all.push_back({backend, recipe});
      }
    }
  }
  return all;
}

std::string param_name(const testing::TestParamInfo<Param>& info) {
  return info.param.backend + "_" + info.param.recipe.name;
}

// Ways to change a token.
struct Change {
  std::string name;
  std::function<double(double)> apply;
};
const std::vector<Change>& changes() {
  static const std::vector<Change> kChanges = {
      {"x 2^12", [](double x) { return std::ldexp(x, 12); }},
      {"x 2^20", [](double x) { return std::ldexp(x, 20); }},
      {"1e-30", [](double) { return 1e-30; }},
      {"1", [](double) { return 1.0; }},
      {"448", [](double) { return 448.0; }},
      {"3e38", [](double) { return 3e38; }},
      {"negated", [](double x) { return -x; }},
      {"NaN", [](double) { return std::numeric_limits<double>::quiet_NaN(); }},
      {"inf", [](double) { return std::numeric_limits<double>::infinity(); }},
  };
  return kChanges;
}

void change_rows(HostTensor& t, std::int64_t begin, std::int64_t end, const Change& change) {
  for (std::int64_t b = 0; b < t.view.shape[0]; ++b) {
    for (std::int64_t s = begin; s < end; ++s) {
      for (std::int64_t h = 0; h < t.view.shape[2]; ++h) {
        for (std::int64_t d = 0; d < t.view.shape[3]; ++d) {
          t.set(b, s, h, d, change.apply(t.at(b, s, h, d)));
        }
      }
    }
  }
}

Inputs copy_of(const Inputs& in) {
  Inputs out = in;
  out.q = clone(in.q);
  out.k = clone(in.k);
  out.v = clone(in.v);
  out.d_out = clone(in.d_out);
  return out;
}

Case base_case(std::int64_t length = kLength) {
  return {.h_q = 2, .h_kv = 1, .s_q = length, .s_kv = length, .d_qk = 32, .d_v = 32};
}

class Guarantee : public testing::TestWithParam<Param> {
 protected:
  [[nodiscard]] Results run_on(const Inputs& in, Passes passes = Passes::kForward,
                               DeltaFrom delta = DeltaFrom::kProbabilities, Options options = {}) const {
    options.backend = GetParam().backend;
    return run(in, GetParam().recipe, options, passes, delta);
  }

  // G1. "" or the first row <= cut that changed.
  [[nodiscard]] std::string causal_violation(const Inputs& in, const std::vector<std::int64_t>& cuts) const {
    const Results base = run_on(in);
    for (const std::int64_t cut : cuts) {
      for (const Change& change : changes()) {
        for (const char operand : {'q', 'k', 'v'}) {
          // Inside the own 32-token block first; then everything later.
          for (const std::int64_t end : {std::min(kLength, cut / 32 * 32 + 32), kLength}) {
            Inputs changed = copy_of(in);
            HostTensor& t = operand == 'q' ? changed.q : operand == 'k' ? changed.k : changed.v;
            change_rows(t, cut + 1, end, change);
            const Results got = run_on(changed);
            const std::string where =
                fmt::format("rows <= {}, tokens {}..{} of {} set to {}: ", cut, cut + 1, end - 1, operand, change.name);
            if (auto d = first_difference(base.out, got.out, 1, 0, cut + 1); !d.empty()) return where + "out" + d;
            if (auto d = first_difference(base.lse, got.lse, 2, 0, cut + 1); !d.empty()) return where + "lse" + d;
          }
        }
      }
    }
    return "";
  }

  // G2. "" or the first gradient row that changed.
  [[nodiscard]] std::string gradient_violation(const Inputs& in, const Options& options, DeltaFrom delta) const {
    for (const std::int64_t cut : {0, 7, 31, 45, 127, 140, 260}) {
      // With dO = 0 beyond the cut, gradients up to the cut do not depend on later tokens.
      Inputs silent = copy_of(in);
      change_rows(silent.d_out, cut + 1, kLength, {"0", [](double) { return 0.0; }});
      const Results base = run_on(silent, Passes::kForwardBackward, delta, options);
      for (const std::size_t which : {0U, 1U, 6U, 7U, 8U}) {
        const Change& change = changes()[which];
        for (const std::int64_t end : {std::min(kLength, cut / 32 * 32 + 32), kLength}) {
          Inputs changed = copy_of(silent);
          change_rows(changed.q, cut + 1, end, change);
          change_rows(changed.k, cut + 1, end, change);
          change_rows(changed.v, cut + 1, end, change);
          const Results got = run_on(changed, Passes::kForwardBackward, delta, options);
          const std::string where = fmt::format("rows <= {}, later tokens up to {} {}: ", cut, end - 1, change.name);
          if (auto d = first_difference(base.dq, got.dq, 1, 0, cut + 1); !d.empty()) return where + "dq" + d;
          if (auto d = first_difference(base.dk, got.dk, 1, 0, cut + 1); !d.empty()) return where + "dk" + d;
          if (auto d = first_difference(base.dv, got.dv, 1, 0, cut + 1); !d.empty()) return where + "dv" + d;
        }
      }
      // dK and dV after the cut do not depend on Q or dO of earlier rows.
      const Results full = run_on(in, Passes::kForwardBackward, delta, options);
      for (const std::size_t which : {0U, 6U, 7U, 8U}) {
        const Change& change = changes()[which];
        Inputs changed = copy_of(in);
        change_rows(changed.q, 0, cut + 1, change);
        change_rows(changed.d_out, 0, cut + 1, change);
        const Results got = run_on(changed, Passes::kForwardBackward, delta, options);
        const std::string where = fmt::format("rows > {}, q and d_out up to it {}: ", cut, change.name);
        if (auto d = first_difference(full.dk, got.dk, 1, cut + 1, kLength); !d.empty()) return where + "dk" + d;
        if (auto d = first_difference(full.dv, got.dv, 1, cut + 1, kLength); !d.empty()) return where + "dv" + d;
      }
    }
    return "";
  }

  // G3. "" or the first length whose rows differ from the whole call's.
  // V differs by 2^16 from token to token: in a block that is not yet complete, that moves a shared scale.
  [[nodiscard]] std::string prefix_violation() const {
    Case c = base_case();
    c.data = Data::kTokenRange;
    const Inputs whole = make_inputs(c);
    const Results base = run_on(whole);
    for (std::int64_t t = 1; t < kLength; ++t) {
      Inputs prefix = copy_of(whole);
      for (HostTensor* x : {&prefix.q, &prefix.k, &prefix.v, &prefix.d_out}) {
        x->view.shape[1] = t;
      }
      prefix.problem.s_q = prefix.problem.s_kv = t;
      const Results got = run_on(prefix);
      if (auto d = first_difference(got.out, base.out, 1, 0, t); !d.empty()) return fmt::format("t={}: out{}", t, d);
      if (auto d = first_difference(got.lse, base.lse, 2, 0, t); !d.empty()) return fmt::format("t={}: lse{}", t, d);
    }
    return "";
  }
};

class Safe : public Guarantee {};
class Leaky : public Guarantee {};

TEST_P(Safe, G1Causal) { EXPECT_EQ(causal_violation(make_inputs(base_case()), kCuts), ""); }

TEST_P(Safe, G1CausalFloat32) {
  Case c = base_case();
  c.dtype = DType::kFloat32;
  EXPECT_EQ(causal_violation(make_inputs(c), {7, 33, 140, 258}), "");
}

TEST_P(Leaky, G1CatchesIt) {
  const std::string caught = causal_violation(make_inputs(base_case()), kCuts);
  EXPECT_NE(caught, "");
  fmt::print("caught: {}\n", caught);
}

TEST_P(Safe, G1WithWindow) {
  for (const std::int64_t window : {5, 40, 128, 200}) {
    Case c = base_case();
    c.window_left = window;
    const Inputs in = make_inputs(c);
    const Results base = run_on(in);
    for (const std::int64_t row : {50, 140, 259, 299}) {
      // Neither later tokens nor tokens that left the window may change the row.
      for (const std::size_t which : {0U, 1U, 7U}) {
        Inputs changed = copy_of(in);
        for (HostTensor* t : {&changed.k, &changed.v}) {
          change_rows(*t, row + 1, kLength, changes()[which]);
          change_rows(*t, 0, std::max<std::int64_t>(0, row - window), changes()[which]);
        }
        const Results got = run_on(changed);
        EXPECT_EQ(first_difference(base.out, got.out, 1, row, row + 1), "") << "window " << window;
      }
    }
  }
}

TEST_P(Safe, G2GradientCausal) {
  const Inputs in = make_inputs(base_case());
  for (const DeltaFrom delta : {DeltaFrom::kProbabilities, DeltaFrom::kOutput}) {
    EXPECT_EQ(gradient_violation(in, {}, delta), "");
    if (GetParam().recipe.qk != Format::kAsGiven) {
      Options hybrid;
      hybrid.backward = BackwardPrecision::kHybrid;
      EXPECT_EQ(gradient_violation(in, hybrid, delta), "") << "hybrid";
    }
  }
}

TEST_P(Leaky, G2CatchesIt) {
  const Inputs in = make_inputs(base_case());
  EXPECT_NE(gradient_violation(in, {}, DeltaFrom::kProbabilities), "");
}

TEST_P(Safe, G3PrefixAtEveryLength) { EXPECT_EQ(prefix_violation(), ""); }

TEST_P(Leaky, G3CatchesIt) { EXPECT_NE(prefix_violation(), ""); }

TEST_P(Safe, G4BatchHeadsPackingAndThreads) {
  const Inputs alone = make_inputs(base_case());
  const Results base = run_on(alone, Passes::kForwardBackward);

  // The same sequence as entry 1 of a batch of 3, and as heads 2 and 3 of 6, among louder neighbours.
  Case c = base_case();
  c.b = 3;
  c.h_q = 6;
  c.h_kv = 3;
  c.seed = 99;
  Inputs batch = make_inputs(c);
  for (HostTensor* t : {&batch.q, &batch.k, &batch.v, &batch.d_out}) {
    change_rows(*t, 0, kLength, changes()[0]);
  }
  const auto place = [](const HostTensor& from, HostTensor& to, std::int64_t b, std::int64_t first_row,
                        std::int64_t first_head) {
    for (std::int64_t s = 0; s < from.view.shape[1]; ++s) {
      for (std::int64_t h = 0; h < from.view.shape[2]; ++h) {
        for (std::int64_t d = 0; d < from.view.shape[3]; ++d) {
          to.set(b, first_row + s, first_head + h, d, from.at(0, s, h, d));
        }
      }
    }
  };
  place(alone.q, batch.q, 1, 0, 2);
  place(alone.d_out, batch.d_out, 1, 0, 2);
  place(alone.k, batch.k, 1, 0, 1);
  place(alone.v, batch.v, 1, 0, 1);
  const Results got = run_on(batch, Passes::kForwardBackward);
  const auto same = [](const HostTensor& small, const HostTensor& large, std::int64_t b, std::int64_t first_row,
                       std::int64_t first_head) {
    HostTensor part = clone(large);
    part.view.shape = small.view.shape;
    const auto offset =
        b * large.view.strides[0] + first_row * large.view.strides[1] + first_head * large.view.strides[2];
    part.view.data = static_cast<std::byte*>(part.view.data) + offset * static_cast<std::int64_t>(sizeof(float));
    return first_difference(small, part, 1, 0, small.view.shape[1]);
  };
  EXPECT_EQ(same(base.out, got.out, 1, 0, 2), "");
  EXPECT_EQ(same(base.dq, got.dq, 1, 0, 2), "");
  EXPECT_EQ(same(base.dk, got.dk, 1, 0, 1), "");
  EXPECT_EQ(same(base.dv, got.dv, 1, 0, 1), "");

  // Packed behind two short sequences (so that its blocks start at odd rows), with slack rows at the end.
  Case packed_case = base_case(kLength + 50);
  Inputs packed = make_inputs(packed_case);
  place(alone.q, packed.q, 0, 37, 0);
  place(alone.d_out, packed.d_out, 0, 37, 0);
  place(alone.k, packed.k, 0, 37, 0);
  place(alone.v, packed.v, 0, 37, 0);
  packed.cu_q = packed.cu_kv = {0, 1, 37, 37 + kLength};
  packed.problem.b = 3;
  packed.problem.s_q = packed.problem.s_kv = kLength;
  packed.problem.total_q = packed.problem.total_kv = kLength + 50;
  packed.problem.cu_seqlens_q = packed.cu_q.data();
  packed.problem.cu_seqlens_kv = packed.cu_kv.data();
  const Results in_pack = run_on(packed, Passes::kForwardBackward);
  EXPECT_EQ(same(base.out, in_pack.out, 0, 37, 0), "");
  EXPECT_EQ(same(base.dq, in_pack.dq, 0, 37, 0), "");
  EXPECT_EQ(same(base.dk, in_pack.dk, 0, 37, 0), "");
  EXPECT_EQ(same(base.dv, in_pack.dv, 0, 37, 0), "");
  for (std::int64_t i = 0; i < kLength; ++i) {
    for (std::int64_t h = 0; h < 2; ++h) {
      ASSERT_EQ(in_pack.lse.at(h, 37 + i), base.lse.at(0, h, i));
    }
  }

  // One thread against all of them.
  const tbb::global_control one(tbb::global_control::max_allowed_parallelism, 1);
  const Results serial = run_on(alone, Passes::kForwardBackward);
  EXPECT_EQ(first_difference(base.out, serial.out, 1, 0, kLength), "");
  EXPECT_EQ(first_difference(base.dq, serial.dq, 1, 0, kLength), "");
  EXPECT_EQ(first_difference(base.dk, serial.dk, 1, 0, kLength), "");
  EXPECT_EQ(first_difference(base.dv, serial.dv, 1, 0, kLength), "");
}

TEST_P(Safe, G6Deterministic) {
  const Inputs in = make_inputs(base_case(200));
  const Results base = run_on(in, Passes::kForwardBackward);
  for (int repeat = 0; repeat < 20; ++repeat) {
    const Results got = run_on(in, Passes::kForwardBackward);
    ASSERT_EQ(first_difference(base.out, got.out, 1, 0, 200), "");
    ASSERT_EQ(first_difference(base.lse, got.lse, 2, 0, 200), "");
    ASSERT_EQ(first_difference(base.dq, got.dq, 1, 0, 200), "");
    ASSERT_EQ(first_difference(base.dk, got.dk, 1, 0, 200), "");
    ASSERT_EQ(first_difference(base.dv, got.dv, 1, 0, 200), "");
  }
}

TEST_P(Safe, G8InputsAndPaddingUntouched) {
  // Rows beyond the used lengths hold NaN: they must not be read, and their outputs must be 0, -inf and 0.
  Case c = base_case(100);
  c.b = 3;
  const Inputs clean = make_inputs(c);
  Inputs in = copy_of(clean);
  in.used_q = in.used_kv = {1, 100, 40};
  for (std::int64_t b = 0; b < 3; ++b) {
    for (std::int64_t s = in.used_q[static_cast<std::size_t>(b)]; s < 100; ++s) {
      for (HostTensor* t : {&in.q, &in.k, &in.v, &in.d_out}) {
        for (std::int64_t h = 0; h < t->view.shape[2]; ++h) {
          for (std::int64_t d = 0; d < t->view.shape[3]; ++d) {
            t->set(b, s, h, d, std::numeric_limits<double>::quiet_NaN());
          }
        }
      }
    }
  }
  in.problem.seqused_q = in.used_q.data();
  in.problem.seqused_kv = in.used_kv.data();
  const Inputs before = copy_of(in);
  const Results got = run_on(in, Passes::kForwardBackward);
  EXPECT_EQ(in.q.storage, before.q.storage);
  EXPECT_EQ(in.k.storage, before.k.storage);
  EXPECT_EQ(in.v.storage, before.v.storage);
  EXPECT_EQ(in.d_out.storage, before.d_out.storage);
  for (std::int64_t b = 0; b < 3; ++b) {
    const std::int64_t used = in.used_q[static_cast<std::size_t>(b)];
    for (std::int64_t s = 0; s < 100; ++s) {
      for (std::int64_t d = 0; d < 32; ++d) {
        ASSERT_TRUE(std::isfinite(got.out.at(b, s, 0, d)));
        ASSERT_TRUE(s < used || (got.out.at(b, s, 1, d) == 0.0 && got.dq.at(b, s, 1, d) == 0.0));
        ASSERT_TRUE(s < used || (got.dk.at(b, s, 0, d) == 0.0 && got.dv.at(b, s, 0, d) == 0.0));
      }
      ASSERT_EQ(std::isinf(got.lse.at(b, 1, s)), s >= used);
    }
  }
  // The used rows are those of the unpadded call (bottom-right alignment: s_q = s_kv in each entry).
  const Results whole = run_on(clean, Passes::kForward);
  for (std::int64_t s = 0; s < 40; ++s) {
    ASSERT_EQ(got.out.at(2, s, 1, 3), whole.out.at(2, s, 1, 3));
  }
}

// A NaN or infinity in token j of K or V reaches every row that sees j and no other; in Q it reaches its own row only.
TEST_P(Safe, NonFiniteContainment) {
  const Inputs in = make_inputs(base_case());
  const Results base = run_on(in);
  for (const std::int64_t j : {0, 5, 31, 40, 127, 128, 200, 299}) {
    for (const char operand : {'q', 'k', 'v'}) {
      for (const double value : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
        Inputs changed = copy_of(in);
        (operand == 'q' ? changed.q : operand == 'k' ? changed.k : changed.v).set(0, j, 0, 3, value);
        const Results got = run_on(changed);
        EXPECT_EQ(first_difference(base.out, got.out, 1, 0, j), "") << operand << " token " << j;
        EXPECT_EQ(first_difference(base.lse, got.lse, 2, 0, j), "");
        if (operand == 'q') {
          EXPECT_EQ(first_difference(base.out, got.out, 1, j + 1, kLength), "") << "q reaches its own row only";
        }
        // The high-precision recipes follow IEEE arithmetic (an infinite V gives an infinite output).
        const bool poisoned = !std::isfinite(got.out.at(0, j, 0, 3));
        EXPECT_TRUE(poisoned || GetParam().recipe.qk == Format::kAsGiven) << operand << " token " << j;
        if (GetParam().recipe.qk != Format::kAsGiven && operand != 'q') {
          for (std::int64_t i = j; i < kLength; ++i) {
            ASSERT_TRUE(std::isnan(got.out.at(0, i, 0, 0)) && std::isnan(got.out.at(0, i, 1, 31))) << "row " << i;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Safe, testing::ValuesIn(params(false)), param_name);
INSTANTIATE_TEST_SUITE_P(Backends, Leaky, testing::ValuesIn(params(true)), param_name);

}  // namespace
}  // namespace checkvalve::test
