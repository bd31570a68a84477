// files.cpp: checks of paths.
#include "files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "checkvalve/error.h"
#include "io/output_file.h"

namespace checkvalve::cli {
namespace fs = std::filesystem;

bool has_extension(const std::string& path, std::string_view extension) {
  return fs::path(path).extension().string() == extension;
}

void check_output(std::string_view option, const std::string& path, std::span<const std::string_view> extensions,
                  std::span<const std::string> inputs) {
  try {
    // Permissions lie to root and on full disks: the proof that a file can be written is a file.
    const io::OutputFile probe{fs::path(path)};
  } catch (const IoError& error) {
    throw IoError(fmt::format("{} {}", option, error.what()));
  }
  if (std::none_of(extensions.begin(), extensions.end(),
                   [&](std::string_view extension) { return has_extension(path, extension); })) {
    throw InvalidArgument(fmt::format("{} '{}' has an extension that is not accepted; end the name in {}", option, path,
                                      fmt::join(extensions, " or ")));
  }
  for (const std::string& input : inputs) {
    std::error_code missing;
    if (fs::equivalent(path, input, missing)) {
      throw InvalidArgument(fmt::format("{} '{}' is also an input; write to another file", option, path));
    }
  }
}

void write_text(const std::string& path, std::string_view text) {
  io::OutputFile file{fs::path(path)};
  file.write(text);
  file.commit();
}

void check_input(std::string_view option, const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) {
    throw IoError(fmt::format("{} '{}' does not exist; give the path of a file to read", option, path));
  }
  if (!fs::is_regular_file(path, error)) {
    throw IoError(fmt::format("{} '{}' is not a regular file; give the path of a file to read", option, path));
  }
}

}  // namespace checkvalve::cli
