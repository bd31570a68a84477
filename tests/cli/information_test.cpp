// information_test.cpp: `checkvalve inspect`, `backends`, `--version`, `--help`, and streams that cannot be written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "checkvalve/version.h"
#include "io/safetensors.h"
#include "run_cli.h"

namespace checkvalve::cli_test {
namespace {

using ::testing::HasSubstr;

TEST(Inspect, RangesExponentsAndFirstTokenMassAreThoseOfTheData) {
  const TemporaryFolder folder;
  // All keys equal: every row spreads its attention evenly. V of one token is 3, all else is 1.
  std::vector<float> q(8 * 32, 0.5F), k(8 * 32, 1.0F), v(8 * 32, 1.0F);
  v[5 * 32] = -3.0F;
  const auto view = [](const std::vector<float>& x) {
    return make_dense(static_cast<const void*>(x.data()), DType::kFloat32, 4, {1, 8, 1, 32});
  };
  const std::vector<io::NamedTensor> tensors{
      {.name = "q", .tensor = view(q)}, {.name = "k", .tensor = view(k)}, {.name = "v", .tensor = view(v)}};
  io::write_safetensors(folder.path("in.safetensors"), tensors, {});
  const Outcome run = run_cli(folder, "inspect in.safetensors --json");
  ASSERT_EQ(run.code, 0) << run.err;
  const auto json = nlohmann::json::parse(run.out);
  const auto& data = json.at("data").at(0);
  EXPECT_EQ(data.at("tensors").at("q").at("amax"), 0.5);
  EXPECT_EQ(data.at("tensors").at("v").at("amax"), 3.0);
  EXPECT_EQ(data.at("tensors").at("v").at("heads").at(0).at("amax"), 3.0);
  // 1 <= 448 * 2^-8 and 3 <= 448 * 2^-7 are the smallest powers of two.
  EXPECT_EQ(data.at("tensors").at("k").at("scale_exponents"), (nlohmann::json{{"-8", 8}}));
  EXPECT_EQ(data.at("tensors").at("v").at("scale_exponents"), (nlohmann::json{{"-8", 7}, {"-7", 1}}));
  double mean = 0.0;
  for (int row = 1; row <= 8; ++row) {
    mean += 1.0 / row / 8.0;
  }
  EXPECT_NEAR(data.at("first_token_mass").at(0), mean, 1e-12);
  EXPECT_EQ(data.at("errors").size(), 8U);
}

TEST(Inspect, NonFiniteElementsAreCountedAndLeftOutOfTheRange) {
  const TemporaryFolder folder;
  Inputs inputs = random_inputs(DType::kFloat32, Layout::kBshd);
  reinterpret_cast<float*>(inputs.k.storage.data())[0] = std::nanf("");
  write_inputs(folder.path("in.safetensors"), inputs, "bshd");
  const Outcome run = run_cli(folder, "inspect in.safetensors --json");
  ASSERT_EQ(run.code, 0) << run.err;
  const auto json = nlohmann::json::parse(run.out);
  const auto& k = json.at("data").at(0).at("tensors").at("k");
  EXPECT_EQ(k.at("non_finite"), 1);
  EXPECT_LE(k.at("amax"), 2.0);
  EXPECT_EQ(k.at("nan_scales"), 1);
}

TEST(Inspect, TextHasEverySection) {
  const TemporaryFolder folder;
  const Outcome run = run_cli(folder, "inspect --generate 1,64,2,1,32");
  ASSERT_EQ(run.code, 0) << run.err;
  for (const char* section : {"amax", "v: exponents of E4M3 scales", "##", "attention to token 0",
                              "relative error of out", "int8_token", "mxfp8 (leaks)"}) {
    EXPECT_THAT(run.out, HasSubstr(section));
  }
}

TEST(Backends, ListAndExplanation) {
  const TemporaryFolder folder;
  const Outcome list = run_cli(folder, "backends --json");
  ASSERT_EQ(list.code, 0) << list.err;
  const auto backends = nlohmann::json::parse(list.out).at("backends");
  EXPECT_EQ(backends.back().at("name"), "reference");
  const Outcome host = run_cli(folder, "backends --sizes 1,256,4,2,64 --json");
  ASSERT_EQ(host.code, 0) << host.err;
  const auto json = nlohmann::json::parse(host.out);
  EXPECT_FALSE(json.at("chosen").is_null());
  EXPECT_EQ(json.at("recipe"), "int8_token");
  EXPECT_EQ(json.at("backends").back().at("can_serve"), true);
}

TEST(Backends, NoBackendForACallIsExitCodeThreeWithReasons) {
  const TemporaryFolder folder;
  const Outcome run = run_cli(folder, "backends --sizes 1,256,4,2,7 --dtype float32 --device cuda");
  EXPECT_EQ(run.code, 3);
  EXPECT_THAT(run.out, HasSubstr("reference  no: "));
}

TEST(CommandLine, Version) {
  const TemporaryFolder folder;
  const Outcome run = run_cli(folder, "--version");
  EXPECT_EQ(run.code, 0);
  EXPECT_EQ(run.out, "checkvalve " CHECKVALVE_VERSION "\n");
}

TEST(CommandLine, HelpOfEveryCommandHasAnExample) {
  const TemporaryFolder folder;
  EXPECT_THAT(run_cli(folder, "--help").out, HasSubstr("Example"));
  for (const std::string command : {"demo", "attend", "audit", "inspect", "backends"}) {
    const Outcome run = run_cli(folder, command + " --help");
    EXPECT_EQ(run.code, 0) << command;
    EXPECT_EQ(run.err, "") << command;
    EXPECT_THAT(run.out, HasSubstr("Example")) << command;
    EXPECT_THAT(run.out, HasSubstr("checkvalve " + command)) << command;
    EXPECT_THAT(run.out, HasSubstr("--json")) << command;
  }
}

TEST(CommandLine, AFullDiskBehindStandardOutputIsAnError) {
  const TemporaryFolder folder;
  const Outcome run = run_cli(folder, "backends >/dev/full");
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("standard output cannot be written"));
}

}  // namespace
}  // namespace checkvalve::cli_test
