// io_safetensors_test.cpp: reading, writing and refusing of .safetensors files.
#include <fmt/format.h>

#include <numeric>
#include <utility>

#include "io/safetensors.h"
#include "io_support.h"

namespace checkvalve::io::testing {
namespace {

using ::testing::ElementsAre;

// A file with this header and `data_size` bytes of data: 0, 1, 2, ...
std::string with_header(std::string_view header, std::size_t data_size) {
  const std::uint64_t size = header.size();
  std::string file(sizeof size, '\0');
  std::memcpy(file.data(), &size, sizeof size);
  file += header;
  for (std::size_t i = 0; i < data_size; ++i) file += static_cast<char>(i);
  return file;
}

void expect_refused(const std::string& file, std::initializer_list<std::string_view> phrases) {
  SCOPED_TRACE(::testing::PrintToString(file.substr(0, 200)));
  expect_error<IoError>([&] { static_cast<void>(SafetensorsFile::parse(as_span(file), "bad.safetensors")); }, phrases);
  expect_error<IoError>([&] { static_cast<void>(SafetensorsFile::parse(as_span(file), "bad.safetensors")); },
                        {"bad.safetensors: "});
}

TEST(Safetensors, ReadsWhatTheSafetensorsPackageWrote) {
  const std::string file = bytes(
      "\x90\0\0\0\0\0\0\0{\"__metadata__\":{\"layer\":\"20\"},\"k\":{\"dtype\":\"F32\",\"shape\":[1,2],"
      "\"data_offsets\":[0,8]},\"i\":{\"dtype\":\"I8\",\"shape\":[3],\"data_offsets\":[8,11]}}     "
      "\0\0\xc0?\0\0\0\xc0\xff\x02\x03");
  const auto read = SafetensorsFile::parse(as_span(file));
  ASSERT_EQ(read.tensors().size(), 2U);
  EXPECT_EQ(to_string(read.find("k")), "float32 (1, 2)");
  const auto* const k = static_cast<const float*>(read.find("k").data);
  EXPECT_THAT(std::vector(k, k + 2), ElementsAre(1.5F, -2.0F));
  EXPECT_EQ(to_string(read.find("i")), "int8 (3)");
  EXPECT_EQ(contents(read.find("i")), "\xff\x02\x03");
  EXPECT_EQ(read.metadata(), (Metadata{{"layer", "20"}}));
}

TEST(Safetensors, EveryDTypeSurvivesARoundTrip) {
  const TemporaryFolder folder;
  std::vector<double> memory(64);
  std::iota(memory.begin(), memory.end(), -3.25);
  std::vector<NamedTensor> tensors;
  for (const DType dtype : kAllDTypes) {
    tensors.push_back({std::string(name_of(dtype)), make_dense(std::as_const(memory).data(), dtype, 3, {3, 1, 7})});
  }
  write_safetensors(folder / "all.safetensors", tensors, {{"source", "test"}, {"empty", ""}});

  auto opened = SafetensorsFile::open(folder / "all.safetensors");
  const SafetensorsFile file = std::move(opened);
  EXPECT_EQ(file.tensors().size(), std::size(kAllDTypes));
  for (const auto& [name, tensor] : tensors) {
    const ConstTensorView read = file.find(name);
    EXPECT_EQ(to_string(read), to_string(tensor));
    EXPECT_EQ(contents(read), contents(tensor)) << name;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(read.data) % size_of(read.dtype), 0U) << name;
  }
  EXPECT_EQ(file.metadata(), (Metadata{{"source", "test"}, {"empty", ""}}));
  EXPECT_THAT(folder.names(), ElementsAre("all.safetensors"));
}

TEST(Safetensors, GathersStridedViews) {
  const TemporaryFolder folder;
  std::vector<std::int32_t> memory(24);
  std::iota(memory.begin(), memory.end(), 0);
  const ConstTensorView transposed{
      .data = memory.data(), .dtype = DType::kInt32, .rank = 2, .shape = {3, 2}, .strides = {1, 3}};
  const ConstTensorView expanded{
      .data = memory.data(), .dtype = DType::kInt32, .rank = 3, .shape = {2, 2, 2}, .strides = {4, 0, 1}};
  const ConstTensorView backwards{
      .data = memory.data() + 3, .dtype = DType::kInt32, .rank = 1, .shape = {4}, .strides = {-1}};
  const ConstTensorView sbhd = make_view(std::as_const(memory).data(), DType::kInt32, Layout::kSbhd, 2, 3, 2, 2);
  write_safetensors(folder / "s",
                    std::vector<NamedTensor>{{"t", transposed}, {"e", expanded}, {"r", backwards}, {"sbhd", sbhd}});
  const auto file = SafetensorsFile::open(folder / "s");
  const auto elements = [&](std::string_view name) {
    const ConstTensorView view = file.find(name);
    const auto* const data = static_cast<const std::int32_t*>(view.data);
    return std::vector(data, data + view.numel());
  };
  EXPECT_THAT(elements("t"), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(elements("e"), ElementsAre(0, 1, 0, 1, 4, 5, 4, 5));
  EXPECT_THAT(elements("r"), ElementsAre(3, 2, 1, 0));
  EXPECT_THAT(elements("sbhd"), ElementsAre(0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19,  //
                                            4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23));
}

TEST(Safetensors, AcceptsTensorsAndFilesWithoutElements) {
  const std::string none = with_header("{}", 0);
  EXPECT_TRUE(SafetensorsFile::parse(as_span(none)).tensors().empty());

  const TemporaryFolder folder;
  write_safetensors(folder / "s",
                    std::vector<NamedTensor>{{"none", {.dtype = DType::kBFloat16, .rank = 3, .shape = {2, 0, 5}}}});
  const auto file = SafetensorsFile::open(folder / "s");
  EXPECT_EQ(to_string(file.find("none")), "bfloat16 (2, 0, 5)");
  EXPECT_TRUE(file.find("none"));
}

TEST(Safetensors, CopiesMisalignedTensors) {
  const std::string header =
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}})";
  for (std::size_t pad = 0; pad < 8; ++pad) {
    const std::string file = with_header(header + std::string(pad, ' '), 9);
    const auto read = SafetensorsFile::parse(as_span(file));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(read.find("b").data) % 4, 0U);
    EXPECT_EQ(contents(read.find("b")), bytes("\x01\x02\x03\x04\x05\x06\x07\x08"));
  }
}

