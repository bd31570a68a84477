// scale_layout.cpp: copies between the compact and the 128x4 tiled layout of scales.
#include "numerics/scale_layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "checkvalve/error.h"

namespace checkvalve::numerics {
namespace {

void check_sizes(std::size_t compact, std::size_t tiled, std::int64_t outer, std::int64_t inner) {
  if (outer < 0 || inner < 0 || compact != static_cast<std::size_t>(outer * inner)) {
    throw InvalidArgument(
        fmt::format("compact scales have {} bytes; a {} x {} matrix has {}", compact, outer, inner, outer * inner));
  }
  if (tiled != static_cast<std::size_t>(tiled_scale_bytes(outer, inner))) {
    throw InvalidArgument(fmt::format("tiled scales have {} bytes; a {} x {} matrix takes {} in 128x4 tiles", tiled,
                                      outer, inner, tiled_scale_bytes(outer, inner)));
  }
}

}  // namespace

void tile_scales(std::span<const std::uint8_t> compact, std::int64_t outer, std::int64_t inner,
                 std::span<std::uint8_t> tiled) {
  check_sizes(compact.size(), tiled.size(), outer, inner);
  std::ranges::fill(tiled, std::uint8_t{0});
  for (std::int64_t i = 0; i < outer; ++i) {
    for (std::int64_t j = 0; j < inner; ++j) {
      tiled[static_cast<std::size_t>(tiled_scale_offset(i, j, inner))] =
          compact[static_cast<std::size_t>(i * inner + j)];
    }
  }
}

void untile_scales(std::span<const std::uint8_t> tiled, std::int64_t outer, std::int64_t inner,
                   std::span<std::uint8_t> compact) {
  check_sizes(compact.size(), tiled.size(), outer, inner);
  for (std::int64_t i = 0; i < outer; ++i) {
    for (std::int64_t j = 0; j < inner; ++j) {
      compact[static_cast<std::size_t>(i * inner + j)] =
          tiled[static_cast<std::size_t>(tiled_scale_offset(i, j, inner))];
    }
  }
}

}  // namespace checkvalve::numerics
