// api_test.cpp: every misuse of the C++ interface is refused with an exception that names the argument.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "checkvalve/attention.h"
#include "checkvalve/audit.h"
#include "checkvalve/backend.h"
#include "checkvalve/error.h"
#include "support/tensors.h"

namespace checkvalve {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

// A correct call of two sequences of 6 tokens, 2 query heads and 1 key/value head; a misuse changes one thing of it.
struct Call {
  test::Inputs in = test::make_inputs({.b = 2, .h_q = 2, .h_kv = 1, .s_q = 6, .s_kv = 6, .d_qk = 8, .d_v = 4});
  AttentionProblem& problem = in.problem;
  Recipe recipe = recipe_from_name(kDefaultRecipe);
  Options options;
  ConstTensorView q = in.q.view, k = in.k.view, v = in.v.view, d_out = in.d_out.view;
  test::HostTensor out_storage = test::make_attention_tensor(DType::kFloat32, Layout::kBshd, 2, 6, 2, 4);
  test::HostTensor lse_storage = test::make_dense_tensor(DType::kFloat32, {2, 2, 6});
  test::HostTensor dq_storage = test::make_attention_tensor(DType::kFloat32, Layout::kBshd, 2, 6, 2, 8);
  test::HostTensor dk_storage = test::make_attention_tensor(DType::kFloat32, Layout::kBshd, 2, 6, 1, 8);
  test::HostTensor dv_storage = test::make_attention_tensor(DType::kFloat32, Layout::kBshd, 2, 6, 1, 4);
  TensorView out = out_storage.view, lse = lse_storage.view;
  TensorView dq = dq_storage.view, dk = dk_storage.view, dv = dv_storage.view;
  std::int32_t lengths[3] = {0, 6, 12};

  Call() { problem.out_dtype = DType::kFloat32; }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call() = default;

