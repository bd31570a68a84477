// output.cpp: tables, JSON, numbers and progress.
#include "output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "checkvalve/error.h"

namespace checkvalve::cli {

Table::Table(std::vector<std::string> header, std::vector<std::size_t> left_columns)
    : rows_{std::move(header)}, left_columns_(std::move(left_columns)) {}

void Table::add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

std::string Table::to_string() const {
  std::vector<std::size_t> width(rows_.front().size(), 0);
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      width[i] = std::max(width[i], row[i].size());
    }
  }
  std::string text;
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    std::string line;
    for (std::size_t i = 0; i < rows_[r].size(); ++i) {
      const bool left = std::find(left_columns_.begin(), left_columns_.end(), i) != left_columns_.end();
      const std::string gap = i == 0 ? "" : "  ";
      line +=
          gap + (left ? fmt::format("{:<{}}", rows_[r][i], width[i]) : fmt::format("{:>{}}", rows_[r][i], width[i]));
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
    if (r == 0) {
      for (std::size_t i = 0; i < width.size(); ++i) {
        text += (i == 0 ? "" : "  ") + std::string(width[i], '-');
      }
      text += '\n';
    }
  }
  return text;
}

void print(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (std::fflush(stdout) != 0 || !written) {
    throw IoError("standard output cannot be written; check the disk or the pipe that it goes to");
  }
}

void print_json(const nlohmann::ordered_json& json) {
  // File names need not be UTF-8; JSON must be.
  print(json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n');
}

nlohmann::ordered_json json_number(double x) {
  if (std::isnan(x)) {
    return "nan";
  }
  if (std::isinf(x)) {
    return x > 0 ? "inf" : "-inf";
  }
  return x;
}

std::string percent(double ratio) {
  if (!std::isfinite(ratio)) {
    return "not finite";
  }
  const double value = 100.0 * ratio;
  if (value == 0.0) {
    return "0 %";
  }
  if (value >= 1e5) {
    return fmt::format("{:.0e} %", value);
  }
  if (value < 0.01) {
    return value < 0.0001 ? "< 0.0001 %" : fmt::format("{:.4f} %", value);
  }
  return fmt::format("{:.{}f} %", value, value >= 100.0 ? 0 : value >= 10.0 ? 1 : 2);
}

std::string count(std::int64_t n) {
  const std::string digits = std::to_string(n);
  std::string grouped;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) {
      grouped += ',';
    }
    grouped += digits[i];
  }
  return grouped;
}

std::string counted(std::int64_t n, std::string_view noun) {
  return fmt::format("{} {}{}", count(n), noun, n == 1 ? "" : "s");
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == words.size() ? " and " : ", ") + words[i];
  }
  return text;
}

Progress::Progress() : terminal_(::isatty(STDERR_FILENO) == 1), start_(Clock::now()), last_(start_) {}

Progress::~Progress() {
  if (shown_) {
    std::fputs("\r\033[K", stderr);
  }
}

void Progress::update(std::string_view what, double share) {
  const auto now = Clock::now();
  if (!terminal_ || now - start_ < std::chrono::seconds(1) || now - last_ < std::chrono::milliseconds(100)) {
    return;
  }
  last_ = now;
  shown_ = true;
  std::fputs(fmt::format("\r\033[K{} {:.0f} %", what, 100.0 * share).c_str(), stderr);
}

}  // namespace checkvalve::cli
