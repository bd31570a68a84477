// files.h: paths are checked before long work starts.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace checkvalve::cli {

// Throws unless a file with one of the extensions (with the dot) can be created at `path`, and `path` is none of the
// inputs. Leaves nothing behind.
void check_output(std::string_view option, const std::string& path, std::span<const std::string_view> extensions,
                  std::span<const std::string> inputs);

// The file appears whole or not at all.
void write_text(const std::string& path, std::string_view text);

[[nodiscard]] bool has_extension(const std::string& path, std::string_view extension);

// Throws an error that names `option` unless `path` is an existing regular file.
void check_input(std::string_view option, const std::string& path);

}  // namespace checkvalve::cli
