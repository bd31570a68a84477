// scale_layout.h: the 128x4 tiled layout of E8M0 scales that cuBLAS and cuDNN read (F8_128x4), both ways.
#pragma once

#include <cstdint>
#include <span>

namespace checkvalve::numerics {

// Bytes of the tiled layout of an outer x inner matrix of scale bytes: outer padded to 128, inner to 4.
[[nodiscard]] constexpr std::int64_t tiled_scale_bytes(std::int64_t outer, std::int64_t inner) {
  return (outer + 127) / 128 * 128 * ((inner + 3) / 4 * 4);
}

// Byte offset of scale (i, j) of a matrix with `inner` columns. Tiles of 128 x 4 = 512 bytes are row-major; inside a
// tile row i % 32 is a 16-byte line that holds rows i % 32 + {0, 32, 64, 96}, four columns each. Source: cuBLAS
// documentation, "1D block scaling factors layout".
[[nodiscard]] constexpr std::int64_t tiled_scale_offset(std::int64_t i, std::int64_t j, std::int64_t inner) {
  const std::int64_t tiles_per_row = (inner + 3) / 4;
  return ((i / 128) * tiles_per_row + j / 4) * 512 + (i % 32) * 16 + (i % 128) / 32 * 4 + j % 4;
}

// `compact` is row-major outer x inner, `tiled` has tiled_scale_bytes(outer, inner) bytes; padding is written as 0.
// Throws InvalidArgument if a size does not fit.
void tile_scales(std::span<const std::uint8_t> compact, std::int64_t outer, std::int64_t inner,
                 std::span<std::uint8_t> tiled);
void untile_scales(std::span<const std::uint8_t> tiled, std::int64_t outer, std::int64_t inner,
                   std::span<std::uint8_t> compact);

}  // namespace checkvalve::numerics
