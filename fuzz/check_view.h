// check_view.h: what holds for every tensor that a reader returns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "checkvalve/tensor.h"

namespace checkvalve::fuzz {

inline void require(bool holds) {
  if (!holds) std::abort();
}

// Aborts unless `view` is present, dense, aligned and of rank 1 to 4. Reads every byte, so that AddressSanitizer sees a
// view that leaves its memory.
inline void check_view(const ConstTensorView& view) {
  require(view.data != nullptr && view.rank >= 1 && view.rank <= kMaxRank);
  require(reinterpret_cast<std::uintptr_t>(view.data) % size_of(view.dtype) == 0);
  std::int64_t stride = 1;
  for (auto i = static_cast<std::size_t>(view.rank); i-- > 0;) {
    require(view.shape[i] >= 0 && view.strides[i] == stride);
    stride *= view.shape[i];
  }
  const auto size = static_cast<std::size_t>(view.numel()) * size_of(view.dtype);
  unsigned sum = 0;
  for (std::size_t i = 0; i < size; ++i) sum += static_cast<const volatile unsigned char*>(view.data)[i];
  static_cast<void>(sum);
}

}  // namespace checkvalve::fuzz
