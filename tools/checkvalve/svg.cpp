// svg.cpp: influence maps as inline SVG.
#include "svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace checkvalve::cli {
namespace {

constexpr std::string_view kBackground = "#141b2b";

// Changes from 2^-24 (the last bit of a float32) to 1 and more, on a logarithmic scale from 0 to 1.
double strength(double change) {
  if (!std::isfinite(change)) {
    return 1.0;
  }
  return std::clamp(1.0 + std::log2(std::max(change, 0x1p-24)) / 24.0, 0.0, 1.0);
}

std::string mix(std::array<int, 3> from, std::array<int, 3> to, double t) {
  const auto channel = [&](std::size_t i) {
    return static_cast<int>(std::lround(from[i] + t * static_cast<double>(to[i] - from[i])));
  };
  return fmt::format("#{:02x}{:02x}{:02x}", channel(0), channel(1), channel(2));
}

// Few steps, so that neighbouring cells share a colour and merge into one rectangle.
std::string colour(double change, bool future) {
  constexpr double kSteps = 8.0;
  const double t = std::round(strength(change) * kSteps) / kSteps;
  return future ? mix({190, 30, 45}, {255, 92, 51}, t) : mix({35, 48, 74}, {82, 110, 156}, t);
}

// One path for each colour, in units of cells.
std::string cells(const InfluenceMatrix& influence) {
  std::map<std::string, std::string> paths;
  const std::int64_t bins = influence.bins;
  for (std::int64_t row = 0; row < bins; ++row) {
    const auto colour_at = [&](std::int64_t column) {
      const auto at = static_cast<std::size_t>(row * bins + column);
      // Written so that a NaN counts as a change.
      return influence.leaked[at] != 0.0    ? colour(influence.leaked[at], true)
             : influence.changed[at] != 0.0 ? colour(influence.changed[at], false)
                                            : std::string();
    };
    for (std::int64_t column = 0; column < bins;) {
      const std::string here = colour_at(column);
      std::int64_t end = column + 1;
      while (end < bins && colour_at(end) == here) {
        ++end;
      }
      if (!here.empty()) {
        paths[here] += fmt::format("M{} {}h{}v1h-{}z", column, row, end - column, end - column);
      }
      column = end;
    }
  }
  std::string svg;
  for (const auto& [fill, path] : paths) {
    svg += fmt::format("<path fill=\"{}\" d=\"{}\"/>", fill, path);
  }
  return svg;
}

// Length in bytes of the well-formed UTF-8 sequence at `at`, 0 if there is none.
std::size_t utf8_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(at);
  const std::size_t length = lead < 0x80U                     ? 1
                             : lead >= 0xC2U && lead <= 0xDFU ? 2
                             : lead >= 0xE0U && lead <= 0xEFU ? 3
                             : lead >= 0xF0U && lead <= 0xF4U ? 4
                                                              : 0;
  if (length == 0 || at + length > text.size()) {
    return 0;
  }
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xC0U) != 0x80U) {
      return 0;
    }
  }
  return length;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string safe;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text, at);
    const char c = text[at];
    if (length == 0) {
      safe += "\xEF\xBF\xBD";  // U+FFFD
    } else if (c == '&') {
      safe += "&amp;";
    } else if (c == '<') {
      safe += "&lt;";
    } else if (c == '>') {
      safe += "&gt;";
    } else if (c == '"') {
      safe += "&quot;";
    } else if (c == '\'') {
      safe += "&#39;";
    } else if (static_cast<unsigned char>(c) < 0x20U || c == '\x7F') {
      safe += ' ';
    } else {
      safe += text.substr(at, length);
    }
    at += std::max<std::size_t>(length, 1);
  }
  return safe;
}

std::string influence_map(const InfluenceMatrix& influence, std::string_view label) {
  const std::int64_t n = std::max<std::int64_t>(influence.bins, 1);
  return fmt::format(
      "<svg class=\"map\" role=\"img\" aria-label=\"{}\" viewBox=\"0 0 {} {}\" shape-rendering=\"crispEdges\">"
      "<rect width=\"{}\" height=\"{}\" fill=\"{}\"/>{}</svg>",
      escaped(label), n, n, n, n, kBackground, cells(influence));
}

std::string annotated_map() {
  constexpr std::int64_t kBins = 16;
  InfluenceMatrix example;
  example.bins = kBins;
  for (std::int64_t row = 0; row < kBins; ++row) {
    for (std::int64_t column = 0; column < kBins; ++column) {
      const bool leak = column > row && column / 4 == row / 4;
      example.changed.push_back(column <= row ? std::exp2(-static_cast<double>(row - column)) : 0.0);
      example.leaked.push_back(leak ? 0x1p-6 : 0.0);
    }
  }
  // The map is 16 x 16 cells of 12 units; the words stand around it.
  return fmt::format(
      "<svg class=\"guide\" role=\"img\" aria-label=\"How to read an influence map\" viewBox=\"0 0 450 232\">"
      "<g transform=\"translate(28 28) scale(12)\" shape-rendering=\"crispEdges\">"
      "<rect width=\"16\" height=\"16\" fill=\"{}\"/>{}</g>"
      "<g class=\"words\"><text x=\"28\" y=\"18\">token that was changed &#8594;</text>"
      "<text transform=\"translate(18 28) rotate(90)\">output row &#8594;</text>"
      "<path class=\"rule\" d=\"M190 60H236M96 180H236M105 117H236\"/>"
      "<text x=\"242\" y=\"64\">dark: no influence</text>"
      "<text x=\"242\" y=\"121\" class=\"loud\">red: a later token changed</text>"
      "<text x=\"242\" y=\"137\" class=\"loud\">this row. That is a leak.</text>"
      "<text x=\"242\" y=\"184\">blue: an earlier token did.</text>"
      "<text x=\"242\" y=\"200\">That is what attention is for.</text></g></svg>",
      kBackground, cells(example));
}

}  // namespace checkvalve::cli
