// numerics_invariance_test.cpp: the bytes do not depend on layout, dtype, batch or packing; and each element is encoded
// with the scale that is stored beside it. Numbers are those of the collection of inputs that broke other libraries.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "numerics/hadamard.h"
#include "numerics/scale_layout.h"
#include "support/numerics_quantized.h"
#include "support/numerics_values.h"

namespace checkvalve {
namespace {

using test::byte_of;
using test::Case;
using test::first_difference;
using test::HostTensor;
using test::Inputs;
using test::quantize_inputs;
using test::value_of;

class EachRecipe : public testing::TestWithParam<std::string> {
 protected:
  [[nodiscard]] const Recipe& recipe() const { return recipe_from_name(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Quantised, EachRecipe,
                         testing::Values("fp8_tensor", "mxfp8", "mxfp8_own_block", "mxfp8_token", "int8_token"),
                         [](const auto& name) { return name.param; });

constexpr Case kCase{.b = 2, .h_q = 4, .h_kv = 2, .s_q = 37, .s_kv = 70, .d_qk = 48, .d_v = 40};

TEST_P(EachRecipe, LayoutsGiveTheSameBytes) {
  const auto bshd = quantize_inputs(test::make_inputs(kCase), recipe());
  for (const Layout layout : {Layout::kSbhd, Layout::kBhsd}) {
    Case other = kCase;
    other.layout = layout;
    EXPECT_EQ(first_difference(quantize_inputs(test::make_inputs(other), recipe()).tensors, bshd.tensors), "");
  }
}

TEST_P(EachRecipe, ExpandedHeadsGiveTheBytesOfCopiedHeads) {
  Inputs copied = test::make_inputs(kCase);
  for (HostTensor* t : {&copied.k, &copied.v}) {
    for (std::int64_t n = 0; n < 2; ++n) {
      for (std::int64_t s = 0; s < kCase.s_kv; ++s) {
        for (std::int64_t c = 0; c < t->view.shape[3]; ++c) {
          t->set(n, s, 1, c, t->at(n, s, 0, c));
        }
      }
    }
  }
  const auto expected = quantize_inputs(copied, recipe());
  Inputs expanded = test::make_inputs(kCase);
  expanded.k.view.strides[2] = 0;
  expanded.v.view.strides[2] = 0;
  EXPECT_EQ(first_difference(quantize_inputs(expanded, recipe()).tensors, expected.tensors), "");
}

TEST_P(EachRecipe, ReversedAndGappedChannelsGiveTheSameBytes) {
  const Inputs dense = test::make_inputs(kCase);
  const auto expected = quantize_inputs(dense, recipe());
  // The same values with channels stored backwards, two elements apart.
  HostTensor v = test::make_attention_tensor(kCase.dtype, Layout::kBshd, 2, kCase.s_kv, 2, 2 * kCase.d_v);
  v.poison();
  v.view.shape[3] = kCase.d_v;
  v.view.strides[3] = -2;
  v.view.data =
      static_cast<std::byte*>(v.view.data) + static_cast<std::size_t>(2 * kCase.d_v - 1) * size_of(kCase.dtype);
  for (std::int64_t n = 0; n < 2; ++n) {
    for (std::int64_t s = 0; s < kCase.s_kv; ++s) {
      for (std::int64_t h = 0; h < 2; ++h) {
        for (std::int64_t c = 0; c < kCase.d_v; ++c) {
          v.set(n, s, h, c, dense.v.at(n, s, h, c));
        }
      }
    }
  }
  const auto actual = quantize_inputs(dense.problem, recipe(), dense.q.view, dense.k.view, v.view);
  EXPECT_EQ(first_difference(actual.tensors, expected.tensors), "");
}

TEST_P(EachRecipe, DtypesGiveTheSameBytesForValuesThatAllHold) {
  const auto run = [this](DType dtype) {
    Case c = kCase;
    c.dtype = dtype;
    Inputs in = test::make_inputs(c);
    int n = 0;
    for (HostTensor* t : {&in.q, &in.k, &in.v}) {
      for (std::int64_t b = 0; b < t->view.shape[0]; ++b) {
        for (std::int64_t s = 0; s < t->view.shape[1]; ++s) {
          for (std::int64_t h = 0; h < t->view.shape[2]; ++h) {
            for (std::int64_t d = 0; d < t->view.shape[3]; ++d, ++n) {
              t->set(b, s, h, d, std::ldexp(static_cast<double>(n * 37 % 255 - 127), n % 11 - 9));
            }
          }
        }
      }
    }
    return quantize_inputs(in, recipe());
  };
  const auto expected = run(DType::kFloat32);
  EXPECT_EQ(first_difference(run(DType::kBFloat16).tensors, expected.tensors), "");
  EXPECT_EQ(first_difference(run(DType::kFloat16).tensors, expected.tensors), "");
}

// Elements of one copy against the source, decoded with the stored scale: a scale that was rounded after the elements
// were encoded is wrong by up to a factor of 2 (case 16).
template <typename ScaleAt>
void expect_decodes(const char* name, const TensorView& data, const HostTensor& source, bool rotated,
                    ScaleAt scale_at) {
  const auto& shape = data.shape;
  std::vector<float> row(static_cast<std::size_t>(shape[3]));
  for (std::int64_t n = 0; n < shape[0]; ++n) {
    for (std::int64_t h = 0; h < shape[1]; ++h) {
      for (std::int64_t s = 0; s < shape[2]; ++s) {
        for (std::int64_t c = 0; c < shape[3]; ++c) {
          row[static_cast<std::size_t>(c)] = static_cast<float>(source.at(n, s, h, c));
        }
        if (rotated) {
          numerics::rotate_row(row.data(), static_cast<int>(shape[3]));
        }
        for (std::int64_t c = 0; c < shape[3]; ++c) {
          const auto x = static_cast<double>(row[static_cast<std::size_t>(c)]);
          const double scale = scale_at(n, h, s, c);
          if (data.dtype == DType::kInt8) {
            ASSERT_NEAR(value_of(data, n, h, s, c) * scale, x, scale * 0.50001) << name << " token " << s;
          } else {
            // A tensor scale is no power of two: the quotient is the float32 one.
            const float quotient = static_cast<float>(x) / static_cast<float>(scale);
            ASSERT_EQ(byte_of(data, n, h, s, c), test::nearest_e4m3(quotient)) << name << " token " << s;
          }
        }
      }
    }
  }
}

void expect_decodes(const char* name, const TensorView& data, const TensorView& scale, ScaleScope scope,
                    const HostTensor& source, bool rotated) {
  expect_decodes(name, data, source, rotated, [&](std::int64_t n, std::int64_t h, std::int64_t s, std::int64_t c) {
    switch (scope) {
      case ScaleScope::kTensor:
        return value_of(scale, 0);
      case ScaleScope::kRow32:
        return value_of(scale, n, h, s, c / 32);
      case ScaleScope::kColumn32:
        return value_of(scale, n, h, s / 32, c);
      case ScaleScope::kToken:
        return value_of(scale, n, h, s);
      default:
        return value_of(scale, n, h, s / 32);
    }
  });
}

TEST_P(EachRecipe, ElementsAreEncodedWithTheStoredScale) {
  const Recipe& r = recipe();
  for (const test::Data data : {test::Data::kGauss, test::Data::kOutliers, test::Data::kTokenRange}) {
    Case c = kCase;
    c.data = data;
    const Inputs in = test::make_inputs(c);
    const auto quantized = quantize_inputs(in, r);
    const QuantizedQKV& t = quantized.tensors;
    expect_decodes("q", t.q, t.q_scale, r.qk_scale, in.q, r.rotate_qk);
    expect_decodes("k", t.k, t.k_scale, r.qk_scale, in.k, r.rotate_qk);
    expect_decodes("v", t.v, t.v_scale, r.v_scale, in.v, false);
    if (r.k_shared_scale != ScaleScope::kNone) {
      expect_decodes("k_shared", t.k_shared, t.k_shared_scale, r.k_shared_scale, in.k, r.rotate_qk);
    }
    if (r.v_shared_scale != ScaleScope::kNone) {
      expect_decodes("v_shared", t.v_shared, t.v_shared_scale, r.v_shared_scale, in.v, false);
    }
  }
}

// Zero tensors, rows and channels give finite scales and zero bytes (case 11).
TEST_P(EachRecipe, ZerosGiveFiniteScalesAndZeroBytes) {
  Inputs in = test::make_inputs(kCase);
  for (HostTensor* t : {&in.q, &in.k, &in.v}) {
    std::ranges::fill(t->storage, std::byte{0});
  }
  const auto quantized = quantize_inputs(in, recipe());
  for (const auto& [name, view] : test::tensors_of(quantized.tensors)) {
    const bool scale = name.ends_with("_scale");
    for (std::int64_t at = 0; view.rank != 0 && at < view.numel(); ++at) {
      const double value = numerics::load_element(view, at);
      if (scale) {
        ASSERT_TRUE(std::isfinite(value) && value > 0.0) << name << " entry " << at << " is " << value;
      } else {
        ASSERT_EQ(value, 0.0) << name;
      }
    }
  }
}

// Rows of 1e-38, 1e-45, 3e38 and -0 (case 15): no finite row gives a NaN scale or a byte that is NaN.
TEST_P(EachRecipe, ExtremeFiniteRowsStayFinite) {
  Inputs in = test::make_inputs({.s_q = 5, .s_kv = 5, .d_qk = 33, .d_v = 33, .dtype = DType::kFloat32});
  const double rows[] = {1e-38, 1e-45, 3e38, -0.0, 1.0};
  for (HostTensor* t : {&in.q, &in.k, &in.v}) {
    for (std::int64_t s = 0; s < 5; ++s) {
      for (std::int64_t c = 0; c < 33; ++c) {
        t->set(0, s, 0, c, rows[s]);
      }
    }
  }
  const auto quantized = quantize_inputs(in, recipe());
  for (const auto& [name, view] : test::tensors_of(quantized.tensors)) {
    for (std::int64_t at = 0; view.rank != 0 && at < view.numel(); ++at) {
      ASSERT_TRUE(std::isfinite(numerics::load_element(view, at))) << name << " entry " << at;
    }
  }
}

TEST(Extremes, MxKeepsTinyRowsAndTheLargest) {
  Inputs in = test::make_inputs({.s_q = 3, .s_kv = 3, .d_qk = 1, .d_v = 1, .dtype = DType::kFloat32});
  in.q.set(0, 0, 0, 0, 1e-38);
  in.q.set(0, 1, 0, 0, 1e-45);
  in.q.set(0, 2, 0, 0, 3e38);
  const auto quantized = quantize_inputs(in, recipe_from_name("mxfp8_token"));
  const auto decoded = [&](std::int64_t s) {
    return value_of(quantized.tensors.q, 0, 0, s, 0) * value_of(quantized.tensors.q_scale, 0, 0, s, 0);
  };
  EXPECT_NEAR(decoded(0), 1e-38, 0x1p-4 * 1e-38);
  EXPECT_EQ(decoded(1), 0.0);
  EXPECT_NEAR(decoded(2), 3e38, 0x1p-4 * 3e38);
}

// A float32 amax just above 448 * 2^k must not be rounded to 16 bits on its way to the scale (case 14).
TEST(Extremes, TheScaleSeesTheUnroundedAmax) {
  Inputs in = test::make_inputs({.s_q = 1, .s_kv = 1, .d_qk = 1, .d_v = 1, .dtype = DType::kFloat32});
  in.q.set(0, 0, 0, 0, static_cast<double>(std::nextafter(448.0F, 500.0F)));
  const auto quantized = quantize_inputs(in, recipe_from_name("mxfp8_token"));
  EXPECT_EQ(byte_of(quantized.tensors.q_scale, 0, 0, 0, 0), 128);
  EXPECT_EQ(byte_of(quantized.tensors.q, 0, 0, 0, 0), 0x76);
}

// Scales are padded per batch: batch 1 of a call is the call on batch 1 alone, in the compact and the tiled layout, at
// lengths that do not fill a tile (case 18).
TEST(ScalesPerBatch, BatchOneIsAsRightAsBatchZero) {
  const Recipe& recipe = recipe_from_name("mxfp8_own_block");
  for (const std::int64_t s : {1, 16, 17, 31, 33, 127, 129, 1664}) {
    const Inputs both =
        test::make_inputs({.b = 2, .h_q = 1, .h_kv = 1, .s_q = s, .s_kv = s, .d_qk = 40, .d_v = 8, .seed = 3});
    const auto together = quantize_inputs(both, recipe);
    for (std::int64_t n = 0; n < 2; ++n) {
      const auto only = [n](const HostTensor& t) {
        ConstTensorView view = t.view;
        view.shape[0] = 1;
        view.data = static_cast<const std::byte*>(view.data) +
                    static_cast<std::size_t>(n * view.strides[0]) * size_of(view.dtype);
        return view;
      };
      AttentionProblem problem = both.problem;
      problem.b = 1;
      const auto alone = quantize_inputs(problem, recipe, only(both.q), only(both.k), only(both.v));
      const auto of_together = test::tensors_of(together.tensors);
      const auto of_alone = test::tensors_of(alone.tensors);
      for (std::size_t t = 0; t < of_alone.size(); ++t) {
        const TensorView& a = of_alone[t].view;
        if (a.rank == 0) {
          continue;
        }
        const auto bytes = static_cast<std::size_t>(a.numel()) * size_of(a.dtype);
        const auto* in_batch =
            static_cast<const std::byte*>(of_together[t].view.data) + static_cast<std::size_t>(n) * bytes;
        EXPECT_EQ(std::memcmp(a.data, in_batch, bytes), 0) << of_alone[t].name << " s " << s << " batch " << n;
      }
      // The tiled scales of this batch's Q, read back.
      const std::int64_t inner = 2;
      const auto* first = static_cast<const std::uint8_t*>(together.tensors.q_scale.data) + n * s * inner;
      const std::vector<std::uint8_t> compact(first, first + s * inner);
      std::vector<std::uint8_t> tiled(static_cast<std::size_t>(numerics::tiled_scale_bytes(s, inner)));
      numerics::tile_scales(compact, s, inner, tiled);
      EXPECT_EQ(tiled[static_cast<std::size_t>(numerics::tiled_scale_offset(s - 1, 1, inner))],
                byte_of(alone.tensors.q_scale, 0, 0, s - 1, 1));
      std::vector<std::uint8_t> back(compact.size());
      numerics::untile_scales(tiled, s, inner, back);
      EXPECT_EQ(back, compact);
    }
  }
}

// A packed call holds exactly the bytes of its sequences; each has its own blocks of shared scales.
TEST_P(EachRecipe, PackedSequencesHaveTheBytesOfSeparateCalls) {
  Recipe r = recipe();
  r.tensor_scale_q = r.tensor_scale_k = r.tensor_scale_v = 0.01F;  // fp8_tensor's own scale looks at all sequences
  const std::vector<std::int32_t> cu_q = {0, 5, 5, 20, 21};
  const std::vector<std::int32_t> cu_kv = {0, 33, 33, 70, 102};
  Inputs packed = test::make_inputs({.h_q = 2, .s_q = 21, .s_kv = 102, .d_qk = 16, .d_v = 8});
  packed.problem.b = 4;
  packed.problem.total_q = 21;
  packed.problem.total_kv = 102;
  packed.problem.cu_seqlens_q = cu_q.data();
  packed.problem.cu_seqlens_kv = cu_kv.data();
  const auto all = quantize_inputs(packed, r);
  const std::int64_t first_block[] = {0, 2, 3, 5};  // cu / 32 + n
  for (std::size_t n = 0; n < 4; ++n) {
    const auto rows = [n](const HostTensor& t, const std::vector<std::int32_t>& cu) {
      ConstTensorView view = t.view;
      view.shape[1] = cu[n + 1] - cu[n];
      view.data = static_cast<const std::byte*>(view.data) +
                  static_cast<std::size_t>(cu[n] * view.strides[1]) * size_of(view.dtype);
      return view;
    };
    AttentionProblem p = problem_of(rows(packed.q, cu_q), rows(packed.k, cu_kv), rows(packed.v, cu_kv));
    const auto alone = quantize_inputs(p, r, rows(packed.q, cu_q), rows(packed.k, cu_kv), rows(packed.v, cu_kv));
    const auto of_all = test::tensors_of(all.tensors);
    const auto of_alone = test::tensors_of(alone.tensors);
    for (std::size_t t = 0; t < of_alone.size(); ++t) {
      const TensorView& a = of_alone[t].view;
      if (a.rank < 3) {
        continue;  // absent, or the one scale of a tensor
      }
      const std::string_view name = of_alone[t].name;
      const bool per_block = name == "k_shared_scale" || name == "v_shared_scale" ||
                             (name == "v_scale" && r.v_scale == ScaleScope::kColumn32);
      const std::int64_t begin = per_block ? first_block[n] : name.starts_with("q") ? cu_q[n] : cu_kv[n];
      for (std::int64_t h = 0; h < a.shape[1]; ++h) {
        for (std::int64_t s = 0; s < a.shape[2]; ++s) {
          for (std::int64_t c = 0; c < std::max<std::int64_t>(a.rank == 4 ? a.shape[3] : 1, 1); ++c) {
            ASSERT_EQ(value_of(a, 0, h, s, c), value_of(of_all[t].view, 0, h, begin + s, c))
                << name << " sequence " << n << " row " << s;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace checkvalve
