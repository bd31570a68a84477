// attend_test.cpp: `checkvalve attend` writes exactly what the library computes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "checkvalve/attention.h"
#include "io/npy.h"
#include "io/safetensors.h"
#include "run_cli.h"

namespace checkvalve::cli_test {
namespace {

using ::testing::HasSubstr;

struct LayoutCase {
  const char* name;
  Layout layout;
};

class AttendLayout : public ::testing::TestWithParam<LayoutCase> {};

Tensor like(const Tensor& tensor, Layout layout, DType dtype) {
  const auto& n = tensor.view.shape;
  return random_tensor(99, dtype, layout, n[0], n[1], n[2], n[3]);
}

void expect_same_bytes(const io::SafetensorsFile& file, const char* name, const Tensor& expected) {
  const ConstTensorView tensor = file.find(name);
  EXPECT_EQ(to_string(tensor), to_string(expected.stored)) << name;
  EXPECT_EQ(std::memcmp(tensor.data, expected.storage.data(), expected.storage.size()), 0) << name;
}

TEST_P(AttendLayout, ForwardAndBackwardEqualTheLibraryCallBitForBit) {
  const auto [name, layout] = GetParam();
  const TemporaryFolder folder;
  const Inputs inputs = random_inputs(DType::kBFloat16, layout);
  write_inputs(folder.path("in.safetensors"), inputs, name);
  const Outcome run = run_cli(folder,
                              "attend --qkv in.safetensors --window 20 --scale 0.2 --backward in.safetensors "
                              "-o out.safetensors");
  ASSERT_EQ(run.code, 0) << run.err;

  AttentionProblem problem = problem_of(inputs.q.view, inputs.k.view, inputs.v.view);
  problem.window_left = 19;
  problem.softmax_scale = 0.2F;
  const Recipe& recipe = recipe_from_name("int8_token");
  const Tensor out = like(inputs.q, layout, DType::kBFloat16);
  const Tensor dq = like(inputs.q, layout, DType::kBFloat16);
  const Tensor dk = like(inputs.k, layout, DType::kBFloat16);
  const Tensor dv = like(inputs.v, layout, DType::kBFloat16);
  std::vector<float> lse(2 * 4 * 40);
  const TensorView lse_view = make_dense(static_cast<void*>(lse.data()), DType::kFloat32, 3, {2, 4, 40, 0});
  forward(problem, recipe, inputs.q.view, inputs.k.view, inputs.v.view, out.view, lse_view);
  backward(problem, recipe, inputs.q.view, inputs.k.view, inputs.v.view, {}, lse_view, inputs.d_out.view, dq.view,
           dk.view, dv.view);

  const io::SafetensorsFile file = io::SafetensorsFile::open(folder.path("out.safetensors"));
  expect_same_bytes(file, "out", out);
  expect_same_bytes(file, "dq", dq);
  expect_same_bytes(file, "dk", dk);
  expect_same_bytes(file, "dv", dv);
  EXPECT_EQ(std::memcmp(file.find("lse").data, lse.data(), lse.size() * sizeof(float)), 0);
  EXPECT_EQ(file.metadata().at("layout"), name);
  EXPECT_EQ(file.metadata().at("recipe"), "int8_token");
  EXPECT_EQ(file.metadata().at("backend"), "reference");
}

INSTANTIATE_TEST_SUITE_P(Layouts, AttendLayout,
                         ::testing::Values(LayoutCase{"bshd", Layout::kBshd}, LayoutCase{"sbhd", Layout::kSbhd},
                                           LayoutCase{"bhsd", Layout::kBhsd}),
                         [](const auto& test) { return std::string(test.param.name); });

class AttendRecipe : public ::testing::TestWithParam<std::string> {};

TEST_P(AttendRecipe, NpyInAndOutEqualTheLibraryCallBitForBit) {
  const TemporaryFolder folder;
  const Inputs inputs = random_inputs(DType::kFloat32, Layout::kBhsd);
  io::write_npy(folder.path("q.npy"), inputs.q.stored);
  io::write_npy(folder.path("k.npy"), inputs.k.stored);
  io::write_npy(folder.path("v.npy"), inputs.v.stored);
  const Outcome run = run_cli(
      folder, "attend --q q.npy --k k.npy --v v.npy --layout bhsd --allow-leak -o out.npy --recipe " + GetParam());
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("recipe   " + GetParam()));
  EXPECT_THAT(run.out, HasSubstr("backend  reference"));

