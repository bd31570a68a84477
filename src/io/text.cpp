// text.cpp: quoting and the one place that builds an IoError.
#include "io/text.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <system_error>

#include "checkvalve/error.h"

namespace checkvalve::io {

std::string quote(std::string_view text) {
  constexpr std::size_t kLongest = 100;
  const bool cut = text.size() > kLongest;
  const nlohmann::json value = std::string(text.substr(0, kLongest));
  return value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + (cut ? "..." : "");
}

void fail(std::string_view origin, std::string_view what) { throw IoError(fmt::format("{}: {}", origin, what)); }

void fail_errno(std::string_view origin, std::string_view what, int error) {
  fail(origin, fmt::format("{}: {}", what, std::generic_category().message(error)));
}

}  // namespace checkvalve::io