  void run_forward() const { forward(problem, recipe, q, k, v, out, lse, options); }
  void run_backward() const { backward(problem, recipe, q, k, v, out, lse, d_out, dq, dk, dv, options); }
  void run_quantized(const std::function<void(QuantizedQKV&)>& misuse) const {
    const Recipe& own_block = recipe_from_name("mxfp8_own_block");
    HostQuantizedQKV operands = allocate_quantized(problem, own_block);
    quantize(problem, own_block, q, k, v, operands.tensors);
    misuse(operands.tensors);
    forward(problem, own_block, operands.tensors, out, lse, options);
  }
  // Turns the two sequences into one packed tensor of 12 rows.
  void pack() {
    problem.cu_seqlens_q = lengths;
    problem.cu_seqlens_kv = lengths;
    problem.total_q = 12;
    problem.total_kv = 12;
    for (ConstTensorView* view : {&q, &k, &v}) {
      view->shape[0] = 1;
      view->shape[1] = 12;
    }
    out.shape[0] = 1;
    out.shape[1] = 12;
    lse = make_dense(lse.data, lse.dtype, 2, {2, 12});
  }
};

struct Misuse {
  const char* name;
  const char* expected;  // part of the message
  std::function<void(Call&)> act;
};

void PrintTo(const Misuse& misuse, std::ostream* stream) { *stream << misuse.name; }

class Refused : public testing::TestWithParam<Misuse> {};

TEST_P(Refused, NamesTheArgument) {
  Call call;
  try {
    GetParam().act(call);
    FAIL() << "accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find(GetParam().expected), std::string::npos) << error.what();
  }
}

std::function<void(Call&)> forward_after(std::function<void(Call&)> change) {
  return [change = std::move(change)](Call& c) {
    change(c);
    c.run_forward();
  };
}

std::function<void(Call&)> backward_after(std::function<void(Call&)> change) {
  return [change = std::move(change)](Call& c) {
    change(c);
    c.run_backward();
  };
}

const Misuse kProblem[] = {
    {"NegativeBatch", "b is -1; accepted: 0 or more", forward_after([](Call& c) { c.problem.b = -1; })},
    {"NoQueryHeads", "h_q is 0; accepted: 1 or more", forward_after([](Call& c) { c.problem.h_q = 0; })},
    {"NoKeyHeads", "h_kv is 0; accepted: 1 or more", forward_after([](Call& c) { c.problem.h_kv = 0; })},
    {"NegativeQueryLength", "s_q is -1", forward_after([](Call& c) { c.problem.s_q = -1; })},
    {"NegativeKeyLength", "s_kv is -7", forward_after([](Call& c) { c.problem.s_kv = -7; })},
    {"HeadDim0", "d_qk (head_dim of q and k) is 0; accepted: 1 to 256",
     forward_after([](Call& c) { c.problem.d_qk = 0; })},
    {"HeadDim257", "d_v (head_dim of v) is 257; accepted: 1 to 256",
     forward_after([](Call& c) { c.problem.d_v = 257; })},
    {"HeadsNotAMultiple", "h_q is 3 and h_kv is 2", forward_after([](Call& c) {
       c.problem.h_q = 3;
       c.problem.h_kv = 2;
     })},
    {"InputDType", "q, k and v are int8; accepted: float32, bfloat16, float16",
     forward_after([](Call& c) { c.problem.dtype = DType::kInt8; })},
    {"OutputDType", "the output dtype is float16; accepted: bfloat16",
     forward_after([](Call& c) { c.problem.out_dtype = DType::kFloat16; })},
    {"Window", "window_left is -2; accepted: -1", forward_after([](Call& c) { c.problem.window_left = -2; })},
    {"ScaleZero", "softmax_scale is 0", forward_after([](Call& c) { c.problem.softmax_scale = 0.0F; })},
    {"ScaleNegative", "softmax_scale is -1", forward_after([](Call& c) { c.problem.softmax_scale = -1.0F; })},
    {"ScaleNaN", "softmax_scale is nan", forward_after([](Call& c) { c.problem.softmax_scale = kNaN; })},
    {"ScaleInf", "softmax_scale is inf", forward_after([](Call& c) { c.problem.softmax_scale = kInf; })},
    {"OneOfTwoCuSeqlens", "only one of cu_seqlens_q and cu_seqlens_kv",
     forward_after([](Call& c) { c.problem.cu_seqlens_q = c.lengths; })},
    {"TotalWithoutCuSeqlens", "total_q or total_kv is given without cu_seqlens",
     forward_after([](Call& c) { c.problem.total_kv = 12; })},
    {"CuSeqlensAndSeqused", "together with cu_seqlens", forward_after([](Call& c) {
       c.pack();
       c.problem.seqused_q = c.lengths;
     })},
    {"CuSeqlensStart", "cu_seqlens_q[0] is 1; it must be 0", forward_after([](Call& c) {
       c.pack();
       c.lengths[0] = 1;
     })},
    {"CuSeqlensDecreases", "cu_seqlens_q decreases from 6 to 3 at entry 2", forward_after([](Call& c) {
       c.pack();
       c.lengths[2] = 3;
     })},
    {"CuSeqlensTooLong", "sequence 1 of cu_seqlens_q has 8 rows but s_q is 6", forward_after([](Call& c) {
       c.pack();
       c.lengths[1] = 4;
     })},
    {"CuSeqlensBeyondTotal", "cu_seqlens_q[2] is 12 but total_q is 11", forward_after([](Call& c) {
       c.pack();
       c.problem.total_q = 11;
     })},
    {"SequsedNegative", "seqused_kv[0] is -1; accepted: 0 to 6", forward_after([](Call& c) {
       c.lengths[0] = -1;
       c.problem.seqused_kv = c.lengths;
     })},
    {"SequsedTooLong", "seqused_q[1] is 7; accepted: 0 to 6", forward_after([](Call& c) {
       c.lengths[1] = 7;
       c.problem.seqused_q = c.lengths;
     })},
    {"TensorScaleNegative", "tensor_scale_q is -1", forward_after([](Call& c) { c.recipe.tensor_scale_q = -1.0F; })},
    {"TensorScaleNaN", "tensor_scale_k is nan", forward_after([](Call& c) { c.recipe.tensor_scale_k = kNaN; })},
    {"TensorScaleInf", "tensor_scale_v is inf", forward_after([](Call& c) { c.recipe.tensor_scale_v = kInf; })},
    {"LeakyRecipe", "recipe 'mxfp8' lets earlier tokens see later ones",
     forward_after([](Call& c) { c.recipe = recipe_from_name("mxfp8"); })},
    {"LeakyTensorRecipe", "pass allow_leak", forward_after([](Call& c) { c.recipe = recipe_from_name("fp8_tensor"); })},
    {"TwoPassOfAnotherRecipe", "own_block_two_pass is set for recipe 'mxfp8_token'", forward_after([](Call& c) {
       c.recipe = recipe_from_name("mxfp8_token");
       c.options.own_block_two_pass = true;
     })},
    {"UnknownBackend",
     "backend 'warp' is not known (accepted: ", forward_after([](Call& c) { c.options.backend = "warp"; })},
};

const Misuse kTensors[] = {
    {"QueryShape", "q is bfloat16 (2, 5, 2, 8); the problem needs bfloat16 (2, 6, 2, 8)",
     forward_after([](Call& c) { c.q.shape[1] = 5; })},
    {"QueryRank", "q is bfloat16 (2, 6, 2); the problem needs", forward_after([](Call& c) { c.q.rank = 3; })},
    {"KeyHeads", "k is bfloat16 (2, 6, 2, 8); the problem needs", forward_after([](Call& c) { c.k.shape[2] = 2; })},
    {"ValueHeadDim", "v is bfloat16 (2, 6, 1, 8); the problem needs", forward_after([](Call& c) { c.v.shape[3] = 8; })},
    {"KeyDType", "k is float16; accepted here: bfloat16", forward_after([](Call& c) { c.k.dtype = DType::kFloat16; })},
    {"KeyDevice", "k is in host memory but q is in device memory",
     forward_after([](Call& c) { c.q.device = Device::kCuda; })},
    {"QueryMissing", "q is missing: its data pointer is null", forward_after([](Call& c) { c.q.data = nullptr; })},
    {"OutMissing", "out is missing", forward_after([](Call& c) { c.out.data = nullptr; })},
    {"OutShape", "out is float32 (2, 6, 2, 5); the problem needs", forward_after([](Call& c) { c.out.shape[3] = 5; })},
    {"OutDType", "out is bfloat16; accepted here: float32",
     forward_after([](Call& c) { c.out.dtype = DType::kBFloat16; })},
    {"LseShape", "lse is float32 (2, 6, 2); the problem needs float32 (2, 2, 6)", forward_after([](Call& c) {
       c.lse.shape = {2, 6, 2};
     })},
    {"LseDType", "lse is float64; accepted here: float32",
     forward_after([](Call& c) { c.lse.dtype = DType::kFloat64; })},
    {"PackedLseShape", "lse is float32 (2, 2, 6); the problem needs float32 (2, 12)", forward_after([](Call& c) {
       c.pack();
       c.lse = c.lse_storage.view;
     })},
    {"OutInSixteenBits", "out is bfloat16; backward takes delta from a float32 output",
     backward_after([](Call& c) { c.out.dtype = DType::kBFloat16; })},
    {"LseMissing", "lse", backward_after([](Call& c) { c.lse = {}; })},
    {"GradientDType", "d_out is float16; accepted: bfloat16",
     backward_after([](Call& c) { c.d_out.dtype = DType::kFloat16; })},
    {"GradientShape", "d_out is bfloat16 (2, 6, 1, 4)", backward_after([](Call& c) { c.d_out.shape[2] = 1; })},
    {"DqShape", "dq is float32 (2, 6, 1, 8)", backward_after([](Call& c) { c.dq.shape[2] = 1; })},
    {"DkHeads", "dk is float32 (2, 6, 2, 8)", backward_after([](Call& c) { c.dk.shape[2] = 2; })},
    {"DvDType", "dv is bfloat16; accepted here: float32",
     backward_after([](Call& c) { c.dv.dtype = DType::kBFloat16; })},
    {"HybridOfAHighPrecisionRecipe", "backward precision 'hybrid' needs 8-bit operands, which recipe 'bf16'",
     backward_after([](Call& c) {
       c.recipe = recipe_from_name("bf16");
       c.options.backward = BackwardPrecision::kHybrid;
     })},
    {"QuantizedAbsent", "quantized operand v_shared is absent",
     [](Call& c) { c.run_quantized([](QuantizedQKV& t) { t.v_shared = {}; }); }},
    {"QuantizedMissing", "quantized operand k_scale is missing",
     [](Call& c) { c.run_quantized([](QuantizedQKV& t) { t.k_scale.data = nullptr; }); }},
    {"QuantizedDType", "quantized operand k is int8",
     [](Call& c) { c.run_quantized([](QuantizedQKV& t) { t.k.dtype = DType::kInt8; }); }},
    {"QuantizedShape", "quantized operand q_scale is e8m0",
     [](Call& c) { c.run_quantized([](QuantizedQKV& t) { t.q_scale.shape[3] = 7; }); }},
    {"QuantizedStrides", "needs a dense",
     [](Call& c) { c.run_quantized([](QuantizedQKV& t) { t.q.strides[2] = 9; }); }},
    {"MergeDType", "merge_partials: out1 is bfloat16",
     [](Call& c) {
       TensorView out1 = c.out;
       out1.dtype = DType::kBFloat16;
       merge_partials(out1, c.lse, c.out, c.lse, c.out, c.lse);
     }},
    {"MergeShape", "merge_partials: lse is float32 (2, 6, 2) but out is",
     [](Call& c) {
       c.lse.shape = {2, 6, 2};
       merge_partials(c.out, c.lse, c.out, c.lse, c.out, c.lse);
     }},
    {"ExactOutDType", "out is float32; accepted here: float64",
     [](Call& c) { exact_forward(c.problem, c.q, c.k, c.v, c.out, c.lse); }},
    {"ExactGradientDType", "dq is float32; accepted here: float64",
     [](Call& c) { exact_backward(c.problem, c.q, c.k, c.v, c.d_out, c.dq, c.dk, c.dv); }},
    {"ProblemRank", "k is bfloat16 (2, 6, 1); accepted: rank 4",
     [](Call& c) {
       c.k.rank = 3;
       (void)problem_of(c.q, c.k, c.v);
     }},
    {"ProblemDType", "v is float16 but q is bfloat16",
     [](Call& c) {
       c.v.dtype = DType::kFloat16;
       (void)problem_of(c.q, c.k, c.v);
     }},
    {"ProblemBatch", "k has batch size 1 but q has 2",
     [](Call& c) {
       c.k.shape[0] = 1;
       (void)problem_of(c.q, c.k, c.v);
     }},
    {"ProblemHeadDim", "k has head_dim 7 but q has 8",
     [](Call& c) {
       c.k.shape[3] = 7;
       (void)problem_of(c.q, c.k, c.v);
     }},
    {"ProblemLength", "s and h must be equal",
     [](Call& c) {
       c.v.shape[1] = 5;
       (void)problem_of(c.q, c.k, c.v);
     }},
};

const Misuse kNames[] = {
    {"Recipe", "recipe 'fp4' is not known (accepted: ", [](Call&) { (void)recipe_from_name("fp4"); }},
    {"Layout", "layout 'bsdh' is not known (accepted: bshd, sbhd, bhsd)",
     [](Call&) { (void)layout_from_name("bsdh"); }},
    {"Rank", "rank 5 is not accepted (accepted: 1 to 4)",
     [](Call&) {
       (void)make_dense(static_cast<void*>(nullptr), DType::kFloat32, 5, {1, 1, 1, 1});
     }},
};

std::function<void(Call&)> audit_after(const std::function<void(Call&, AuditOptions&)>& change) {
  return [change](Call& c) {
    AuditOptions options;
    change(c, options);
    (void)audit(recipe_callable(c.recipe), c.problem, c.q, c.k, c.v, options);
  };
}

const Misuse kAudit[] = {
    {"EmptyCallable", "the callable is empty", [](Call& c) { (void)audit({}, c.problem, c.q, c.k, c.v); }},
    {"NotCausal", "the problem is not causal", audit_after([](Call& c, AuditOptions&) { c.problem.causal = false; })},
    {"Lengths", "s_q is 5 and s_kv is 6", audit_after([](Call& c, AuditOptions&) { c.problem.s_q = 5; })},
    {"OneToken", "an audit needs at least 1 sequence of 2 tokens", audit_after([](Call& c, AuditOptions&) {
       c.problem.s_q = 1;
       c.problem.s_kv = 1;
     })},
    {"Padded", "the problem has packed or padded sequences",
     audit_after([](Call& c, AuditOptions&) { c.problem.seqused_q = c.lengths; })},
    {"CutAtTheEnd", "cut 5 leaves no later token",
     audit_after([](Call&, AuditOptions& options) { options.cuts = {5}; })},
    {"CutNegative", "cut -1", audit_after([](Call&, AuditOptions& options) { options.cuts = {-1}; })},
    {"Bins", "influence_bins is -1", audit_after([](Call&, AuditOptions& options) { options.influence_bins = -1; })},
};

std::string name_of_case(const testing::TestParamInfo<Misuse>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Problem, Refused, testing::ValuesIn(kProblem), name_of_case);
INSTANTIATE_TEST_SUITE_P(Tensors, Refused, testing::ValuesIn(kTensors), name_of_case);
INSTANTIATE_TEST_SUITE_P(Names, Refused, testing::ValuesIn(kNames), name_of_case);
INSTANTIATE_TEST_SUITE_P(Audit, Refused, testing::ValuesIn(kAudit), name_of_case);

TEST(Api, TheUnchangedCallIsAccepted) {
  Call call;
  EXPECT_NO_THROW(call.run_forward());
  EXPECT_NO_THROW(call.run_backward());
  EXPECT_NO_THROW(call.run_quantized([](QuantizedQKV&) {}));
  call.pack();
  EXPECT_NO_THROW(call.run_forward());
}

// A refused call has done nothing: its outputs keep every byte.
TEST(Api, ARefusedCallWritesNothing) {
  Call call;
  call.out_storage.poison();
  call.lse_storage.poison();
  call.v.shape[1] = 5;
  EXPECT_THROW(call.run_forward(), InvalidArgument);
  for (const test::HostTensor* t : {&call.out_storage, &call.lse_storage}) {
    for (const std::byte byte : t->storage) {
      ASSERT_EQ(byte, std::byte{0xFF});
    }
  }
}

TEST(Api, AForcedBackendThatCannotServeListsItsReasons) {
  Call call;
  call.options.backend = "reference";
  for (ConstTensorView* view : {&call.q, &call.k, &call.v}) view->device = Device::kCuda;
  call.out.device = Device::kCuda;
  call.lse.device = Device::kCuda;
  try {
    call.run_forward();
    FAIL() << "accepted";
  } catch (const Unsupported& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("backend 'reference' cannot: it is forced"), std::string::npos) << message;
    EXPECT_NE(message.find("; reference: "), std::string::npos) << message;
  }
}

TEST(Api, TheReportNamesTheBackendAndTheRecipe) {
  Call call;
  call.options.allow_leak = true;
  const Report safe = forward(call.problem, call.recipe, call.q, call.k, call.v, call.out, call.lse, call.options);
  EXPECT_EQ(safe.recipe_used, kDefaultRecipe);
  EXPECT_FALSE(safe.leaks);
  EXPECT_FALSE(safe.backend_used.empty());
  const Recipe& leaky = recipe_from_name("mxfp8");
  EXPECT_TRUE(forward(call.problem, leaky, call.q, call.k, call.v, call.out, call.lse, call.options).leaks);
}

}  // namespace
}  // namespace checkvalve
