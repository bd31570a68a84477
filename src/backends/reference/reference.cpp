// reference.cpp: the backend interface of the oracle.
#include "backends/reference/reference.h"

#include <string>
#include <vector>

#include "backends/reference/backward.h"
#include "backends/reference/forward.h"
#include "numerics/quantize.h"

namespace checkvalve::reference {
namespace {

class ReferenceBackend final : public Backend {
 public:
  [[nodiscard]] std::string_view name() const override { return "reference"; }

  [[nodiscard]] std::string describe() const override {
    return "plain float64 loops on the CPU: the definition that every other backend is compared with; slow";
  }

  [[nodiscard]] std::vector<std::string> why_not(const AttentionProblem& /*problem*/, const Recipe& /*recipe*/,
                                                 const Options& /*options*/, Device device) const override {
    if (device != Device::kHost) {
      return {"the tensors are in device memory; it computes in host memory only"};
    }
    return {};
  }

  [[nodiscard]] std::size_t workspace_bytes(const AttentionProblem& /*problem*/, const Recipe& /*recipe*/,
                                            const Options& /*options*/) const override {
    return 0;
  }

  void quantize(const AttentionProblem& problem, const Recipe& recipe, const ConstTensorView& q,
                const ConstTensorView& k, const ConstTensorView& v, const QuantizedQKV& out,
                const Options& /*options*/) const override {
    numerics::quantize_host(problem, recipe, q, k, v, out);
  }

  void forward(const AttentionProblem& problem, const Recipe& recipe, const QuantizedQKV& operands,
               const TensorView& out, const TensorView& lse, const Options& options) const override {
    reference::forward(problem, recipe, operands, out, lse, options);
  }

  void forward(const AttentionProblem& problem, const Recipe& recipe, const ConstTensorView& q,
               const ConstTensorView& k, const ConstTensorView& v, const TensorView& out, const TensorView& lse,
               const Options& options) const override {
    const HostQuantizedQKV operands = allocate_quantized(problem, recipe);
    numerics::quantize_host(problem, recipe, q, k, v, operands.tensors);
    reference::forward(problem, recipe, operands.tensors, out, lse, options);
  }

  void backward(const AttentionProblem& problem, const Recipe& recipe, const ConstTensorView& q,
                const ConstTensorView& k, const ConstTensorView& v, const ConstTensorView& out,
                const ConstTensorView& lse, const ConstTensorView& d_out, const TensorView& dq, const TensorView& dk,
                const TensorView& dv, const Options& options) const override {
    const HostQuantizedQKV operands = allocate_quantized(problem, recipe);
    numerics::quantize_host(problem, recipe, q, k, v, operands.tensors);
    reference::backward(problem, recipe, operands.tensors, out, lse, d_out, dq, dk, dv, options);
  }
};

}  // namespace

const Backend& backend() {
  static const ReferenceBackend kBackend;
  return kBackend;
}

}  // namespace checkvalve::reference
