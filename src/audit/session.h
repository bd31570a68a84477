// session.h: runs one callable on edited copies of the inputs and watches that it keeps the contract of AuditRun.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "audit/tokens.h"
#include "checkvalve/audit.h"

namespace checkvalve::audit_detail {

enum class Operand : std::uint8_t { kQ, kK, kV, kDOut };
inline constexpr std::size_t kOperands = 4;
[[nodiscard]] std::string_view name_of(Operand operand);

enum class Output : std::uint8_t { kOut, kLse, kDq, kDk, kDv };
inline constexpr std::size_t kOutputs = 5;
[[nodiscard]] std::string_view name_of(Output output);

// A change of some rows of an operand.
struct Edit {
  Operand operand = Operand::kQ;
  TokenRange tokens;
  Perturbation perturbation = Perturbation::kHuge12;
};

struct RunRequest {
  std::int64_t tokens = 0;  // length of the call: the first tokens of the inputs
  bool gradients = false;
  std::int64_t d_out_end = 0;  // rows of d_out from here on are zero
  std::vector<Edit> edits;
  unsigned char poison = 0xFF;  // every byte of the outputs before the call
};

// The outputs of one run; all are viewed as (b, s, h, d), lse with d = 1. Absent outputs have no bytes.
class Result {
 public:
  [[nodiscard]] bool has(Output output) const { return !at(output).bytes.empty(); }
  [[nodiscard]] ConstTensorView rows(Output output) const;

 private:
  friend class Session;
  struct Stored {
    std::vector<std::byte> bytes;
    ConstTensorView view;  // data is null: the bytes move with the result
  };
  [[nodiscard]] const Stored& at(Output output) const { return stored_[static_cast<std::size_t>(output)]; }
  std::array<Stored, kOutputs> stored_;
};

class Session {
 public:
  // Copies the inputs, which must fit the problem, and draws a d_out from options.seed. Keeps a reference to
  // `callable`.
  Session(const AttentionCallable& callable, const AttentionProblem& problem, const ConstTensorView& q,
          const ConstTensorView& k, const ConstTensorView& v, const AuditOptions& options);

  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  [[nodiscard]] Result run(const RunRequest& request);

  [[nodiscard]] const AttentionProblem& problem() const { return problem_; }
  [[nodiscard]] std::int64_t runs() const { return runs_; }
  // Operands that some run wrote to, each once.
  [[nodiscard]] const std::vector<Leak>& writes_to_inputs() const { return writes_to_inputs_; }

 private:
  struct Input {
    std::vector<std::byte> bytes;
    TensorView view;  // of `bytes`
  };
  [[nodiscard]] Input edited(Operand operand, const RunRequest& request) const;
  void check_unchanged(const std::array<Input, kOperands>& inputs,
                       const std::array<std::vector<std::byte>, kOperands>& before);

  const AttentionCallable& callable_;
  AttentionProblem problem_;
  bool lse_ = true;
  std::array<Input, kOperands> pristine_;
  std::int64_t runs_ = 0;
  std::vector<Leak> writes_to_inputs_;
};

}  // namespace checkvalve::audit_detail
