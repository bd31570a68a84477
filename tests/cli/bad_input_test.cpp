// bad_input_test.cpp: every misuse ends in one line with option, value and fix, the right exit code, and no file left.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "io/npy.h"
#include "io/safetensors.h"
#include "run_cli.h"

namespace checkvalve::cli_test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct BadInput {
  const char* name;
  std::string arguments;
  std::vector<std::string> phrases;  // all of them are in the message
  int code = 2;
};

void PrintTo(const BadInput& input, std::ostream* stream) { *stream << "checkvalve " << input.arguments; }

ConstTensorView dense(const Tensor& tensor, int rank, std::array<std::int64_t, 4> shape) {
  return make_dense(static_cast<const void*>(tensor.storage.data()), tensor.view.dtype, rank, shape);
}

void write_qkv(const std::string& path, const Tensor& q, const Tensor& k, const Tensor& v,
               const std::map<std::string, std::string>& metadata) {
  const std::vector<io::NamedTensor> tensors{
      {.name = "q", .tensor = q.stored}, {.name = "k", .tensor = k.stored}, {.name = "v", .tensor = v.stored}};
  io::write_safetensors(path, tensors, metadata);
}

// q (1, 16, 4, 32), k and v (1, 16, 2, 32), and a file for each way to be wrong.
void write_fixtures(const TemporaryFolder& folder) {
  const Layout layout = Layout::kBshd;
  const Tensor q = random_tensor(1, DType::kBFloat16, layout, 1, 16, 4, 32);
  const Tensor k = random_tensor(2, DType::kBFloat16, layout, 1, 16, 2, 32);
  const Tensor v = random_tensor(3, DType::kBFloat16, layout, 1, 16, 2, 32);
  write_qkv(folder.path("ok.safetensors"), q, k, v, {{"layout", "bshd"}});
  write_qkv(folder.path("layout.safetensors"), q, k, v, {{"layout", "hsbd"}});
  write_qkv(folder.path("scale.safetensors"), q, k, v, {{"softmax_scale", "one"}});
  write_qkv(folder.path("mixed.safetensors"), q, k, random_tensor(3, DType::kFloat16, layout, 1, 16, 2, 32), {});
  write_qkv(folder.path("heads.safetensors"), q, random_tensor(2, DType::kBFloat16, layout, 1, 16, 3, 32),
            random_tensor(3, DType::kBFloat16, layout, 1, 16, 3, 32), {});
  const std::string whole = read_file(folder.path("ok.safetensors"));
  write_file(folder.path("truncated.safetensors"), whole.substr(0, whole.size() - 100));
  write_file(folder.path("garbage.safetensors"), std::string(64, 'x'));
  write_file(folder.path("empty.safetensors"), "");
  const std::vector<io::NamedTensor> no_q{{.name = "k", .tensor = k.stored}, {.name = "v", .tensor = v.stored}};
  io::write_safetensors(folder.path("no_q.safetensors"), no_q, {});
  ConstTensorView bytes = dense(q, 4, {1, 16, 4, 64});
  bytes.dtype = DType::kInt8;
  const std::vector<io::NamedTensor> int8{
      {.name = "q", .tensor = bytes}, {.name = "k", .tensor = bytes}, {.name = "v", .tensor = bytes}};
  io::write_safetensors(folder.path("int8.safetensors"), int8, {});

  const Tensor q32 = random_tensor(1, DType::kFloat32, layout, 1, 16, 4, 32);
  const Tensor k32 = random_tensor(2, DType::kFloat32, layout, 1, 16, 2, 32);
  io::write_npy(folder.path("q.npy"), q32.stored);
  io::write_npy(folder.path("k.npy"), k32.stored);
  io::write_npy(folder.path("v.npy"), k32.stored);
  io::write_npy(folder.path("rank3.npy"), dense(q32, 3, {16, 4, 32, 0}));
  io::write_npy(folder.path("k64.npy"), dense(k32, 4, {1, 8, 2, 64}));
  io::write_npy(folder.path("k8.npy"), dense(k32, 4, {1, 8, 4, 32}));
  io::write_npy(folder.path("q8.npy"), dense(q32, 4, {1, 8, 8, 32}));
  write_file(folder.path("text.npy"), "not an array");
  write_file(folder.path("d_out.txt"), "0 0 0");
  std::filesystem::create_directory(folder.path("folder"));
}

class BadInputTest : public ::testing::TestWithParam<BadInput> {};

