// browser_test.cpp: the report opens in a real browser: title and verdict are in the page, the picture is not blank.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "run_cli.h"

namespace checkvalve::cli_test {
namespace {

using ::testing::HasSubstr;

std::string installed_browser(const TemporaryFolder& folder) {
  for (const char* name : {"chromium", "chromium-browser", "google-chrome"}) {
    if (run_shell(folder, fmt::format("command -v {}", name)).code == 0) {
      return name;
    }
  }
  return {};
}

TEST(Browser, TheReportShowsItsTitleItsVerdictAndAPicture) {
  const TemporaryFolder folder;
  const std::string browser = installed_browser(folder);
  if (browser.empty()) {
    GTEST_SKIP() << "no browser: none of chromium, chromium-browser and google-chrome is installed";
  }
  ASSERT_EQ(
      run_cli(folder, "audit --generate 1,64,1,1,32 --cuts 5 --no-gradients --recipe all --html report.html").code, 0);
  const std::string headless =
      fmt::format("{} --headless --no-sandbox --disable-gpu --user-data-dir={} --window-size=1200,1600", browser,
                  folder.path("profile"));
  const std::string url = "file://" + folder.path("report.html");

  const Outcome dom = run_shell(folder, fmt::format("{} --dump-dom {}", headless, url));
  ASSERT_EQ(dom.code, 0) << dom.err;
  EXPECT_THAT(dom.out, HasSubstr("<title>Checkvalve leak audit</title>"));
  EXPECT_THAT(dom.out, HasSubstr("<h1>6 recipes let no token see the future. 2 leak: fp8_tensor and mxfp8.</h1>"));

  const Outcome shot = run_shell(folder, fmt::format("{} --screenshot={} {}", headless, folder.path("page.png"), url));
  ASSERT_EQ(shot.code, 0) << shot.err;
  const Outcome colours =
      run_shell(folder, fmt::format("python3 '{}/png_colours.py' {}", CHECKVALVE_CLI_TESTS, folder.path("page.png")));
  ASSERT_EQ(colours.code, 0) << colours.err;
  int width = 0, height = 0, distinct = 0;
  double commonest = 1.0;
  std::istringstream(colours.out) >> width >> height >> distinct >> commonest;
  EXPECT_EQ(width, 1200);
  EXPECT_EQ(height, 1600);
  // A blank page has one colour; an unstyled one is nearly all white.
  EXPECT_GT(distinct, 50);
  EXPECT_LT(commonest, 0.8);
}

}  // namespace
}  // namespace checkvalve::cli_test
