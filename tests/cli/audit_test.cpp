// audit_test.cpp: `checkvalve audit` and `demo`: verdicts, exit codes, JSON and the report.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "io/safetensors.h"
#include "run_cli.h"

namespace checkvalve::cli_test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// Two blocks, so that a scale shared by a block has both an own and a completed block to show itself in.
const std::string kSmall = "audit --generate 1,64,2,1,32 --cuts 5,40 ";

std::size_t occurrences(const std::string& text, const std::string& word) {
  std::size_t n = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    ++n;
  }
  return n;
}

TEST(Audit, ASafeRecipeHoldsAndALeakyOneAskedAloneExitsWithOne) {
  const TemporaryFolder folder;
  const Outcome safe = run_cli(folder, kSmall + "--recipe int8_token");
  EXPECT_EQ(safe.code, 0) << safe.err;
  EXPECT_THAT(safe.out, HasSubstr("int8_token lets no token see the future."));
  for (const char* leaky : {"fp8_tensor", "mxfp8"}) {
    const Outcome run = run_cli(folder, kSmall + "--recipe " + leaky);
    EXPECT_EQ(run.code, 1) << run.err;
    EXPECT_THAT(run.out, HasSubstr(std::string(leaky) + " leaks: rows change when only later tokens do."));
    EXPECT_THAT(run.out, ContainsRegex("of token [0-9]+, head [0-9]+, element [0-9]+ went from"));
  }
  EXPECT_EQ(run_cli(folder, kSmall + "--no-gradients --recipe mxfp8_token,mxfp8").code, 1);
}

TEST(Audit, JsonOfAllRecipesHasEveryKeyAndTheRightVerdicts) {
  const TemporaryFolder folder;
  const Outcome run = run_cli(folder, kSmall + "--recipe all --json");
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(run.err, "");
  const auto json = nlohmann::json::parse(run.out);
  EXPECT_EQ(json.at("command"), "audit");
  EXPECT_EQ(json.at("exit_code"), 0);
  EXPECT_EQ(json.at("verdict"), "6 recipes let no token see the future. 2 leak: fp8_tensor and mxfp8.");
  EXPECT_THAT(json.at("command_line").get<std::string>(), HasSubstr("checkvalve audit --generate 1,64,2,1,32"));
  const auto& data = json.at("data").at(0);
  EXPECT_EQ(data.at("gradients"), true);
  ASSERT_EQ(data.at("results").size(), 8U);
  for (const auto& result : data.at("results")) {
    const bool leaky = result.at("leaks_by_design");
    EXPECT_EQ(result.at("verdict"), leaky ? "leak" : "clean") << result.at("recipe");
    EXPECT_EQ(result.at("as_promised"), true);
    EXPECT_GT(result.at("runs"), 0);
    EXPECT_GT(result.at("comparisons"), 0);
    EXPECT_EQ(result.at("leaks").empty(), !leaky);
    EXPECT_TRUE(result.at("defects").empty());
    EXPECT_FALSE(result.at("negative_control").get<std::string>().empty());
    const std::size_t bins = result.at("influence").at("bins");
    EXPECT_EQ(result.at("influence").at("changed").size(), bins * bins);
    EXPECT_EQ(result.at("influence").at("leaked").size(), bins * bins);
    for (const auto& leak : result.at("leaks")) {
      for (const char* key : {"property", "tensor", "operand", "perturbation", "region", "cut", "first_token",
                              "last_token", "batch", "row", "head", "element", "before", "after", "relative_change"}) {
        EXPECT_TRUE(leak.contains(key)) << key;
      }
    }
  }
  ASSERT_EQ(data.at("errors").size(), 8U);
  for (const auto& error : data.at("errors")) {
    EXPECT_EQ(error.at("rows"), 128);
    EXPECT_GT(error.at("frobenius"), 0.0);
    EXPECT_GE(error.at("worst_row"), error.at("frobenius"));
    EXPECT_LT(error.at("frobenius"), 0.2);
  }
}

TEST(Audit, TheReportIsOneFileWithTitleVerdictAndOneMapARecipe) {
  const TemporaryFolder folder;
  const Outcome run = run_cli(folder, kSmall + "--recipe all --no-gradients --html report.html");
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(folder.listing().size(), 1U);
  const std::string html = read_file(folder.path("report.html"));
  EXPECT_THAT(html, HasSubstr("<title>Checkvalve leak audit</title>"));
  EXPECT_THAT(html, HasSubstr("<h1>6 recipes let no token see the future. 2 leak: fp8_tensor and mxfp8.</h1>"));
  EXPECT_EQ(occurrences(html, "<svg class=\"map\""), 8U);
  EXPECT_THAT(html, HasSubstr("checkvalve audit --generate 1,64,2,1,32 --cuts 5,40 --recipe all --no-gradients"));
  for (const char* outside : {"<script", "http:", "https:", "@import", "url(", "<link", "<img"}) {
    EXPECT_THAT(html, Not(HasSubstr(outside)));
  }
}

TEST(Audit, NamesFromOutsideCannotBreakTheReport) {
  const TemporaryFolder folder;
  const Inputs inputs = random_inputs(DType::kFloat32, Layout::kBshd);
  const std::vector<io::NamedTensor> tensors{{.name = "q", .tensor = inputs.q.stored},
                                             {.name = "k", .tensor = inputs.k.stored},
                                             {.name = "v", .tensor = inputs.v.stored}};
  io::write_safetensors(folder.path("<b>&.safetensors"), tensors, {{"source", "<script>alert('x')</script>"}});
  const Outcome run = run_cli(folder, "audit '<b>&.safetensors' --heads 1 --cuts 5 --no-gradients --html r.html");
  ASSERT_EQ(run.code, 0) << run.err;
  const std::string html = read_file(folder.path("r.html"));
  EXPECT_THAT(html, Not(HasSubstr("<script")));
  EXPECT_THAT(html, HasSubstr("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;"));
  EXPECT_THAT(html, HasSubstr("&lt;b&gt;&amp;"));
  EXPECT_THAT(html, Not(HasSubstr("<b>&<")));
  EXPECT_THAT(html, Not(HasSubstr("<b>&.")));
}

TEST(Audit, ACutWithoutLaterTokensInItsBlockIsInconclusive) {
  const TemporaryFolder folder;
  const Outcome run = run_cli(folder, "audit --generate 1,64,1,1,32 --cuts 31 --no-gradients --recipe mxfp8_own_block");
  EXPECT_EQ(run.code, 1);
  EXPECT_THAT(run.out, HasSubstr("could not be judged"));
}

TEST(Audit, TheRealSliceIsReadWithItsOwnScaleAndLimits) {
  const TemporaryFolder folder;
  const Outcome run = run_cli(folder, "audit '" CHECKVALVE_DATA_DIR
                                      "/smollm2_layer24.safetensors' --tokens 64 --heads 1 --cuts 9 --no-gradients "
                                      "--recipe int8_token,mxfp8 --json");
  ASSERT_EQ(run.code, 1) << run.err;
  const auto json = nlohmann::json::parse(run.out);
  const auto& data = json.at("data").at(0);
  EXPECT_THAT(data.at("problem").get<std::string>(), HasSubstr("s_q=64"));
  EXPECT_THAT(data.at("source").get<std::string>(), HasSubstr("SmolLM2"));
  EXPECT_EQ(data.at("results").at(0).at("verdict"), "clean");
  EXPECT_EQ(data.at("results").at(1).at("verdict"), "leak");
}

}  // namespace
}  // namespace checkvalve::cli_test