TEST(Safetensors, FindListsTheNames) {
  std::string header = "{";
  for (int i = 0; i < 22; ++i) {
    header += fmt::format(R"({}"t{}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", i == 0 ? "" : ",", i);
  }
  const std::string file = with_header(header + "}", 0);
  const auto read = SafetensorsFile::parse(as_span(file), "some.safetensors");
  expect_error<IoError>([&] { static_cast<void>(read.find("q\n")); },
                        {"some.safetensors", R"("q\n")", R"("t0", "t1")", R"("t19" and 2 more)"});
}

TEST(Safetensors, RefusesABadPreamble) {
  expect_refused("abc", {"truncated"});
  expect_refused(bytes("\x02\0\0\0\0\0\0\0{"), {"header of 2 bytes, but 1 follow", "truncated"});
  expect_refused(bytes("\xff\xff\xff\xff\xff\xff\xff\xff{}"), {"header of 18446744073709551615 bytes", "100000000"});
  expect_refused(bytes("\x01\xe1\xf5\x05\0\0\0\0{}"), {"header of 100000001 bytes"});
  expect_refused(with_header("", 0), {"not a JSON object"});
}

TEST(Safetensors, RefusesABadHeader) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {R"([])", "not a JSON object"},
      {R"( {})", "not a JSON object"},
      {R"({"a":)", "not valid JSON (at its byte 6)"},
      {R"({} {})", "not valid JSON"},
      {R"({"a)"
       "\xff"
       R"(":{}})",
       "not valid JSON"},
      {R"({"a":1})", R"(entry "a" is 1)"},
      {R"({"a":null})", R"(entry "a" is null)"},
      {R"({"a":[]})", R"(entry "a" is an array)"},
      {R"({"a":{}})", R"(tensor "a" lacks the key "dtype")"},
      {R"({"a":{"dtype":"U8","data_offsets":[0,2]}})", R"(lacks the key "shape")"},
      {R"({"a":{"dtype":"U8","shape":[2]}})", R"(lacks the key "data_offsets")"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2],"x":0}})", R"(unknown key "x")"},
      {R"({"a":{"dtype":"U8","dtype":"U8","shape":[2],"data_offsets":[0,2]}})", R"(has the key "dtype" twice)"},
      {R"({"a":{"dtype":"I64","shape":[2],"data_offsets":[0,2]}})", R"(dtype "I64" (accepted: F64, F32,)"},
      {R"({"a":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})", R"(dtype "BOOL")"},
      {R"({"a":{"dtype":8,"shape":[2],"data_offsets":[0,2]}})", "8 as its dtype (accepted: a string)"},
      {R"({"a":{"dtype":"U8","shape":"2","data_offsets":[0,2]}})", R"(the string "2" as its shape)"},
      {R"({"a":{"dtype":"U8","shape":{},"data_offsets":[0,2]}})", "an object as its shape"},
      {R"({"a":{"dtype":"U8","shape":[[2]],"data_offsets":[0,2]}})", "an array in its shape"},
      {R"({"a":{"dtype":"U8","shape":[-2],"data_offsets":[0,2]}})", "-2 in its shape"},
      {R"({"a":{"dtype":"U8","shape":[2.0],"data_offsets":[0,2]}})", "2.0 in its shape"},
      {R"({"a":{"dtype":"U8","shape":[true],"data_offsets":[0,2]}})", "true in its shape"},
      {R"({"a":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,2]}})",
       "9223372036854775808 in its shape"},
      {R"({"a":{"dtype":"U8","shape":[],"data_offsets":[0,2]}})", "rank 0"},
      {R"({"a":{"dtype":"U8","shape":[1,1,1,1,2],"data_offsets":[0,2]}})", "rank above 4"},
      {R"({"a":{"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,2]}})", "overflows"},
      {R"({"a":{"dtype":"U8","shape":[0,4294967296,4294967296],"data_offsets":[0,0]}})", "overflows"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0]}})", "has 1 data_offsets"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2,4]}})", "more than two data_offsets"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[-1,1]}})", "-1 in its data_offsets"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,1e30]}})", "1e30 in its data_offsets"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[2,0]}})", "ends before it begins"},
      {R"({"a":{"dtype":"F16","shape":[2],"data_offsets":[0,2]}})", "has 2 bytes, but its shape and dtype need 4"},
      {R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})", "outside the file, which has 2 bytes"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", "leaves a hole after 0"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "1 bytes follow the last tensor"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
       R"(tensor "b" with data_offsets [1, 2] overlaps)"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
       R"(the name "a" appears twice)"},
      {R"({"__metadata__":{},"__metadata__":{}})", R"(the name "__metadata__" appears twice)"},
      {R"({"__metadata__":{"k":1}})", R"(__metadata__ has 1 under "k" (accepted: a string))"},
      {R"({"__metadata__":{"k":{}}})", R"(__metadata__ has an object under "k")"},
      {R"({"__metadata__":{"k":"1","k":"2"}})", R"(__metadata__ has the key "k" twice)"},
      {R"({"__metadata__":[]})", R"(entry "__metadata__" is an array)"},
  };
  for (const auto& [header, phrase] : cases) expect_refused(with_header(header, 2), {phrase});
}

