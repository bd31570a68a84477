// reference.h: the oracle backend: plain loops in float64 over the contract of docs/numerics.md.
#pragma once

#include "backends/backend.h"

namespace checkvalve::reference {

[[nodiscard]] const Backend& backend();

}  // namespace checkvalve::reference
