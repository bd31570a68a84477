// numerics_containment_test.cpp: a non-finite element spoils the scale it shares and nothing else; rows that are not in
// use are never read.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "support/numerics_quantized.h"

namespace checkvalve {
namespace {

using test::byte_of;
using test::Inputs;
using test::quantize_inputs;
using test::value_of;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// One copy of an operand: its elements, its scales, and what a scale covers.
struct Copy {
  std::string name;
  TensorView data, scale;
  ScaleScope scope;
};

std::vector<Copy> copies_of(const std::string& operand, const QuantizedQKV& t, const Recipe& r) {
  if (operand == "q") {
    return {{"q", t.q, t.q_scale, r.qk_scale}};
  }
  std::vector<Copy> copies;
  const bool key = operand == "k";
  copies.push_back({operand, key ? t.k : t.v, key ? t.k_scale : t.v_scale, key ? r.qk_scale : r.v_scale});
  if ((key ? r.k_shared_scale : r.v_shared_scale) != ScaleScope::kNone) {
    copies.push_back({operand + "_shared", key ? t.k_shared : t.v_shared, key ? t.k_shared_scale : t.v_shared_scale,
                      key ? r.k_shared_scale : r.v_shared_scale});
  }
  return copies;
}

// True if element (n, h, s, c) shares a scale with (bad_n, bad_h, bad_s, bad_c).
struct Element {
  std::int64_t n, h, s, c;
};
bool share_scale(ScaleScope scope, const Element& a, const Element& b) {
  if (scope == ScaleScope::kTensor) {
    return true;
  }
  if (a.n != b.n || a.h != b.h) {
    return false;
  }
  switch (scope) {
    case ScaleScope::kRow32:
      return a.s == b.s && a.c / 32 == b.c / 32;
    case ScaleScope::kColumn32:
      return a.s / 32 == b.s / 32 && a.c == b.c;
    case ScaleScope::kToken:
      return a.s == b.s;
    case ScaleScope::kBlock:
      return a.s / 32 == b.s / 32;
    default:
      return false;
  }
}

// The scale of an element.
double scale_value(const Copy& copy, const Element& e) {
  switch (copy.scope) {
    case ScaleScope::kTensor:
      return value_of(copy.scale, 0);
    case ScaleScope::kRow32:
      return value_of(copy.scale, e.n, e.h, e.s, e.c / 32);
    case ScaleScope::kColumn32:
      return value_of(copy.scale, e.n, e.h, e.s / 32, e.c);
    case ScaleScope::kToken:
      return value_of(copy.scale, e.n, e.h, e.s);
    default:
      return value_of(copy.scale, e.n, e.h, e.s / 32);
  }
}

// "" if `hit` is `clean` but for the scales that the bad element shares, which are NaN over zero bytes.
std::string check_contained(const Copy& clean, const Copy& hit, const Element& bad) {
  const auto& shape = clean.data.shape;
  for (std::int64_t n = 0; n < shape[0]; ++n) {
    for (std::int64_t h = 0; h < shape[1]; ++h) {
      for (std::int64_t s = 0; s < shape[2]; ++s) {
        for (std::int64_t c = 0; c < shape[3]; ++c) {
          const Element e{n, h, s, c};
          const int byte = byte_of(hit.data, n, h, s, c);
          const double scale = scale_value(hit, e);
          const bool spoilt = share_scale(clean.scope, e, bad);
          const bool ok = spoilt ? byte == 0 && std::isnan(scale)
                                 : byte == byte_of(clean.data, n, h, s, c) && scale == scale_value(clean, e);
          if (!ok) {
            return fmt::format("{}[{}, {}, {}, {}]: byte {:#04x}, scale {}, {}", hit.name, n, h, s, c, byte, scale,
                               spoilt ? "expected 0 and NaN" : "changed though it shares nothing with the bad element");
          }
        }
      }
    }
  }
  return "";
}

class Containment : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Recipes, Containment,
                         testing::Values("fp8_tensor", "mxfp8", "mxfp8_own_block", "mxfp8_token", "int8_token"),
                         [](const auto& recipe) { return recipe.param; });

TEST_P(Containment, ANonFiniteElementSpoilsOnlyTheScaleItShares) {
  const Recipe& recipe = recipe_from_name(GetParam());
  const Inputs clean = test::make_inputs(
      {.b = 2, .h_q = 4, .h_kv = 2, .s_q = 70, .s_kv = 70, .d_qk = 48, .d_v = 40, .dtype = DType::kFloat32});
  const auto before = quantize_inputs(clean, recipe);
  for (const double value : {kNaN, kInfinity, -kInfinity}) {
    for (const Element bad : {Element{1, 1, 37, 33}, Element{0, 0, 0, 0}, Element{1, 0, 69, 39}}) {
      for (const std::string operand : {"q", "k", "v"}) {
        Inputs hit = test::make_inputs(
            {.b = 2, .h_q = 4, .h_kv = 2, .s_q = 70, .s_kv = 70, .d_qk = 48, .d_v = 40, .dtype = DType::kFloat32});
        (operand == "q" ? hit.q : operand == "k" ? hit.k : hit.v).set(bad.n, bad.s, bad.h, bad.c, value);
        const auto after = quantize_inputs(hit, recipe);
        for (const std::string other : {"q", "k", "v"}) {
          const auto clean_copies = copies_of(other, before.tensors, recipe);
          const auto hit_copies = copies_of(other, after.tensors, recipe);
          // An element of a batch that does not exist shares nothing: other operands must be unchanged.
          const Element nowhere{-1, -1, -1, -1};
          for (std::size_t i = 0; i < clean_copies.size(); ++i) {
            Copy expected = clean_copies[i];
            if (other != operand && expected.scope == ScaleScope::kTensor) {
              EXPECT_EQ(value_of(expected.scale, 0), value_of(hit_copies[i].scale, 0));
              continue;
            }
            EXPECT_EQ(check_contained(expected, hit_copies[i], other == operand ? bad : nowhere), "")
                << value << " in " << operand << " of token " << bad.s;
          }
        }
      }
    }
  }
}

// Finite float32 rows whose rotation overflows are contained like infinities.
TEST(ContainmentOfRotation, AnOverflowingRowSpoilsItsOwnToken) {
  Inputs in = test::make_inputs({.s_q = 3, .s_kv = 3, .d_qk = 64, .d_v = 1, .dtype = DType::kFloat32});
  for (std::int64_t c = 0; c < 64; ++c) {
    in.k.set(0, 1, 0, c, 3e38);
  }
  const auto quantized = quantize_inputs(in, recipe_from_name("int8_token"));
  EXPECT_TRUE(std::isnan(value_of(quantized.tensors.k_scale, 0, 0, 1)));
  EXPECT_TRUE(std::isfinite(value_of(quantized.tensors.k_scale, 0, 0, 0)));
  EXPECT_TRUE(std::isfinite(value_of(quantized.tensors.k_scale, 0, 0, 2)));
  for (std::int64_t c = 0; c < 64; ++c) {
    EXPECT_EQ(byte_of(quantized.tensors.k, 0, 0, 1, c), 0);
  }
}

class RowsInUse : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Recipes, RowsInUse,
                         testing::Values("fp32", "bf16", "fp16", "fp8_tensor", "mxfp8", "mxfp8_own_block",
                                         "mxfp8_token", "int8_token"),
                         [](const auto& recipe) { return recipe.param; });

