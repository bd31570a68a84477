// numerics_quantize_test.cpp: the bytes and scales of each kind of quantiser on inputs small enough to do by hand.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "numerics/quantize.h"
#include "support/numerics_quantized.h"

namespace checkvalve {
namespace {

using test::byte_of;
using test::HostTensor;
using test::Inputs;
using test::quantize_inputs;
using test::value_of;
using Row = std::vector<double>;

// One sequence and head whose q and k have the rows `qk` and whose v has the rows `v`, in float32.
Inputs inputs_of(const std::vector<Row>& qk, const std::vector<Row>& v) {
  const auto tensor = [](const std::vector<Row>& rows) {
    const auto s = static_cast<std::int64_t>(rows.size());
    const auto d = static_cast<std::int64_t>(rows.front().size());
    HostTensor t = test::make_attention_tensor(DType::kFloat32, Layout::kBshd, 1, s, 1, d);
    for (std::int64_t i = 0; i < s; ++i) {
      for (std::int64_t c = 0; c < d; ++c) {
        t.set(0, i, 0, c, rows[static_cast<std::size_t>(i)][static_cast<std::size_t>(c)]);
      }
    }
    return t;
  };
  Inputs in;
  in.q = tensor(qk);
  in.k = tensor(qk);
  in.v = tensor(v);
  in.problem = problem_of(in.q.view, in.k.view, in.v.view);
  return in;
}

void expect_bytes(const TensorView& t, std::int64_t i, const std::vector<int>& expected) {
  for (std::size_t c = 0; c < expected.size(); ++c) {
    EXPECT_EQ(byte_of(t, 0, 0, i, static_cast<std::int64_t>(c)), expected[c]) << "row " << i << " column " << c;
  }
}

TEST(RowwiseMx, ScalesEach32ChannelsOfAToken) {
  Row first(40, 0.0);  // head_dim is not a multiple of 32: the second scale covers 8 channels
  first[0] = 448.0;
  first[1] = -224.0;
  first[2] = 1.0;
  first[32] = 3.0;
  first[33] = -0.0;
  Row second(40, 0.0);
  second[0] = 450.0;
  second[39] = -150.0;
  const Inputs in = inputs_of({first, second, Row(40, 0.0)}, {{1.0}, {1.0}, {1.0}});
  const auto quantized = quantize_inputs(in, recipe_from_name("mxfp8_token"));
  for (const auto& [data, scale] :
       {std::pair{quantized.tensors.q, quantized.tensors.q_scale}, {quantized.tensors.k, quantized.tensors.k_scale}}) {
    EXPECT_EQ(byte_of(scale, 0, 0, 0, 0), 127);  // 448 = 448 * 2^0
    EXPECT_EQ(byte_of(scale, 0, 0, 0, 1), 120);  // 3 = 384 * 2^-7
    EXPECT_EQ(byte_of(scale, 0, 0, 1, 0), 128);  // 450 needs 2^1
    EXPECT_EQ(byte_of(scale, 0, 0, 1, 1), 126);  // 150 = 300 * 2^-1
    EXPECT_EQ(byte_of(scale, 0, 0, 2, 0), 0);
    EXPECT_EQ(byte_of(scale, 0, 0, 2, 1), 0);
    expect_bytes(data, 0, {0x7E, 0xF6, 0x38, 0x00});
    EXPECT_EQ(byte_of(data, 0, 0, 0, 32), 0x7C);
    EXPECT_EQ(byte_of(data, 0, 0, 0, 33), 0x80);  // -0 stays -0
    EXPECT_EQ(byte_of(data, 0, 0, 1, 0), 0x76);   // 225 rounds to 224
    EXPECT_EQ(byte_of(data, 0, 0, 1, 39), 0xF9);  // -300 rounds to -288
    expect_bytes(data, 2, std::vector<int>(40, 0));
  }
}

TEST(RowwiseMx, FloorRoundingSaturatesWhatRoundingUpHolds) {
  Recipe recipe = recipe_from_name("mxfp8_token");
  recipe.mx_rounding = ScaleRounding::kFloor;
  const Inputs in = inputs_of({{450.0, -500.0, 1.0}}, {{1.0}});
  const auto quantized = quantize_inputs(in, recipe);
  EXPECT_EQ(byte_of(quantized.tensors.q_scale, 0, 0, 0, 0), 127);
  expect_bytes(quantized.tensors.q, 0, {0x7E, 0xFE, 0x38});
}

TEST(ColumnwiseMx, ScalesEach32TokensOfAChannel) {
  std::vector<Row> v(40, Row{0.0, 0.0});
  v[0][0] = 1.0;
  v[5][0] = 0x1p-17;  // 2^-9 of the scaled range: the smallest E4M3 number
  v[6][0] = 0x1p-18;  // half of it: a tie, to even 0
  v[31][1] = -4.0;
  v[32][0] = 448.0;
  v[39][1] = 0x1p-126;
  const Inputs in = inputs_of(std::vector<Row>(40, Row{1.0}), v);
  const auto quantized = quantize_inputs(in, recipe_from_name("mxfp8"));
  const TensorView& scale = quantized.tensors.v_scale;
  ASSERT_EQ(scale.shape, (std::array<std::int64_t, 4>{1, 1, 2, 2}));
  EXPECT_EQ(byte_of(scale, 0, 0, 0, 0), 119);  // 1 = 256 * 2^-8
  EXPECT_EQ(byte_of(scale, 0, 0, 0, 1), 121);
  EXPECT_EQ(byte_of(scale, 0, 0, 1, 0), 127);
  EXPECT_EQ(byte_of(scale, 0, 0, 1, 1), 0);
  const TensorView& data = quantized.tensors.v;
  expect_bytes(data, 0, {0x78, 0x00});
  expect_bytes(data, 5, {0x01, 0x00});
  expect_bytes(data, 6, {0x00, 0x00});
  expect_bytes(data, 31, {0x00, 0xF8});
  expect_bytes(data, 32, {0x7E, 0x00});
  expect_bytes(data, 39, {0x00, 0x40});  // 2^-126 / 2^-127 = 2
}

TEST(TokenNormalisedV, ScalesEachTokenWithinTheFoldRange) {
  const Inputs in = inputs_of(std::vector<Row>(5, Row{1.0}), {{1.0, 0.5, -0.25},
                                                              {0x1p-60, 0.0, -0.0},
                                                              {3e38, -3e38, 1.0},
                                                              {0.0, 0.0, 0.0},
                                                              {0x1p-32, -448.0 * 0x1p-40, 0x1p-49}});
  for (const char* name : {"mxfp8_token", "int8_token", "mxfp8_own_block"}) {
    const auto quantized = quantize_inputs(in, recipe_from_name(name));
    const TensorView& scale = quantized.tensors.v_scale;
    const TensorView& data = quantized.tensors.v;
    EXPECT_EQ(byte_of(scale, 0, 0, 0), 119) << name;
    expect_bytes(data, 0, {0x78, 0x70, 0xE8});
    EXPECT_EQ(byte_of(scale, 0, 0, 1), 127 - 40) << name;  // the smallest scale that folding allows
    expect_bytes(data, 1, {0x00, 0x00, 0x80});
    EXPECT_EQ(byte_of(scale, 0, 0, 2), 127 + 60) << name;  // the largest: 3e38 saturates
    expect_bytes(data, 2, {0x7E, 0xFE, 0x00});
    EXPECT_EQ(byte_of(scale, 0, 0, 3), 127 - 40) << name;
    expect_bytes(data, 3, {0x00, 0x00, 0x00});
    EXPECT_EQ(byte_of(scale, 0, 0, 4), 127 - 40) << name;
    expect_bytes(data, 4, {0x78, 0xFE, 0x01});
  }
}

TEST(SharedV, ScalesEach32TokensOverAllChannels) {
  std::vector<Row> v(33, Row{0.0, 0.0});
  v[0] = {1.0, 0x1p-3};
  v[31] = {0.0, -8.0};
  v[32] = {0x1p-4, 0.0};
  const Inputs in = inputs_of(std::vector<Row>(33, Row{1.0}), v);
  const auto quantized = quantize_inputs(in, recipe_from_name("mxfp8_token"));
  const TensorView& scale = quantized.tensors.v_shared_scale;
  ASSERT_EQ(scale.shape[2], 2);
  EXPECT_EQ(byte_of(scale, 0, 0, 0), 122);  // 8 = 256 * 2^-5
  EXPECT_EQ(byte_of(scale, 0, 0, 1), 115);
  expect_bytes(quantized.tensors.v_shared, 0, {0x60, 0x48});  // 32 and 4
  expect_bytes(quantized.tensors.v_shared, 31, {0x00, 0xF8});
  expect_bytes(quantized.tensors.v_shared, 32, {0x78, 0x00});
  expect_bytes(quantized.tensors.v, 0, {0x78, 0x60});  // the token copy scales token 0 alone
}

TEST(SharedV, OfOwnBlockIsColumnwise) {
  std::vector<Row> v(33, Row{0.0, 0.0});
  v[0] = {1.0, 0x1p-3};
  v[31] = {0.0, -8.0};
  const Inputs in = inputs_of(std::vector<Row>(33, Row{1.0}), v);
  const auto own_block = quantize_inputs(in, recipe_from_name("mxfp8_own_block"));
  const auto columnwise = quantize_inputs(in, recipe_from_name("mxfp8"));
  for (std::int64_t c = 0; c < 2; ++c) {
    for (std::int64_t block = 0; block < 2; ++block) {
      EXPECT_EQ(byte_of(own_block.tensors.v_shared_scale, 0, 0, block, c),
                byte_of(columnwise.tensors.v_scale, 0, 0, block, c));
    }
    for (std::int64_t j = 0; j < 33; ++j) {
      EXPECT_EQ(byte_of(own_block.tensors.v_shared, 0, 0, j, c), byte_of(columnwise.tensors.v, 0, 0, j, c));
    }
  }
  EXPECT_EQ(byte_of(own_block.tensors.v_shared_scale, 0, 0, 0, 0), 119);
}

TEST(Int8Rows, RoundTiesToEvenWithAFloatScale) {
  // An odd head_dim is not rotated.
  const Inputs in =
      inputs_of({{127.0, 63.5, 62.5, -0.5, 0.5, -1.5, 0.0}, {1.0, -1.0, 0.25, 0.0, 0.0, 0.0, 0.0}}, {{1.0}, {1.0}});
  const auto quantized = quantize_inputs(in, recipe_from_name("int8_token"));
  const std::vector<std::vector<double>> expected = {{127, 64, 62, 0, 0, -2, 0}, {127, -127, 32, 0, 0, 0, 0}};
  for (const auto& [data, scale] :
       {std::pair{quantized.tensors.q, quantized.tensors.q_scale}, {quantized.tensors.k, quantized.tensors.k_scale}}) {
    EXPECT_EQ(value_of(scale, 0, 0, 0), 1.0);
    EXPECT_EQ(value_of(scale, 0, 0, 1), static_cast<double>(1.0F / 127.0F));
    for (std::int64_t i = 0; i < 2; ++i) {
      for (std::int64_t c = 0; c < 7; ++c) {
        EXPECT_EQ(value_of(data, 0, 0, i, c), expected[static_cast<std::size_t>(i)][static_cast<std::size_t>(c)])
            << i << ", " << c;
      }
    }
  }
}

TEST(Int8Rows, AreRotatedFirst) {
  const Inputs in = inputs_of({{1.0, 1.0, 1.0, 1.0}, {3.0, 0.0, 0.0, 0.0}}, {{1.0, 1.0}, {2.0, 0.0}});
  const auto quantized = quantize_inputs(in, recipe_from_name("int8_token"));
  EXPECT_EQ(value_of(quantized.tensors.q_scale, 0, 0, 0), static_cast<double>(2.0F / 127.0F));
  EXPECT_EQ(value_of(quantized.tensors.q_scale, 0, 0, 1), static_cast<double>(1.5F / 127.0F));
  for (std::int64_t c = 0; c < 4; ++c) {
    EXPECT_EQ(value_of(quantized.tensors.q, 0, 0, 0, c), c == 0 ? 127.0 : 0.0);
    EXPECT_EQ(value_of(quantized.tensors.k, 0, 0, 1, c), 127.0);
  }
  expect_bytes(quantized.tensors.v, 0, {0x78, 0x78});  // V is not
}

TEST(Int8Blocks, ShareOneScaleIn32Tokens) {
  std::vector<Row> k(34, Row{0.0});
  k[0] = {1.0};
  k[31] = {-4.0};
  k[33] = {0.5};
  const Inputs in = inputs_of(k, std::vector<Row>(34, Row{1.0}));
  const auto quantized = quantize_inputs(in, recipe_from_name("int8_token"));
  const TensorView& scale = quantized.tensors.k_shared_scale;
  ASSERT_EQ(scale.shape[2], 2);
  EXPECT_EQ(value_of(scale, 0, 0, 0), static_cast<double>(4.0F / 127.0F));
  EXPECT_EQ(value_of(scale, 0, 0, 1), static_cast<double>(0.5F / 127.0F));
  EXPECT_EQ(value_of(quantized.tensors.k_shared, 0, 0, 0, 0), 32.0);  // 31.75
  EXPECT_EQ(value_of(quantized.tensors.k_shared, 0, 0, 31, 0), -127.0);
  EXPECT_EQ(value_of(quantized.tensors.k_shared, 0, 0, 32, 0), 0.0);
  EXPECT_EQ(value_of(quantized.tensors.k_shared, 0, 0, 33, 0), 127.0);
  EXPECT_EQ(value_of(quantized.tensors.k, 0, 0, 0, 0), 127.0);
}

TEST(TensorScale, IsTheAmaxOfTheWholeTensor) {
  const Inputs in = inputs_of({{448.0, 1.0}, {-2.0, 0.0}}, {{1.0, 2.0}, {-4.0, 0.5}});
  const auto quantized = quantize_inputs(in, recipe_from_name("fp8_tensor"));
  EXPECT_EQ(value_of(quantized.tensors.q_scale, 0), 1.0);
  EXPECT_EQ(value_of(quantized.tensors.k_scale, 0), 1.0);
  EXPECT_EQ(value_of(quantized.tensors.v_scale, 0), static_cast<double>(4.0F / 448.0F));
  expect_bytes(quantized.tensors.q, 0, {0x7E, 0x38});
  expect_bytes(quantized.tensors.q, 1, {0xC0, 0x00});
  expect_bytes(quantized.tensors.v, 0, {0x6E, 0x76});  // 112 and 224
  expect_bytes(quantized.tensors.v, 1, {0xFE, 0x66});
}

TEST(TensorScale, OfTheCallerIsUsedAsGiven) {
  Recipe recipe = recipe_from_name("fp8_tensor");
  recipe.tensor_scale_q = 0.5F;
  recipe.tensor_scale_k = 2.0F;
  recipe.tensor_scale_v = 3.0F;  // not a power of two
  const Inputs in = inputs_of({{448.0, 1.0}, {-2.0, 0.0}}, {{3.0, 6.0}, {-1.5, 30.0}});
  const auto quantized = quantize_inputs(in, recipe);
  EXPECT_EQ(value_of(quantized.tensors.q_scale, 0), 0.5);
  EXPECT_EQ(value_of(quantized.tensors.k_scale, 0), 2.0);
  EXPECT_EQ(value_of(quantized.tensors.v_scale, 0), 3.0);
  expect_bytes(quantized.tensors.q, 0, {0x7E, 0x40});  // 896 saturates
  expect_bytes(quantized.tensors.k, 0, {0x76, 0x30});
  expect_bytes(quantized.tensors.v, 0, {0x38, 0x40});
  expect_bytes(quantized.tensors.v, 1, {0xB0, 0x52});
}

TEST(HighPrecision, KeepsTheBytesOfTheCaller) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (const char* name : {"fp32", "bf16", "fp16"}) {
      Inputs in = test::make_inputs({.b = 2,
                                     .h_q = 4,
                                     .h_kv = 2,
                                     .s_q = 5,
                                     .s_kv = 7,
                                     .d_qk = 3,
                                     .d_v = 6,
                                     .dtype = dtype,
                                     .layout = Layout::kSbhd});
      in.v.set(1, 6, 1, 5, std::numeric_limits<double>::infinity());
      const auto quantized = quantize_inputs(in, recipe_from_name(name));
      EXPECT_EQ(quantized.tensors.q.dtype, dtype);
      for (const auto& [source, copy] :
           {std::pair{&in.q, quantized.tensors.q}, {&in.k, quantized.tensors.k}, {&in.v, quantized.tensors.v}}) {
        for (std::int64_t n = 0; n < 2; ++n) {
          for (std::int64_t s = 0; s < copy.shape[2]; ++s) {
            for (std::int64_t h = 0; h < copy.shape[1]; ++h) {
              for (std::int64_t c = 0; c < copy.shape[3]; ++c) {
                ASSERT_EQ(value_of(copy, n, h, s, c), source->at(n, s, h, c)) << name;
              }
            }
          }
        }
      }
    }
  }
}

TEST(QuantizeRowE4M3, MatchesTheTokenCopyOfV) {
  const Row row = {1.0, -0.3, 0x1p-20, 7.5, 0.0};
  const Inputs in = inputs_of({{1.0}}, {row});
  const auto quantized = quantize_inputs(in, recipe_from_name("mxfp8_token"));
  std::vector<float> values(row.begin(), row.end());
  std::vector<std::uint8_t> bytes(values.size(), 0xAB);
  const std::uint8_t scale = numerics::quantize_row_e4m3(values.data(), 5, -40, 60, bytes.data());
  EXPECT_EQ(scale, byte_of(quantized.tensors.v_scale, 0, 0, 0));
  EXPECT_EQ(scale, 127 - 5);
  for (std::int64_t c = 0; c < 5; ++c) {
    EXPECT_EQ(bytes[static_cast<std::size_t>(c)], byte_of(quantized.tensors.v, 0, 0, 0, c)) << c;
  }
  values[2] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(numerics::quantize_row_e4m3(values.data(), 5, -40, 60, bytes.data()), 0xFF);
  EXPECT_EQ(bytes, std::vector<std::uint8_t>(5, 0));
}

}  // namespace
}  // namespace checkvalve