TEST(Safetensors, RefusesDeepNestingWithoutRecursion) {
  std::string header = R"({"a":{"dtype":"U8","data_offsets":[0,0],"shape":)";
  header.append(1'000'000, '[');
  expect_refused(with_header(header, 0), {"an array in its shape"});
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const std::string whole =
      with_header(R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8);
  ASSERT_EQ(SafetensorsFile::parse(as_span(whole)).tensors().size(), 1U);
  for (std::size_t size = 0; size < whole.size(); ++size) expect_refused(whole.substr(0, size), {"truncated"});
}

TEST(Safetensors, WriterRefusesWhatAReaderCouldNotRead) {
  const TemporaryFolder folder;
  const float one = 1;
  const ConstTensorView good = make_dense(&one, DType::kFloat32, 1, {1});
  const auto refuse = [&](std::vector<NamedTensor> tensors, std::string_view phrase, const Metadata& metadata = {}) {
    expect_error<InvalidArgument>([&] { write_safetensors(folder / "out", tensors, metadata); }, {phrase});
  };
  refuse({{"a", good}, {"a", good}}, R"(two tensors are named "a")");
  refuse({{"__metadata__", good}}, "reserved");
  refuse({{"\xff", good}}, "not UTF-8");
  refuse({{"a", good}}, "not UTF-8", {{"k", "\xc3"}});
  refuse({{"a", {}}}, R"(tensor "a" has rank 0)");
  refuse({{"a", {.rank = 1, .shape = {2}, .strides = {1}}}}, "null pointer");
  refuse({{"a", {.data = &one, .rank = 1, .shape = {-1}, .strides = {1}}}}, "no dimension may be negative");
  refuse({{"a", {.data = &one, .rank = 2, .shape = {1LL << 40, 1LL << 40}}}}, "2^63");
  ConstTensorView on_device = good;
  on_device.device = Device::kCuda;
  refuse({{"a", on_device}}, "device memory");
  EXPECT_TRUE(folder.names().empty());
}

}  // namespace
}  // namespace checkvalve::io::testing