TEST_P(BadInputTest, OneLineTheRightCodeAndNoFileLeft) {
  const BadInput& input = GetParam();
  const TemporaryFolder folder;
  write_fixtures(folder);
  const auto before = folder.listing();
  const Outcome run = run_cli(folder, input.arguments);
  EXPECT_EQ(run.code, input.code);
  EXPECT_EQ(run.out, "");
  EXPECT_THAT(run.err, StartsWith("checkvalve: error: "));
  EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  EXPECT_EQ(run.err.back(), '\n');
  for (const std::string& phrase : input.phrases) {
    EXPECT_THAT(run.err, HasSubstr(phrase));
  }
  EXPECT_EQ(folder.listing(), before);
}

const std::string kOk = "attend --qkv ok.safetensors -o out.safetensors ";
const std::string kNpy = "attend -o out.npy --q q.npy ";
const std::string kAudit = "audit ok.safetensors --no-gradients --html out.html ";

// clang-format off
const std::vector<BadInput> kCommandLine{
    {"NoCommand", "", {"subcommand", "attend, audit, inspect, backends"}},
    {"UnknownCommand", "frobnicate", {"command 'frobnicate' is not known", "demo, attend"}},
    {"UnknownOption", kOk + "--bogus 1", {"--bogus", "accepted by attend", "--recipe"}},
    {"OptionWithoutValue", "attend --qkv", {"--qkv", "see 'checkvalve attend --help'"}},
    {"OptionTwice", kOk + "--recipe bf16 --recipe fp16", {"--recipe"}},
    {"EmptyArgument", kOk + "--layout ''", {"argument 7 is empty"}},
    {"TwoCommands", "backends inspect", {"inspect"}},
    {"BackendsRecipeWithoutSizes", "backends --recipe bf16", {"--recipe", "--sizes"}},
};

const std::vector<BadInput> kAttend{
    {"NoData", "attend -o out.npy", {"no source of data", "--qkv", "--q --k --v"}},
    {"TwoSources", kOk + "--q q.npy", {"more than one source of data"}},
    {"MissingFile", "attend --qkv nowhere.safetensors", {"--qkv 'nowhere.safetensors' does not exist"}},
    {"FolderAsFile", "attend --qkv folder", {"--qkv 'folder' is not a regular file"}},
    {"MissingV", kNpy + "--k k.npy", {"--v is missing"}},
    {"MissingNpyFile", kNpy + "--k nowhere.npy --v v.npy", {"--k 'nowhere.npy' does not exist"}},
    {"UnknownRecipe", kOk + "--recipe fp4", {"--recipe 'fp4'", "int8_token", "mxfp8_own_block"}},
    {"LeakyRecipe", kOk + "--recipe mxfp8", {"--recipe mxfp8", "--allow-leak", "int8_token"}},
    {"LeakyRecipeTensor", kOk + "--recipe fp8_tensor", {"--recipe fp8_tensor", "--allow-leak"}},
    {"UnknownLayout", kOk + "--layout dshb", {"--layout 'dshb'", "bshd, sbhd, bhsd"}},
    {"ScaleIsAWord", kOk + "--scale half", {"--scale 'half'", "above 0"}},
    {"ScaleIsZero", kOk + "--scale 0", {"--scale '0'", "above 0"}},
    {"ScaleIsNegative", kOk + "--scale=-1", {"--scale '-1'", "above 0"}},
    {"ScaleIsInfinite", kOk + "--scale inf", {"--scale 'inf'", "finite"}},
    {"ScaleIsNaN", kOk + "--scale nan", {"--scale 'nan'", "finite"}},
    {"WindowIsZero", kOk + "--window 0", {"--window '0'", "from 1 to"}},
    {"WindowIsNegative", kOk + "--window=-5", {"--window '-5'", "from 1 to"}},
    {"WindowIsAWord", kOk + "--window wide", {"--window 'wide'", "whole number"}},
    {"WindowIsAFraction", kOk + "--window 1.5", {"--window '1.5'", "whole number"}},
    {"WindowOverflows", kOk + "--window 99999999999999999999", {"--window '99999999999999999999'"}},
    {"UnknownBackend", kOk + "--backend abacus", {"--backend 'abacus'", "reference"}},
    {"UnknownOutDType", kOk + "--out-dtype float64", {"--out-dtype 'float64'", "input, float32"}},
    {"MissingGradient", kOk + "--backward nowhere.npy", {"--backward 'nowhere.npy' does not exist"}},
    {"GradientOfWrongShape", kOk + "--backward k.npy", {"--backward 'k.npy'", "(1, 16, 2, 32)", "(1, 16, 4, 32)"}},
    {"GradientOfWrongRank", kOk + "--backward rank3.npy", {"--backward 'rank3.npy'", "four dimensions"}},
    {"GradientInAText", kOk + "--backward d_out.txt", {"--backward 'd_out.txt'", ".npy or a .safetensors"}},
    {"GradientMissingInFile", kOk + "--backward ok.safetensors", {"--backward ok.safetensors: has no tensor", "d_out", "it has"}},
    {"UnknownPrecision", kOk + "--backward-precision fp4", {"--backward-precision 'fp4'", "bf16, hybrid"}},
    {"PrecisionWithoutBackward", kOk + "--backward-precision bf16", {"--backward-precision bf16", "--backward"}},
    {"HybridWithoutEightBits", "attend --q q.npy --k k.npy --v v.npy --recipe fp32 --backward q.npy --backward-precision "
     "hybrid -o out.safetensors", {"hybrid", "fp32"}},
};

