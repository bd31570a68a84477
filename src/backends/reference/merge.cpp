// merge.cpp: merge_partials on host tensors.
#include "backends/reference/merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "checkvalve/attention.h"
#include "checkvalve/error.h"
#include "numerics/element.h"

namespace checkvalve {

double reference::merge_row(std::span<const double> out1, double lse1, std::span<const double> out2, double lse2,
                            std::span<double> out) {
  constexpr double kEmpty = -std::numeric_limits<double>::infinity();
  if (lse1 == kEmpty && lse2 == kEmpty) {
    std::ranges::fill(out, 0.0);
    return kEmpty;
  }
  if (lse1 == kEmpty || lse2 == kEmpty) {
    const auto only = lse1 == kEmpty ? out2 : out1;
    std::copy(only.begin(), only.end(), out.begin());
    return lse1 == kEmpty ? lse2 : lse1;
  }
  const double top = std::max(lse1, lse2);
  const double w1 = std::exp(lse1 - top);
  const double w2 = std::exp(lse2 - top);
  for (std::size_t c = 0; c < out.size(); ++c) {
    out[c] = (w1 * out1[c] + w2 * out2[c]) / (w1 + w2);
  }
  return top + std::log(w1 + w2);
}

void merge_partials(const ConstTensorView& out1, const ConstTensorView& lse1, const ConstTensorView& out2,
                    const ConstTensorView& lse2, const TensorView& out, const TensorView& lse) {
  const struct {
    const char* name;
    const ConstTensorView view;
    const ConstTensorView& like;
    int rank;
  } tensors[] = {{"out1", out1, out, 4}, {"out2", out2, out, 4}, {"out", out, out, 4},
                 {"lse1", lse1, lse, 3}, {"lse2", lse2, lse, 3}, {"lse", lse, lse, 3}};
  for (const auto& [name, view, like, rank] : tensors) {
    if (view.dtype != DType::kFloat32 || view.rank != rank || view.shape != like.shape ||
        view.device != Device::kHost || (view.data == nullptr && view.numel() != 0)) {
      throw InvalidArgument(fmt::format("merge_partials: {} is {}; accepted: float32 {} in host memory like the output",
                                        name, to_string(view), rank == 4 ? "(b, s, h, d)" : "(b, h, s)"));
    }
  }
  if (lse.shape[0] != out.shape[0] || lse.shape[1] != out.shape[2] || lse.shape[2] != out.shape[1]) {
    throw InvalidArgument(
        fmt::format("merge_partials: lse is {} but out is {}; lse must be (b, h, s)", to_string(lse), to_string(out)));
  }
  const auto d = static_cast<std::size_t>(out.shape[3]);
  std::vector<double> a(d);
  std::vector<double> b(d);
  const auto load = [d](const ConstTensorView& t, std::int64_t n, std::int64_t s, std::int64_t h,
                        std::vector<double>& row) {
    for (std::size_t c = 0; c < d; ++c) {
      row[c] = numerics::load_element(t, numerics::offset_of(t, n, s, h, static_cast<std::int64_t>(c)));
    }
  };
  for (std::int64_t n = 0; n < out.shape[0]; ++n) {
    for (std::int64_t h = 0; h < out.shape[2]; ++h) {
      for (std::int64_t s = 0; s < out.shape[1]; ++s) {
        load(out1, n, s, h, a);
        load(out2, n, s, h, b);
        const double joint =
            reference::merge_row(a, numerics::load_element(lse1, numerics::offset_of(lse1, n, h, s)), b,
                                 numerics::load_element(lse2, numerics::offset_of(lse2, n, h, s)), a);
        for (std::size_t c = 0; c < d; ++c) {
          numerics::store_element(out, numerics::offset_of(out, n, s, h, static_cast<std::int64_t>(c)), a[c]);
        }
        numerics::store_element(lse, numerics::offset_of(lse, n, h, s), joint);
      }
    }
  }
}

}  // namespace checkvalve
