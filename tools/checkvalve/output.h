// output.h: text tables, JSON, numbers for people, and progress: everything that reaches the terminal.
#pragma once

#include <chrono>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace checkvalve::cli {

// Columns are as wide as their widest cell; the first is left-aligned, the others right-aligned unless said.
class Table {
 public:
  explicit Table(std::vector<std::string> header, std::vector<std::size_t> left_columns = {0});
  void add(std::vector<std::string> row);
  [[nodiscard]] std::string to_string() const;

 private:
  std::vector<std::vector<std::string>> rows_;
  std::vector<std::size_t> left_columns_;
};

// Throws IoError if standard output cannot take the text (a full disk, a closed file).
void print(std::string_view text);
void print_json(const nlohmann::ordered_json& json);

// JSON has no infinity and no NaN: they become the strings "inf", "-inf" and "nan".
[[nodiscard]] nlohmann::ordered_json json_number(double x);

[[nodiscard]] std::string percent(double ratio);  // "2.57 %", "< 0.0001 %", "0 %", "not finite"
[[nodiscard]] std::string count(std::int64_t n);  // "1,234,567"
[[nodiscard]] std::string counted(std::int64_t n, std::string_view noun);  // "1 recipe", "2 recipes"
[[nodiscard]] std::string joined(const std::vector<std::string>& words);   // "a, b and c"

// A line on standard error that says what is under way, from the second second on and only on a terminal.
class Progress {
 public:
  Progress();
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(std::string_view what, double share);

 private:
  using Clock = std::chrono::steady_clock;
  bool terminal_;
  bool shown_ = false;
  Clock::time_point start_, last_;
};

}  // namespace checkvalve::cli
