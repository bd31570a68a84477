// arguments.cpp: parsing of option values.
#include "arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "checkvalve/backend.h"
#include "checkvalve/error.h"

namespace checkvalve::cli {
namespace {

constexpr std::array<std::pair<std::string_view, Layout>, 3> kLayouts{
    {{"bshd", Layout::kBshd}, {"sbhd", Layout::kSbhd}, {"bhsd", Layout::kBhsd}}};

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t comma = text.find(',');
    parts.push_back(text.substr(0, comma));
    if (comma == std::string_view::npos) {
      return parts;
    }
    text.remove_prefix(comma + 1);
  }
}

std::vector<std::string_view> recipe_names() {
  std::vector<std::string_view> names;
  for (const Recipe& recipe : recipes()) {
    names.emplace_back(recipe.name);
  }
  return names;
}

std::string shell_quoted(std::string_view word) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./,=:+@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string_view::npos) {
    return std::string(word);
  }
  std::string quoted = "'";
  for (const char c : word) {
    quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return quoted + "'";
}

}  // namespace

std::int64_t parse_integer(std::string_view option, std::string_view text, std::int64_t low, std::int64_t high) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high) {
    throw InvalidArgument(
        fmt::format("{} '{}' is not accepted; give a whole number from {} to {}", option, text, low, high));
  }
  return value;
}

std::vector<std::int64_t> parse_integers(std::string_view option, std::string_view text, std::int64_t low,
                                         std::int64_t high) {
  std::vector<std::int64_t> values;
  for (const std::string_view part : split(text)) {
    values.push_back(parse_integer(option, part, low, high));
  }
  return values;
}

float parse_positive(std::string_view option, std::string_view text) {
  // strtof instead of from_chars: clang 14's library has no from_chars for floating point.
  const std::string copy(text);
  char* end = nullptr;
  const float value = std::strtof(copy.c_str(), &end);
  if (copy.empty() || end != copy.c_str() + copy.size() || !std::isfinite(value) || value <= 0.0F) {
    throw InvalidArgument(
        fmt::format("{} '{}' is not accepted; give a finite number above 0, for example 0.125", option, text));
  }
  return value;
}

std::string parse_choice(std::string_view option, std::string_view text, std::span<const std::string_view> accepted) {
  if (std::find(accepted.begin(), accepted.end(), text) == accepted.end()) {
    throw InvalidArgument(
        fmt::format("{} '{}' is not accepted; choose one of: {}", option, text, fmt::join(accepted, ", ")));
  }
  return std::string(text);
}

Layout parse_layout(std::string_view option, std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const auto& [name, layout] : kLayouts) {
    if (lower == name) {
      return layout;
    }
  }
  throw InvalidArgument(fmt::format("{} '{}' is not accepted; choose one of: bshd, sbhd, bhsd", option, text));
}

std::string_view layout_name(Layout layout) {
  return std::find_if(kLayouts.begin(), kLayouts.end(), [&](const auto& entry) { return entry.second == layout; })
      ->first;
}

Recipe parse_recipe(std::string_view option, std::string_view text) {
  return recipe_from_name(parse_choice(option, text, recipe_names()));
}

std::vector<Recipe> parse_recipes(std::string_view option, std::string_view text) {
  if (text == "all") {
    return {recipes().begin(), recipes().end()};
  }
  std::vector<std::string_view> accepted = recipe_names();
  accepted.emplace_back("all");
  std::vector<Recipe> chosen;
  for (const std::string_view part : split(text)) {
    if (part == "all") {
      throw InvalidArgument(
          fmt::format("{} '{}' mixes 'all' with names; give 'all' alone or names separated by commas", option, text));
    }
    Recipe recipe = recipe_from_name(parse_choice(option, part, accepted));
    if (std::any_of(chosen.begin(), chosen.end(), [&](const Recipe& r) { return r.name == recipe.name; })) {
      throw InvalidArgument(fmt::format("{} '{}' names {} twice; name each recipe once", option, text, recipe.name));
    }
    chosen.push_back(std::move(recipe));
  }
  return chosen;
}

Sizes parse_sizes(std::string_view option, std::string_view text) {
  constexpr std::int64_t kMax = std::int64_t{1} << 24;
  const std::vector<std::int64_t> n = parse_integers(option, text, 1, kMax);
  if (n.size() != 5) {
    throw InvalidArgument(
        fmt::format("{} '{}' has {} numbers; give the five sizes b,s,h_q,h_kv,d, for example 1,256,4,2,64", option,
                    text, n.size()));
  }
  const Sizes sizes{.b = n[0], .s = n[1], .h_q = n[2], .h_kv = n[3], .d = n[4]};
  if (sizes.h_q % sizes.h_kv != 0) {
    throw InvalidArgument(fmt::format("{} '{}': h_q = {} is not a multiple of h_kv = {}; change one of them", option,
                                      text, sizes.h_q, sizes.h_kv));
  }
  if (sizes.d > 256) {
    throw InvalidArgument(fmt::format("{} '{}': d = {} is not accepted; head_dim is 1 to 256", option, text, sizes.d));
  }
  return sizes;
}

std::string parse_backend(std::string_view option, std::string_view text) {
  if (text.empty()) {
    return {};
  }
  const std::vector<BackendVerdict> backends = list_backends();
  std::vector<std::string_view> names;
  names.reserve(backends.size());
  for (const BackendVerdict& backend : backends) {
    names.emplace_back(backend.name);
  }
  return parse_choice(option, text, names);
}

std::string command_line_of(int argc, const char* const* argv) {
  std::string line = "checkvalve";
  for (int i = 1; i < argc; ++i) {
    line += ' ' + shell_quoted(argv[i]);
  }
  return line;
}

}  // namespace checkvalve::cli
