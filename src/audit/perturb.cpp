// perturb.cpp: rewrites the elements of a range of tokens.
#include "audit/perturb.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "numerics/element.h"

namespace checkvalve::audit_detail {
namespace {

double largest_finite(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return 65504.0;
    case DType::kBFloat16:
      return 0x1.FEp127;
    default:
      return static_cast<double>(std::numeric_limits<float>::max());
  }
}

double enlarged(double x, double factor, double limit) {
  if (!std::isfinite(x)) {
    return x;
  }
  return x == 0.0 ? std::min(factor, limit) : std::clamp(x * factor, -limit, limit);
}

double perturbed(double x, Perturbation perturbation, double limit) {
  switch (perturbation) {
    case Perturbation::kHuge12:
      return enlarged(x, 0x1p12, limit);
    case Perturbation::kHuge20:
      return enlarged(x, 0x1p20, limit);
    case Perturbation::kTiny:
      return x * 0x1p-20;
    case Perturbation::kSign:
      return -x;
    case Perturbation::kNaN:
      return std::numeric_limits<double>::quiet_NaN();
    case Perturbation::kInf:
      return std::numeric_limits<double>::infinity();
  }
  throw InvalidArgument("unknown perturbation");
}

}  // namespace

std::vector<Perturbation> perturbations(bool non_finite) {
  std::vector<Perturbation> all{Perturbation::kHuge12, Perturbation::kHuge20, Perturbation::kTiny, Perturbation::kSign};
  if (non_finite) {
    all.push_back(Perturbation::kNaN);
    all.push_back(Perturbation::kInf);
  }
  return all;
}

void perturb(const TensorView& tensor, TokenRange tokens, Perturbation perturbation) {
  const double limit = largest_finite(tensor.dtype);
  for (std::int64_t b = 0; b < tensor.shape[0]; ++b) {
    for (std::int64_t s = tokens.first; s <= tokens.last; ++s) {
      for (std::int64_t h = 0; h < tensor.shape[2]; ++h) {
        for (std::int64_t d = 0; d < tensor.shape[3]; ++d) {
          const std::int64_t offset = numerics::offset_of(tensor, b, s, h, d);
          numerics::store_element(tensor, offset,
                                  perturbed(numerics::load_element(tensor, offset), perturbation, limit));
        }
      }
    }
  }
}

}  // namespace checkvalve::audit_detail
