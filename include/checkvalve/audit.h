// audit.h: does any attention callable let a token see a later one? Perturb, run, compare bit for bit.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkvalve/attention.h"
#include "checkvalve/problem.h"
#include "checkvalve/recipe.h"
#include "checkvalve/tensor.h"

namespace checkvalve {

// One run that the audit asks for. All tensors are dense (b, s, h, d) views of host memory; the callable must not write
// to q, k, v, d_out and must fill the outputs.
struct AuditRun {
  AttentionProblem problem;  // dense; s_q = s_kv; shorter than the full length in a prefix run
  ConstTensorView q, k, v;   // problem.dtype
  ConstTensorView d_out;     // problem.dtype; absent unless gradients are wanted
  TensorView out;            // problem.out_dtype
  TensorView lse;            // float32 (b, h_q, s_q); absent if AuditOptions::lse is false
  TensorView dq, dk, dv;     // problem.out_dtype; absent unless gradients are wanted
};
using AttentionCallable = std::function<void(const AuditRun&)>;

struct AuditOptions {
  bool lse = true;        // the callable returns lse
  bool gradients = true;  // the callable returns dq, dk, dv
  bool prefix = true;     // also require out[:t] of the whole call = out of the call on t tokens
  // Also put NaN and inf into other tokens. Kernels that multiply a masked probability by V (0 * NaN) fail these tests
  // even if no finite value can leak.
  bool non_finite = true;
  // Rows t at which other tokens are perturbed; empty: offsets inside, at and across 32- and 128-token boundaries.
  std::vector<std::int64_t> cuts{};
  std::int64_t influence_bins = 32;  // the influence matrix has at most that many bins a side; 0: none
  std::uint64_t seed = 0;            // of generated d_out
  // Called with the share of the work that is done, 0..1; may be empty.
  std::function<void(double)> progress{};
};

// What was done to the other tokens.
enum class Perturbation : std::uint8_t { kHuge12, kHuge20, kTiny, kSign, kNaN, kInf };
// Where they stand, seen from row t: in its 32-token block, in the rest of its 128-token span, or outside the span.
enum class Region : std::uint8_t { kOwnBlock, kOwnSpan, kBeyond };

// "huge12", "huge20", "tiny", "sign", "nan", "inf"
[[nodiscard]] std::string name_of(Perturbation p);
// "own_block", "own_span", "beyond"
[[nodiscard]] std::string name_of(Region r);

// One element that changed although nothing that it may depend on did.
//   property      rows that must not change     perturbed
//   causal        out, lse rows <= cut          q, k, v of tokens > cut
//   gradient      dq, dk, dv rows <= cut        q, k, v of tokens > cut, where d_out is zero
//   key_gradient  dk, dv rows >= cut            q, d_out of tokens < cut
//   prefix        out, lse rows <= cut          nothing: the call ends after token `cut`
// Defects of the callable itself (AuditReport::defects) have the properties
//   inputs         the callable wrote to q, k, v or d_out (`tensor`)
//   written        it left elements of an output as they were before the call
//   deterministic  two runs on the same inputs differ
struct Leak {
  std::string property;
  std::string tensor;   // "out", "lse", "dq", "dk", "dv"
  std::string operand;  // the perturbed one: "q", "k", "v", "d_out"; "q,k,v" if only together; "length" for prefix
  Perturbation perturbation = Perturbation::kHuge12;
  Region region = Region::kOwnBlock;  // the nearest one if several were perturbed together
  std::int64_t cut = 0;
  std::int64_t first_token = 0;  // perturbed tokens: first_token .. last_token
  std::int64_t last_token = 0;
  std::int64_t batch = 0, row = 0, head = 0, element = 0;  // the first differing element, rows first
  double before = 0.0, after = 0.0;
  double relative_change = 0.0;  // largest |change of a row| / |row| of this run (2-norms); inf if not finite
  [[nodiscard]] std::string to_string() const;
};

enum class Verdict : std::uint8_t {
  kClean,         // nothing changed, and the negative control was caught
  kLeak,          // something changed
  kInconclusive,  // nothing changed, but the negative control was not caught either, no cut has later tokens in its own
                  // block, or the callable has defects that make the comparison meaningless
};
[[nodiscard]] std::string name_of(Verdict v);

// The last token of token bin c is perturbed (q, k and v; by 2^20 and by 2^-20), bin by bin.
// changed[r * bins + c]: largest relative change of a row of `out` in row bin r. leaked: the same over the rows before
// the perturbed token only, which must not change: any entry above 0 (only c >= r can be) is a leak, and all other
// influence is allowed. Entries are infinite if a row stopped being finite.
struct InfluenceMatrix {
  std::int64_t bins = 0;
  std::int64_t tokens_per_bin = 0;  // of all bins but the last, which may be shorter
  std::vector<double> changed;
  std::vector<double> leaked;
};

struct AuditReport {
  Verdict verdict = Verdict::kInconclusive;
  std::vector<Leak> leaks;    // in the order found; one per (property, tensor, operand, perturbation, region)
  std::vector<Leak> defects;  // why comparing this callable bit for bit means nothing; the audit ends at the first run
  std::int64_t runs = 0;      // calls of the callable
  std::int64_t comparisons = 0;          // elements compared bit for bit
  double largest_relative_change = 0.0;  // of all leaks
  InfluenceMatrix influence;
  std::string negative_control;  // what the control was and how it was caught, or why not

  [[nodiscard]] bool ok() const { return verdict == Verdict::kClean; }
  // Several lines: verdict and counts, the first leak of each (property, tensor, operand), the negative control.
  [[nodiscard]] std::string to_string() const;
};

// Audits `callable` on q, k, v (any strides, host memory). The problem is dense and causal. The same perturbations are
// run through the built-in leaky recipe (fp8_tensor) on the reference backend as the negative control. Throws
// InvalidArgument for inputs that cannot be audited (fewer than 2 tokens, s_q != s_kv, no causal mask); what the
// callable throws passes through.
[[nodiscard]] AuditReport audit(const AttentionCallable& callable, const AttentionProblem& problem,
                                const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v,
                                const AuditOptions& options = {});

// The callable that runs a built-in recipe on a built-in backend (leaky recipes allowed).
[[nodiscard]] AttentionCallable recipe_callable(const Recipe& recipe, const Options& options = {});

}  // namespace checkvalve