const std::vector<BadInput> kOutputs{
    {"UnknownExtension", "attend --qkv ok.safetensors -o out.txt", {"-o 'out.txt'", ".safetensors or .npy"}},
    {"OutputIsAFolder", "attend --qkv ok.safetensors -o folder", {"-o folder: is a directory"}},
    {"OutputInNoFolder", "attend --qkv ok.safetensors -o nowhere/out.safetensors", {"nowhere/out.safetensors", "its folder must exist"}},
    {"OutputCannotBeMade", "attend --qkv ok.safetensors -o /proc/out.safetensors", {"/proc/out.safetensors", "cannot be"}},
    {"OutputIsTheInput", "attend --qkv ok.safetensors -o ./ok.safetensors", {"-o './ok.safetensors' is also an input"}},
    {"OutputIsTheGradient", "attend --q q.npy --k k.npy --v v.npy --backward q.npy -o q.npy", {"is also an input"}},
    {"NpyHoldsOneTensor", "attend --q q.npy --k k.npy --v v.npy --backward q.npy -o out.npy", {"-o 'out.npy'", ".safetensors"}},
    {"NpyHoldsNoBfloat16", "attend --qkv ok.safetensors -o out.npy", {"-o 'out.npy' cannot hold bfloat16", "--out-dtype"}},
    {"ReportExtension", "audit ok.safetensors --html out.pdf", {"--html 'out.pdf'", ".html"}},
    {"ReportIsAFolder", "audit ok.safetensors --html folder", {"--html folder: is a directory"}},
    {"ReportInNoFolder", "audit ok.safetensors --html nowhere/out.html", {"nowhere/out.html", "its folder must exist"}},
};

const std::vector<BadInput> kFiles{
    {"Rank3", "attend -o out.npy --q rank3.npy --k k.npy --v v.npy", {"--q 'rank3.npy'", "four dimensions"}},
    {"NotAnArray", "attend -o out.npy --q text.npy --k k.npy --v v.npy", {"text.npy"}},
    {"HeadDimsDiffer", kNpy + "--k k64.npy --v k64.npy", {"head_dim", "64", "32"}},
    {"KeysAndValuesDiffer", kNpy + "--k k.npy --v k8.npy", {"v", "k"}},
    {"Truncated", "attend --qkv truncated.safetensors -o out.npy", {"truncated.safetensors"}},
    {"Garbage", "attend --qkv garbage.safetensors -o out.npy", {"garbage.safetensors"}},
    {"EmptyFile", "inspect empty.safetensors", {"empty.safetensors"}},
    {"NoTensorQ", "attend --qkv no_q.safetensors", {"--qkv no_q.safetensors: has no tensor", "it has"}},
    {"MixedDTypes", "attend --qkv mixed.safetensors", {"v is float16 but q is bfloat16"}},
    {"IntegerTensors", "attend --qkv int8.safetensors", {"tensor 'q'", "int8", "float32, float16 and bfloat16"}},
    {"HeadsDoNotDivide", "attend --qkv heads.safetensors", {"h_q", "4", "3"}},
    {"LayoutInMetadata", "attend --qkv layout.safetensors", {"metadata 'layout'", "'hsbd'", "bshd, sbhd, bhsd"}},
    {"ScaleInMetadata", "attend --qkv scale.safetensors", {"metadata 'softmax_scale'", "'one'"}},
    {"NpyAsSafetensors", "audit q.npy", {"q.npy"}},
};

