// tensors.h: host tensors with storage, random inputs and named test cases.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkvalve/attention.h"

namespace checkvalve::test {

// A tensor with its storage. Attention tensors are (b, s, h, d) views in any layout.
struct HostTensor {
  std::vector<std::byte> storage;
  TensorView view;

  [[nodiscard]] double at(std::int64_t i0, std::int64_t i1 = 0, std::int64_t i2 = 0, std::int64_t i3 = 0) const;
  void set(std::int64_t i0, std::int64_t i1, std::int64_t i2, std::int64_t i3, double value);
  // Bytes 0xFF: a NaN in every floating-point dtype.
  void poison();
};

[[nodiscard]] HostTensor make_attention_tensor(DType dtype, Layout layout, std::int64_t b, std::int64_t s,
                                               std::int64_t h, std::int64_t d);
[[nodiscard]] HostTensor make_dense_tensor(DType dtype, std::vector<std::int64_t> shape);

// A deep copy (the view points into the copy).
[[nodiscard]] HostTensor clone(const HostTensor& t);

// What the numbers look like.
enum class Data {
  kGauss,       // standard normal
  kOutliers,    // a few channels of K and V 20-32 times larger
  kTokenRange,  // V times 2^-8 .. 2^8 by token
  kSink,        // half of the attention mass on token 0, whose V is 2^-6
  kNegative,    // every logit strongly negative
};
[[nodiscard]] std::string name_of(Data data);

// Inputs of one attention call.
struct Inputs {
  AttentionProblem problem;
  HostTensor q, k, v, d_out;
  std::vector<std::int32_t> cu_q, cu_kv, used_q, used_kv;
};

// One line of a test matrix; its printed form is all that is needed to rebuild it.
struct Case {
  std::int64_t b = 1, h_q = 1, h_kv = 1, s_q = 64, s_kv = 64, d_qk = 64, d_v = 64;
  DType dtype = DType::kBFloat16;
  Layout layout = Layout::kBshd;
  std::int64_t window_left = -1;
  bool causal = true;
  Data data = Data::kGauss;
  std::uint64_t seed = 1;
};
[[nodiscard]] std::string to_string(const Case& c);

[[nodiscard]] Inputs make_inputs(const Case& c);

// Results of a forward and, on request, a backward call, in float32.
struct Results {
  HostTensor out, lse, dq, dk, dv;
  Report report;
};

enum class Passes { kForward, kForwardBackward };
enum class DeltaFrom { kProbabilities, kOutput };

// Runs the call on `options.backend` with allow_leak; outputs are poisoned first. out and the gradients are float32.
[[nodiscard]] Results run(const Inputs& in, const Recipe& recipe, Options options, Passes passes,
                          DeltaFrom delta = DeltaFrom::kProbabilities);

// Names of all backends that can serve the recipe on host tensors.
[[nodiscard]] std::vector<std::string> host_backends(const AttentionProblem& problem, const Recipe& recipe);

// "" if the bytes of rows [begin, end) of dimension `dim` are equal, else the first difference in words.
[[nodiscard]] std::string first_difference(const HostTensor& a, const HostTensor& b, int dim, std::int64_t begin,
                                           std::int64_t end);

}  // namespace checkvalve::test
