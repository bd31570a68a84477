// tree_test.cpp: HACKING.md names every folder of the tree, and no other.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>

namespace {

namespace fs = std::filesystem;

const fs::path kRoot = CHECKVALVE_SOURCE_DIR;

std::set<std::string> folders_in_hacking() {
  std::ifstream file(kRoot / "HACKING.md");
  std::set<std::string> folders;
  const std::regex entry("^- `([a-z0-9_/]+)/`: .+");
  for (std::string line; std::getline(file, line);) {
    std::smatch match;
    if (std::regex_match(line, match, entry)) {
      folders.insert(match[1]);
    }
  }
  return folders;
}

// Folders that hold source files themselves.
std::set<std::string> folders_in_tree() {
  std::set<std::string> folders;
  for (const char* top : {"cmake", "data", "docs", "examples", "fuzz", "include", "python", "scripts", "src", "tests",
                          "tools", "bench"}) {
    if (!fs::exists(kRoot / top)) {
      continue;
    }
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / top)) {
      const std::string name = entry.path().filename().string();
      const std::string folder = fs::relative(entry.path().parent_path(), kRoot).generic_string();
      const bool generated =
          folder.find("__pycache__") != std::string::npos || folder.find(".egg") != std::string::npos;
      if (entry.is_regular_file() && name != "CMakeLists.txt" && !generated) {
        folders.insert(folder);
      }
    }
  }
  return folders;
}

TEST(Tree, HackingListsEveryFolder) {
  const std::set<std::string> listed = folders_in_hacking();
  for (const std::string& folder : folders_in_tree()) {
    EXPECT_TRUE(listed.count(folder) == 1) << folder << " is not in HACKING.md";
  }
  for (const std::string& folder : listed) {
    EXPECT_TRUE(fs::is_directory(kRoot / folder)) << "HACKING.md lists " << folder << ", which does not exist";
  }
}

}  // namespace