// Sets every element of rows [begin, end) of dimension s of batch n.
void fill_rows(test::HostTensor& t, std::int64_t n, std::int64_t begin, std::int64_t end, double value) {
  for (std::int64_t s = begin; s < end; ++s) {
    for (std::int64_t h = 0; h < t.view.shape[2]; ++h) {
      for (std::int64_t c = 0; c < t.view.shape[3]; ++c) {
        t.set(n, s, h, c, value);
      }
    }
  }
}

TEST_P(RowsInUse, PaddingOfPaddedSequencesIsNotRead) {
  const Recipe& recipe = recipe_from_name(GetParam());
  const std::vector<std::int32_t> used_q = {9, 0, 40};
  const std::vector<std::int32_t> used_kv = {33, 0, 64};
  const auto run = [&](double padding) {
    Inputs in = test::make_inputs({.b = 3, .h_q = 2, .s_q = 40, .s_kv = 70, .d_qk = 16, .d_v = 24});
    in.problem.seqused_q = used_q.data();
    in.problem.seqused_kv = used_kv.data();
    for (std::int64_t n = 0; n < 3; ++n) {
      const auto at = static_cast<std::size_t>(n);
      fill_rows(in.q, n, used_q[at], 40, padding);
      fill_rows(in.k, n, used_kv[at], 70, padding);
      fill_rows(in.v, n, used_kv[at], 70, padding);
    }
    return quantize_inputs(in, recipe);
  };
  const auto clean = run(0.0);
  EXPECT_EQ(test::first_difference(run(kNaN).tensors, clean.tensors), "");
  EXPECT_EQ(test::first_difference(run(3e38).tensors, clean.tensors), "");
  for (std::int64_t c = 0; c < 24; ++c) {
    EXPECT_EQ(value_of(clean.tensors.v, 0, 0, 33, c), 0.0);
    EXPECT_EQ(value_of(clean.tensors.v, 1, 0, 0, c), 0.0);
  }
}

TEST_P(RowsInUse, SlackOfPackedTensorsIsNotRead) {
  const Recipe& recipe = recipe_from_name(GetParam());
  const std::vector<std::int32_t> cu_q = {0, 5, 5, 20};
  const std::vector<std::int32_t> cu_kv = {0, 33, 33, 70};
  const auto run = [&](double slack) {
    Inputs in = test::make_inputs({.h_q = 2, .s_q = 30, .s_kv = 101, .d_qk = 16, .d_v = 24});
    AttentionProblem& p = in.problem;
    p.b = 3;
    p.total_q = p.s_q;
    p.total_kv = p.s_kv;
    p.cu_seqlens_q = cu_q.data();
    p.cu_seqlens_kv = cu_kv.data();
    fill_rows(in.q, 0, 20, 30, slack);
    fill_rows(in.k, 0, 70, 101, slack);
    fill_rows(in.v, 0, 70, 101, slack);
    return quantize_inputs(in, recipe);
  };
  const auto clean = run(0.0);
  EXPECT_EQ(test::first_difference(run(kNaN).tensors, clean.tensors), "");
  EXPECT_EQ(test::first_difference(run(3e38).tensors, clean.tensors), "");
}

}  // namespace
}  // namespace checkvalve
