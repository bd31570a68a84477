// error_table.h: how far each recipe is from float64 attention on the original inputs.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "checkvalve/attention.h"
#include "checkvalve/recipe.h"
#include "data.h"

namespace checkvalve::cli {

struct RecipeError {
  Recipe recipe{};
  std::string unsupported{};  // why it could not run; empty: it ran
  double frobenius = 0.0;     // |out - exact| / |exact|, over all rows that are finite in `exact`
  double worst_row = 0.0;     // the largest |out_i - exact_i| / |exact_i|; inf if a finite row became non-finite
  std::int64_t worst_b = 0, worst_token = 0, worst_head = 0;
  std::int64_t rows = 0;           // rows compared
  std::int64_t rows_left_out = 0;  // rows that are not finite in `exact`
};

// `out` of each recipe in float32, so that the rounding of the output type is not counted. Calls progress(done).
[[nodiscard]] std::vector<RecipeError> measure_errors(const Qkv& data, std::span<const Recipe> recipes,
                                                      const Options& options,
                                                      const std::function<void(double)>& progress = {});

}  // namespace checkvalve::cli
