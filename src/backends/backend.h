// backend.h: what a backend is. A new one is a folder, a line in backends.cpp and a line in CMakeLists.txt.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkvalve/attention.h"

namespace checkvalve {

// Arguments are validated before a backend sees them: views match the problem, lengths and masks make sense.
class Backend {
 public:
  virtual ~Backend() = default;

  [[nodiscard]] virtual std::string_view name() const = 0;
  [[nodiscard]] virtual std::string describe() const = 0;

  // Every reason why this backend cannot serve the call on tensors of `device`; empty if it can.
  [[nodiscard]] virtual std::vector<std::string> why_not(const AttentionProblem& problem, const Recipe& recipe,
                                                         const Options& options, Device device) const = 0;

  [[nodiscard]] virtual std::size_t workspace_bytes(const AttentionProblem& problem, const Recipe& recipe,
                                                    const Options& options) const = 0;

  virtual void quantize(const AttentionProblem& problem, const Recipe& recipe, const ConstTensorView& q,
                        const ConstTensorView& k, const ConstTensorView& v, const QuantizedQKV& out,
                        const Options& options) const = 0;

  virtual void forward(const AttentionProblem& problem, const Recipe& recipe, const QuantizedQKV& operands,
                       const TensorView& out, const TensorView& lse, const Options& options) const = 0;

  virtual void forward(const AttentionProblem& problem, const Recipe& recipe, const ConstTensorView& q,
                       const ConstTensorView& k, const ConstTensorView& v, const TensorView& out, const TensorView& lse,
                       const Options& options) const = 0;

  virtual void backward(const AttentionProblem& problem, const Recipe& recipe, const ConstTensorView& q,
                        const ConstTensorView& k, const ConstTensorView& v, const ConstTensorView& out,
                        const ConstTensorView& lse, const ConstTensorView& d_out, const TensorView& dq,
                        const TensorView& dk, const TensorView& dv, const Options& options) const = 0;
};

// All backends, the preferred ones first.
[[nodiscard]] std::span<const Backend* const> all_backends();

}  // namespace checkvalve
