// quantize.h: the quantisers on host tensors, one element at a time: the definition of the bytes of every backend.
#pragma once

#include "checkvalve/attention.h"

namespace checkvalve::numerics {

// Fills every tensor of `out` (as quantized_layout describes); rows outside the sequences become zero bytes and are not
// read. A NaN or an infinity makes the elements that share its scale zero bytes and the scale NaN.
void quantize_host(const AttentionProblem& problem, const Recipe& recipe, const ConstTensorView& q,
                   const ConstTensorView& k, const ConstTensorView& v, const QuantizedQKV& out);

// Token-normalised E4M3 of one row: bytes[0..n) and the E8M0 scale byte, exponent in [min_exponent, max_exponent].
std::uint8_t quantize_row_e4m3(const float* row, std::int64_t n, int min_exponent, int max_exponent,
                               std::uint8_t* bytes);

}  // namespace checkvalve::numerics
