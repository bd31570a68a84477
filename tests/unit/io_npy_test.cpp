// io_npy_test.cpp: reading, writing and refusing of .npy files.
#include <fmt/format.h>

#include <numeric>
#include <utility>

#include "io/npy.h"
#include "io_support.h"

namespace checkvalve::io::testing {
namespace {

using ::testing::ElementsAre;

constexpr std::string_view kGoodDict = "{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }";

// A file of version `major`.0 with this header and `data_size` bytes of data: 0, 1, 2, ...
std::string with_header(std::string_view header, std::size_t data_size, char major = 1) {
  std::string file = bytes("\x93NUMPY") + major + '\0';
  const std::size_t size = header.size();
  file += static_cast<char>(size & 0xFF);
  file += static_cast<char>(size >> 8);
  if (major > 1) file += bytes("\0\0");
  file += header;
  for (std::size_t i = 0; i < data_size; ++i) file += static_cast<char>(i);
  return file;
}

void expect_refused(const std::string& file, std::string_view phrase) {
  SCOPED_TRACE(::testing::PrintToString(file.substr(0, 200)));
  expect_error<IoError>([&] { static_cast<void>(NpyFile::parse(as_span(file), "bad.npy")); }, {phrase, "bad.npy: "});
}

// numpy.save of int32 [[1, -2, 3], [4, 5, -6]].
std::string saved_by_numpy() {
  return bytes("\x93NUMPY\x01\0v\0{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3), }") + std::string(58, ' ') +
         bytes("\n\x01\0\0\0\xfe\xff\xff\xff\x03\0\0\0\x04\0\0\0\x05\0\0\0\xfa\xff\xff\xff");
}

TEST(Npy, ReadsWhatNumpyWrote) {
  const std::string file = saved_by_numpy();
  const auto read = NpyFile::parse(as_span(file));
  EXPECT_EQ(to_string(read.tensor()), "int32 (2, 3)");
  const auto* const data = static_cast<const std::int32_t*>(read.tensor().data);
  EXPECT_THAT(std::vector(data, data + 6), ElementsAre(1, -2, 3, 4, 5, -6));
}

TEST(Npy, WritesWhatNumpyWrites) {
  const TemporaryFolder folder;
  const std::int32_t matrix[] = {1, -2, 3, 4, 5, -6};
  write_npy(folder / "m.npy", make_dense(matrix, DType::kInt32, 2, {2, 3}));
  EXPECT_EQ(read_text(folder / "m.npy"), saved_by_numpy());

  const std::uint16_t halves[] = {0x3E00, 0xC000};  // 1.5, -2
  write_npy(folder / "v.npy", make_dense(halves, DType::kFloat16, 1, {2}));
  EXPECT_EQ(read_text(folder / "v.npy"),
            bytes("\x93NUMPY\x01\0v\0{'descr': '<f2', 'fortran_order': False, 'shape': (2,), }") +
                std::string(60, ' ') + bytes("\n\0>\0\xc0"));
}

TEST(Npy, RoundTripOrRefusalOfEveryDType) {
  const TemporaryFolder folder;
  std::vector<double> memory(64);
  std::iota(memory.begin(), memory.end(), -3.25);
  for (const DType dtype : kAllDTypes) {
    SCOPED_TRACE(name_of(dtype));
    const auto path = folder / name_of(dtype);
    const ConstTensorView tensor = make_dense(std::as_const(memory).data(), dtype, 4, {3, 1, 7, 2});
    if (dtype == DType::kBFloat16 || dtype == DType::kE4M3 || dtype == DType::kE5M2 || dtype == DType::kE8M0) {
      expect_error<InvalidArgument>([&] { write_npy(path, tensor); }, {name_of(dtype), ".safetensors"});
      EXPECT_FALSE(fs::exists(path));
      continue;
    }
    write_npy(path, tensor);
    auto opened = NpyFile::open(path);
    const NpyFile file = std::move(opened);
    EXPECT_EQ(to_string(file.tensor()), to_string(tensor));
    EXPECT_EQ(contents(file.tensor()), contents(tensor));
  }
}

TEST(Npy, GathersStridedViewsAndAcceptsNoElements) {
  const TemporaryFolder folder;
  const std::uint8_t memory[] = {0, 1, 2, 3, 4, 5};
  write_npy(folder / "t.npy", {.data = memory, .dtype = DType::kUInt8, .rank = 2, .shape = {3, 2}, .strides = {1, 3}});
  EXPECT_EQ(contents(NpyFile::open(folder / "t.npy").tensor()), bytes("\x00\x03\x01\x04\x02\x05"));
  write_npy(folder / "e.npy", {.dtype = DType::kUInt8, .rank = 2, .shape = {3, 0}});
  const auto empty = NpyFile::open(folder / "e.npy");
  EXPECT_EQ(to_string(empty.tensor()), "uint8 (3, 0)");
  EXPECT_TRUE(empty.tensor());
}

TEST(Npy, AcceptsEveryVersionAndAnySpelling) {
  const std::string_view spellings[] = {
      kGoodDict,
      "{'descr': '|u1', 'fortran_order': False, 'shape': (2,)}",
      "{\"shape\":(2 , ),\"descr\":\"|u1\",\"fortran_order\":False}   \n",
      "  {'fortran_order'\t:\nFalse, 'shape': (2,), 'descr': '|u1'}\n",
  };
  for (const std::string_view spelling : spellings) {
    for (const char major : {'\1', '\2', '\3'}) {
      const std::string file = with_header(spelling, 2, major);
      const auto read = NpyFile::parse(as_span(file));
      EXPECT_EQ(to_string(read.tensor()), "uint8 (2)");
      EXPECT_EQ(contents(read.tensor()), bytes("\x00\x01"));
    }
  }
}

TEST(Npy, CopiesMisalignedData) {
  for (std::size_t pad = 0; pad < 8; ++pad) {
    const std::string file =
        with_header("{'descr': '<f8', 'fortran_order': False, 'shape': (1,)}" + std::string(pad, ' '), 8);
    const auto read = NpyFile::parse(as_span(file));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(read.tensor().data) % 8, 0U);
    EXPECT_EQ(contents(read.tensor()), bytes("\x00\x01\x02\x03\x04\x05\x06\x07"));
  }
}

TEST(Npy, RefusesABadPreamble) {
  expect_refused("\x93NUM", "truncated");
  expect_refused("PK\x03\x04", "not a .npy file");
  expect_refused(with_header(kGoodDict, 2, 4), "version 4.0 (accepted: 1.0, 2.0, 3.0)");
  expect_refused(bytes("\x93NUMPY\x01\x01v\0{}"), "version 1.1");
  expect_refused(bytes("\x93NUMPY\x01\0v\0{}"), "header of 118 bytes, but 2 follow");
  expect_refused(bytes("\x93NUMPY\x02\0\xff\xff\xff\xff{}"), "header of 4294967295 bytes (accepted: up to 65535)");
}

TEST(Npy, RefusesABadHeader) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"", "expected '{' at its byte 0"},
      {"[]", "expected '{'"},
      {"{}", "lacks the key 'descr'"},
      {"{'descr': '|u1', 'fortran_order': False}", "lacks the key 'shape'"},
      {"{'descr': '|u1', 'shape': (2,)}", "lacks the key 'fortran_order'"},
      {"{'descr': '|u1', 'descr': '|u1'}", "has the key 'descr' twice"},
      {"{'descr': '|u1', 'x': 1}", "unknown key \"x\""},
      {"{descr: '|u1'}", "expected a key in quotes"},
      {"{'descr' '|u1'}", "expected ':'"},
      {"{'descr': '|u1' 'shape': (2,)}", "expected ',' or '}'"},
      {"{'descr': '|u1", "expected a closing quote"},
      {"{'descr': '>f4'}", "big-endian data, \">f4\""},
      {"{'descr': '|O'}", "Python objects"},
      {"{'descr': [('x', '<f4')]}", "structured dtype"},
      {"{'descr': '<i8'}", "the dtype \"<i8\" (accepted: <f8, <f4, <f2, <i4, |i1, |u1)"},
      {"{'descr': '|V2'}", "the dtype \"|V2\""},
      {"{'descr': 5}", "expected a dtype in quotes"},
      {"{'fortran_order': True}", "fortran_order=True (accepted: False); save numpy.ascontiguousarray"},
      {"{'fortran_order': 0}", "expected True or False"},
      {"{'shape': ()}", "rank 0"},
      {"{'shape': (1,1,1,1,2)}", "rank above 4"},
      {"{'shape': (2)}", "expected ',' in a shape of one dimension"},
      {"{'shape': 2}", "expected '('"},
      {"{'shape': [2]}", "expected '('"},
      {"{'shape': (-2,)}", "negative dimension"},
      {"{'shape': (2.0,)}", "expected ',' or ')'"},
      {"{'shape': (,)}", "expected an integer"},
      {"{'shape': (9223372036854775808,)}", "above 2^63 - 1"},
      {"{'descr': '|u1', 'fortran_order': False, 'shape': (2,)} x", "expected the end of the header"},
      {"{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", "overflows"},
      {"{'descr': '|u1', 'fortran_order': False, 'shape': (3,)}",
       "has 2 bytes of data, but its shape and dtype need 3"},
      {"{'descr': '|u1', 'fortran_order': False, 'shape': (1,)}", "1 bytes follow the array"},
  };
  for (const auto& [header, phrase] : cases) expect_refused(with_header(header, 2), phrase);
  expect_refused(with_header(std::string(kGoodDict) + '\0', 2), "expected the end of the header");
}

TEST(Npy, EveryTruncationIsRefused) {
  for (const char major : {'\1', '\2'}) {
    const std::string whole = with_header(kGoodDict, 2, major);
    for (std::size_t size = 0; size < whole.size(); ++size) expect_refused(whole.substr(0, size), "truncated");
  }
}

}  // namespace
}  // namespace checkvalve::io::testing
