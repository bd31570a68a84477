// validate.h: every check of a call's arguments that does not depend on the backend.
#pragma once

#include <string_view>

#include "checkvalve/attention.h"

namespace checkvalve {

// Each throws InvalidArgument with the argument, its value and what is accepted.
void validate_problem(const AttentionProblem& problem, const Recipe& recipe, const Options& options);

// The length arrays of packed and padded problems; they must be in host memory.
void validate_lengths(const AttentionProblem& problem);

enum class RowsOf { kQuery, kKeyValue };

// A (b, s, h, d) tensor of the problem; `head_dim` is its last dimension.
void validate_tensor(std::string_view name, const ConstTensorView& view, const AttentionProblem& problem, RowsOf rows,
                     std::int64_t head_dim, DType dtype, Device device);

// lse: float32 (b, h_q, s_q), or (h_q, total_q) if packed.
void validate_lse(const ConstTensorView& lse, const AttentionProblem& problem, DType dtype, Device device);

// Operands from quantize(): every tensor of quantized_layout present, with its shape, strides and dtype.
void validate_quantized(const QuantizedQKV& operands, const AttentionProblem& problem, const Recipe& recipe);

}  // namespace checkvalve
