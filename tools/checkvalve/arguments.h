// arguments.h: from the text of an option to its value, with errors that name option, value, accepted set and fix.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkvalve/recipe.h"
#include "checkvalve/tensor.h"

namespace checkvalve::cli {

// A whole number in [low, high].
[[nodiscard]] std::int64_t parse_integer(std::string_view option, std::string_view text, std::int64_t low,
                                         std::int64_t high);

// Whole numbers in [low, high] separated by commas.
[[nodiscard]] std::vector<std::int64_t> parse_integers(std::string_view option, std::string_view text, std::int64_t low,
                                                       std::int64_t high);

// A finite number above zero.
[[nodiscard]] float parse_positive(std::string_view option, std::string_view text);

// `text` if it is one of `accepted`.
[[nodiscard]] std::string parse_choice(std::string_view option, std::string_view text,
                                       std::span<const std::string_view> accepted);

// "bshd", "SBHD", ...: safetensors metadata spells layouts in either case.
[[nodiscard]] Layout parse_layout(std::string_view option, std::string_view text);
[[nodiscard]] std::string_view layout_name(Layout layout);

[[nodiscard]] Recipe parse_recipe(std::string_view option, std::string_view text);

// "all" or names separated by commas; no name twice.
[[nodiscard]] std::vector<Recipe> parse_recipes(std::string_view option, std::string_view text);

// The sizes b,s,h_q,h_kv,d of --generate and --sizes.
struct Sizes {
  std::int64_t b = 0, s = 0, h_q = 0, h_kv = 0, d = 0;
};
[[nodiscard]] Sizes parse_sizes(std::string_view option, std::string_view text);

// The name of a backend that exists, or "" for "choose one".
[[nodiscard]] std::string parse_backend(std::string_view option, std::string_view text);

// `argv` as one line that a POSIX shell reads back as the same words; the program is called "checkvalve".
[[nodiscard]] std::string command_line_of(int argc, const char* const* argv);

}  // namespace checkvalve::cli
