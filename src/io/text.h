// text.h: how the readers and writers name files and foreign strings in their errors.
#pragma once

#include <string>
#include <string_view>

namespace checkvalve::io {

// `text` in double quotes, safe to print: control and non-ASCII characters escaped, cut after 100 characters.
[[nodiscard]] std::string quote(std::string_view text);

// Throws IoError "<origin>: <what>".
[[noreturn]] void fail(std::string_view origin, std::string_view what);

// As above with the system's reason, "<origin>: <what>: No such file or directory".
[[noreturn]] void fail_errno(std::string_view origin, std::string_view what, int error);

}  // namespace checkvalve::io
