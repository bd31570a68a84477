// svg.h: influence maps as inline SVG.
#pragma once

#include <string>

#include "checkvalve/audit.h"

namespace checkvalve::cli {

// Text made safe inside HTML and SVG elements and quoted attributes; control characters and broken UTF-8 are replaced.
[[nodiscard]] std::string escaped(std::string_view text);

// Rows of the picture are output rows, from token 0 at the top; columns are the tokens that were changed. Dark: no
// influence; blue: the past, which is allowed; red to yellow: the future, which is a leak.
[[nodiscard]] std::string influence_map(const InfluenceMatrix& influence, std::string_view label);

// The same picture with made-up numbers and words on it, for readers who see one for the first time.
[[nodiscard]] std::string annotated_map();

}  // namespace checkvalve::cli
