// hadamard.h: the normalised block-diagonal Hadamard rotation of a row of Q or K, host and device.
#pragma once

#include <cmath>

#include "numerics/host_device.h"

namespace checkvalve::numerics {

// Length of the diagonal blocks: the largest power of two that divides head_dim d (128 -> 128, 96 -> 32, 7 -> 1).
CHECKVALVE_HD constexpr int hadamard_block(int d) { return d & -d; }

// row[0..d) <- H row in place, in float32 (or float64), in a fixed order of additions so that every backend gets the
// same bits: butterflies of distance 1, 2, 4, ... and one multiplication by 1/sqrt(block) at the end. H is symmetric
// and its own inverse. A finite row whose rotation exceeds the largest float becomes non-finite and is contained as
// such.
template <typename T>
CHECKVALVE_HD inline void rotate_row(T* row, int d) {
  const int block = hadamard_block(d);
  if (block == 1) {
    return;
  }
  for (int distance = 1; distance < block; distance *= 2) {
    for (int start = 0; start < d; start += 2 * distance) {
      for (int i = start; i < start + distance; ++i) {
        const T a = row[i];
        const T b = row[i + distance];
        row[i] = a + b;
        row[i + distance] = a - b;
      }
    }
  }
  const T norm = T{1} / std::sqrt(static_cast<T>(block));
  for (int i = 0; i < d; ++i) {
    row[i] *= norm;
  }
}

}  // namespace checkvalve::numerics
