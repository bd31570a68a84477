// compare.cpp: bitwise comparison of the rows of two results, and the size of a change.
#include "audit/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "numerics/element.h"

namespace checkvalve::audit_detail {
namespace {

bool same_bytes(const ConstTensorView& a, std::int64_t offset_a, const ConstTensorView& b, std::int64_t offset_b) {
  const auto size = static_cast<std::int64_t>(size_of(a.dtype));
  return std::memcmp(static_cast<const std::byte*>(a.data) + offset_a * size,
                     static_cast<const std::byte*>(b.data) + offset_b * size, static_cast<std::size_t>(size)) == 0;
}

// The change of one vector of channels.
double vector_change(const ConstTensorView& before, const ConstTensorView& after, std::int64_t b, std::int64_t s,
                     std::int64_t h) {
  double change = 0.0;
  double norm = 0.0;
  bool differs = false;
  for (std::int64_t d = 0; d < before.shape[3]; ++d) {
    const std::int64_t at_before = numerics::offset_of(before, b, s, h, d);
    const std::int64_t at_after = numerics::offset_of(after, b, s, h, d);
    const double x = numerics::load_element(before, at_before);
    if (same_bytes(before, at_before, after, at_after)) {
      norm += std::isfinite(x) ? x * x : 0.0;
      continue;
    }
    const double y = numerics::load_element(after, at_after);
    if (!std::isfinite(x) || !std::isfinite(y)) {
      return std::numeric_limits<double>::infinity();
    }
    differs = differs || x != y;
    change += (y - x) * (y - x);
    norm += x * x;
  }
  return differs ? std::sqrt(change / norm) : 0.0;
}

}  // namespace

double relative_change(const ConstTensorView& before, const ConstTensorView& after, std::int64_t row) {
  double largest = 0.0;
  for (std::int64_t b = 0; b < before.shape[0]; ++b) {
    for (std::int64_t h = 0; h < before.shape[2]; ++h) {
      largest = std::max(largest, vector_change(before, after, b, row, h));
    }
  }
  return largest;
}

std::optional<Difference> compare_rows(const ConstTensorView& before, const ConstTensorView& after, TokenRange rows) {
  std::optional<Difference> found;
  for (std::int64_t s = rows.first; s <= rows.last; ++s) {
    bool row_differs = false;
    for (std::int64_t b = 0; b < before.shape[0]; ++b) {
      for (std::int64_t h = 0; h < before.shape[2]; ++h) {
        for (std::int64_t d = 0; d < before.shape[3]; ++d) {
          const std::int64_t at_before = numerics::offset_of(before, b, s, h, d);
          const std::int64_t at_after = numerics::offset_of(after, b, s, h, d);
          if (same_bytes(before, at_before, after, at_after)) {
            continue;
          }
          row_differs = true;
          if (!found) {
            found = Difference{.batch = b,
                               .row = s,
                               .head = h,
                               .element = d,
                               .before = numerics::load_element(before, at_before),
                               .after = numerics::load_element(after, at_after)};
          }
        }
      }
    }
    if (row_differs) {
      found->relative_change = std::max(found->relative_change, relative_change(before, after, s));
    }
  }
  return found;
}

}  // namespace checkvalve::audit_detail