  const Tensor out = like(inputs.q, Layout::kBhsd, DType::kFloat32);
  Options options;
  options.allow_leak = true;
  forward(problem_of(inputs.q.view, inputs.k.view, inputs.v.view), recipe_from_name(GetParam()), inputs.q.view,
          inputs.k.view, inputs.v.view, out.view, {}, options);
  const io::NpyFile file = io::NpyFile::open(folder.path("out.npy"));
  EXPECT_EQ(to_string(file.tensor()), to_string(out.stored));
  EXPECT_EQ(std::memcmp(file.tensor().data, out.storage.data(), out.storage.size()), 0);
}

std::vector<std::string> recipe_names() {
  std::vector<std::string> names;
  for (const Recipe& recipe : recipes()) {
    names.push_back(recipe.name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Recipes, AttendRecipe, ::testing::ValuesIn(recipe_names()),
                         [](const auto& test) { return test.param; });

TEST(Attend, JsonSaysWhatRanAndWhatWasWritten) {
  const TemporaryFolder folder;
  write_inputs(folder.path("in.safetensors"), random_inputs(DType::kFloat16, Layout::kBshd), "BSHD");
  const Outcome run = run_cli(
      folder, "attend --qkv in.safetensors --recipe mxfp8 --allow-leak --out-dtype float32 --json -o o.safetensors");
  ASSERT_EQ(run.code, 0) << run.err;
  const auto json = nlohmann::json::parse(run.out);
  EXPECT_EQ(json.at("command"), "attend");
  EXPECT_EQ(json.at("backend_used"), "reference");
  EXPECT_EQ(json.at("recipe_used"), "mxfp8");
  EXPECT_EQ(json.at("leaks"), true);
  EXPECT_EQ(json.at("layout"), "bshd");
  EXPECT_EQ(json.at("output"), "o.safetensors");
  EXPECT_EQ(json.at("tensors"), (nlohmann::json{"out", "lse"}));
  EXPECT_EQ(io::SafetensorsFile::open(folder.path("o.safetensors")).find("out").dtype, DType::kFloat32);
}

TEST(Attend, WithoutTheMaskTheFirstRowChanges) {
  const TemporaryFolder folder;
  write_inputs(folder.path("in.safetensors"), random_inputs(DType::kFloat32, Layout::kBshd), "bshd");
  ASSERT_EQ(run_cli(folder, "attend --qkv in.safetensors --recipe fp32 -o causal.npy").code, 0);
  ASSERT_EQ(run_cli(folder, "attend --qkv in.safetensors --recipe fp32 --no-causal -o full.npy").code, 0);
  const io::NpyFile causal = io::NpyFile::open(folder.path("causal.npy"));
  const io::NpyFile full = io::NpyFile::open(folder.path("full.npy"));
  EXPECT_NE(std::memcmp(causal.tensor().data, full.tensor().data, 32 * sizeof(float)), 0);
}

TEST(Attend, AnExistingOutputIsReplacedAndNothingElseIsLeft) {
  const TemporaryFolder folder;
  write_inputs(folder.path("in.safetensors"), random_inputs(DType::kFloat32, Layout::kBshd), "bshd");
  write_file(folder.path("out.npy"), "old");
  ASSERT_EQ(run_cli(folder, "attend --qkv in.safetensors -o out.npy").code, 0);
  EXPECT_EQ(folder.listing().size(), 2U);
  EXPECT_EQ(io::NpyFile::open(folder.path("out.npy")).tensor().shape, (std::array<std::int64_t, 4>{2, 40, 4, 32}));
}

}  // namespace
}  // namespace checkvalve::cli_test