const std::vector<BadInput> kAuditing{
    {"NoData", "audit --html out.html", {"no source of data", "FILE or --generate"}},
    {"FileAndGenerate", kAudit + "--generate 1,64,1,1,32", {"more than one source of data"}},
    {"MissingFile", "audit ok.safetensors nowhere.safetensors", {"'nowhere.safetensors' does not exist"}},
    {"ThreeSizes", "audit --generate 1,64,2", {"--generate '1,64,2' has 3 numbers", "b,s,h_q,h_kv,d"}},
    {"SizeIsAWord", "audit --generate 1,many,2,1,32", {"--generate 'many'", "whole number"}},
    {"SizeIsZero", "audit --generate 1,0,2,1,32", {"--generate '0'", "from 1"}},
    {"HeadsDoNotDivide", "audit --generate 1,64,4,3,32", {"h_q = 4", "h_kv = 3"}},
    {"HeadDimTooLarge", "audit --generate 1,64,4,2,257", {"d = 257", "1 to 256"}},
    {"TooManyElements", "audit --generate 16777216,16777216,64,64,256", {"--generate", "smaller"}},
    {"SeedWithoutGenerate", kAudit + "--seed 1", {"--seed 1", "--generate"}},
    {"NegativeSeed", "audit --generate 1,64,1,1,32 --seed=-1", {"--seed '-1'", "from 0"}},
    {"AllAndAName", kAudit + "--recipe all,mxfp8", {"--recipe 'all,mxfp8'", "alone"}},
    {"RecipeTwice", kAudit + "--recipe mxfp8,mxfp8", {"mxfp8 twice"}},
    {"EmptyRecipe", kAudit + "--recipe mxfp8,", {"--recipe ''", "int8_token", "all"}},
    {"UnknownBackend", kAudit + "--backend abacus", {"--backend 'abacus'", "reference"}},
    {"TooManyHeads", kAudit + "--heads 5", {"--heads '5'", "from 1 to 4"}},
    {"SplitGroup", kAudit + "--heads 3", {"--heads 3", "multiple of 2"}},
    {"NoTokens", kAudit + "--tokens 0", {"--tokens '0'", "from 1 to 16"}},
    {"TooManyTokens", kAudit + "--tokens 17", {"--tokens '17'", "from 1 to 16"}},
    {"OneToken", kAudit + "--tokens 1", {"2"}},
    {"CutAtTheEnd", kAudit + "--cuts 3,15", {"--cuts 15", "0 to 14"}},
    {"CutIsAWord", kAudit + "--cuts 3,x", {"--cuts 'x'", "whole number"}},
    {"QueriesAndKeysDiffer", "audit --q q8.npy --k k.npy --v v.npy", {"s_q", "8", "16"}},
    {"DemoWithoutData", "demo --data nowhere --html out.html", {"--data 'nowhere'", "smollm2_layer00"}},
    {"DemoReportIsAFolder", "demo --data '" CHECKVALVE_DATA_DIR "' --html folder", {"--html folder: is a directory"}},
    {"BackendsThreeSizes", "backends --sizes 1,2,3", {"--sizes '1,2,3' has 3 numbers"}},
    {"BackendsDType", "backends --sizes 1,64,2,1,32 --dtype int4", {"--dtype 'int4'", "bfloat16"}},
    {"BackendsDevice", "backends --sizes 1,64,2,1,32 --device tpu", {"--device 'tpu'", "host, cuda"}},
    {"InspectWithoutData", "inspect", {"no source of data"}},
};
// clang-format on

std::string name_of_case(const ::testing::TestParamInfo<BadInput>& test) { return test.param.name; }

INSTANTIATE_TEST_SUITE_P(CommandLine, BadInputTest, ::testing::ValuesIn(kCommandLine), name_of_case);
INSTANTIATE_TEST_SUITE_P(Attend, BadInputTest, ::testing::ValuesIn(kAttend), name_of_case);
INSTANTIATE_TEST_SUITE_P(Outputs, BadInputTest, ::testing::ValuesIn(kOutputs), name_of_case);
INSTANTIATE_TEST_SUITE_P(Files, BadInputTest, ::testing::ValuesIn(kFiles), name_of_case);
INSTANTIATE_TEST_SUITE_P(Auditing, BadInputTest, ::testing::ValuesIn(kAuditing), name_of_case);

}  // namespace
}  // namespace checkvalve::cli_test
