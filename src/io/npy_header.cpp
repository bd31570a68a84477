// npy_header.cpp: strict parser of the Python dict in a .npy header.
#include "io/npy_header.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "checkvalve/error.h"
#include "io/text.h"

namespace checkvalve::io {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kMagic = "\x93NUMPY";
// Only the field list of a structured dtype, which is refused anyway, needs more.
constexpr std::size_t kMaxHeader = 65535;

constexpr std::array<std::pair<std::string_view, DType>, 6> kDTypes{{
    {"<f8", DType::kFloat64},
    {"<f4", DType::kFloat32},
    {"<f2", DType::kFloat16},
    {"<i4", DType::kInt32},
    {"|i1", DType::kInt8},
    {"|u1", DType::kUInt8},
}};

// Reads {'descr': STRING, 'fortran_order': BOOL, 'shape': TUPLE} with the keys in any order, and nothing else.
class DictParser {
 public:
  DictParser(std::string_view text, std::string_view origin) : text_(text), origin_(origin) {}

  NpyHeader parse() {
    NpyHeader header;
    expect('{');
    std::vector<std::string_view> keys;
    while (!accept('}')) {
      const std::string_view key = string("a key in quotes");
      if (std::ranges::find(keys, key) != keys.end()) bad(fmt::format("has the key '{}' twice", key));
      expect(':');
      if (key == "descr") {
        header.dtype = dtype();
      } else if (key == "fortran_order") {
        refuse_fortran_order();
      } else if (key == "shape") {
        header.shape = shape();
      } else {
        bad(fmt::format("has the unknown key {} (accepted: descr, fortran_order, shape)", quote(key)));
      }
      keys.push_back(key);
      if (!accept(',') && peek() != '}') expected("',' or '}'");
    }
    if (peek() != '\0' || at_ != text_.size()) expected("the end of the header");
    for (const std::string_view required : {"descr"sv, "fortran_order"sv, "shape"sv}) {
      if (std::ranges::find(keys, required) == keys.end()) bad(fmt::format("lacks the key '{}'", required));
    }
    return header;
  }

 private:
  [[noreturn]] void bad(std::string_view what) const { fail(origin_, fmt::format("the header {}", what)); }

  [[noreturn]] void expected(std::string_view what) const {
    bad(fmt::format("is not the dict that numpy writes: expected {} at its byte {}", what, at_));
  }

  // The next character that is not white space, '\0' at the end.
  char peek() {
    while (at_ < text_.size() && " \t\r\n"sv.find(text_[at_]) != std::string_view::npos) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  bool accept(char wanted) {
    if (peek() != wanted) return false;
    ++at_;
    return true;
  }

  void expect(char wanted) {
    if (!accept(wanted)) expected(fmt::format("'{}'", wanted));
  }

  bool accept_word(std::string_view word) {
    peek();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  // Escapes do not occur in the accepted keys and values, so a backslash is an ordinary character here.
  std::string_view string(std::string_view what) {
    const char quote = peek();
    if (quote != '\'' && quote != '"') expected(what);
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) expected("a closing quote");
    const std::string_view value = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return value;
  }

  DType dtype() {
    constexpr std::string_view kAccepted = "(accepted: <f8, <f4, <f2, <i4, |i1, |u1)";
    if (peek() == '[') bad(fmt::format("describes a structured dtype {}; save one field", kAccepted));
    const std::string_view descr = string("a dtype in quotes");
    const auto* const known = std::ranges::find(kDTypes, descr, &decltype(kDTypes)::value_type::first);
    if (known != kDTypes.end()) return known->second;
    if (descr.starts_with('>')) {
      bad(fmt::format("describes big-endian data, {} {}; save x.astype(x.dtype.newbyteorder('<'))", quote(descr),
                      kAccepted));
    }
    if (descr.starts_with("|O")) {
      bad(fmt::format("describes Python objects, {} {}; save an array of numbers", quote(descr), kAccepted));
    }
    bad(fmt::format("describes the dtype {} {}; convert it with astype", quote(descr), kAccepted));
  }

  void refuse_fortran_order() {
    if (accept_word("False")) return;
    if (accept_word("True")) {
      bad("says fortran_order=True (accepted: False); save numpy.ascontiguousarray(x)");
    }
    expected("True or False");
  }

  std::vector<std::int64_t> shape() {
    std::vector<std::int64_t> dimensions;
    expect('(');
    bool comma = true;
    while (!accept(')')) {
      if (!comma) expected("',' or ')'");
      if (dimensions.size() == static_cast<std::size_t>(kMaxRank)) {
        bad(fmt::format("gives a rank above {} (accepted: 1 to {}); reshape the array", kMaxRank, kMaxRank));
      }
      dimensions.push_back(dimension());
      comma = accept(',');
    }
    if (dimensions.empty()) {
      bad(fmt::format("gives rank 0, a single number (accepted: 1 to {}); reshape it to (1,)", kMaxRank));
    }
    // To Python, (3) is the number 3.
    if (dimensions.size() == 1 && !comma) expected("',' in a shape of one dimension");
    return dimensions;
  }

  std::int64_t dimension() {
    if (peek() == '-') bad("gives a negative dimension in its shape (accepted: integers from 0 to 2^63 - 1)");
    std::int64_t value = 0;
    const char* const begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (error == std::errc::result_out_of_range) bad("gives a dimension above 2^63 - 1 in its shape");
    if (error != std::errc()) expected("an integer");
    at_ += static_cast<std::size_t>(end - begin);
    return value;
  }

  std::string_view text_;
  std::string_view origin_;
  std::size_t at_ = 0;
};

}  // namespace

NpyHeader read_npy_header(std::span<const std::byte> file, std::string_view origin) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (!text.starts_with(kMagic)) {
    const bool cut = kMagic.starts_with(text);
    fail(origin, cut ? "is shorter than the first word of a .npy file; the file is truncated"
                     : "does not begin with \\x93NUMPY; this is not a .npy file");
  }
  const auto byte = [&](std::size_t at) {
    if (at >= file.size()) fail(origin, "ends inside the .npy preamble; the file is truncated");
    return std::to_integer<std::size_t>(file[at]);
  };
  const std::size_t major = byte(6);
  const std::size_t minor = byte(7);
  if (major < 1 || major > 3 || minor != 0) {
    fail(origin, fmt::format("is a .npy file of version {}.{} (accepted: 1.0, 2.0, 3.0); save it again", major, minor));
  }
  std::size_t size = byte(8) | byte(9) << 8;
  if (major > 1) size |= byte(10) << 16 | byte(11) << 24;
  const std::size_t begin = major > 1 ? 12 : 10;
  if (size > kMaxHeader) {
    fail(origin, fmt::format("declares a header of {} bytes (accepted: up to {})", size, kMaxHeader));
  }
  if (size > file.size() - begin) {
    fail(origin,
         fmt::format("declares a header of {} bytes, but {} follow; the file is truncated", size, file.size() - begin));
  }
  NpyHeader header = DictParser(text.substr(begin, size), origin).parse();
  header.data_offset = begin + size;
  return header;
}

std::string npy_header(const ConstTensorView& view) {
  const auto* const known = std::ranges::find(kDTypes, view.dtype, &decltype(kDTypes)::value_type::second);
  if (known == kDTypes.end()) {
    throw InvalidArgument(
        fmt::format("dtype {} does not exist in .npy files (accepted: float64, float32, float16, int32, int8, uint8); "
                    "convert it to float32 or write a .safetensors file",
                    name_of(view.dtype)));
  }
  const std::span<const std::int64_t> shape(view.shape.data(), static_cast<std::size_t>(view.rank));
  std::string dict = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", known->first,
                                 fmt::join(shape, ", "), view.rank == 1 ? "," : "");
  constexpr std::size_t kPreamble = 10;
  constexpr std::size_t kAlignment = 64;
  const std::size_t size = (kPreamble + dict.size() + 1 + kAlignment - 1) / kAlignment * kAlignment - kPreamble;
  dict.resize(size - 1, ' ');
  return fmt::format("{}\x01{}{}{}{}\n", kMagic, '\0', static_cast<char>(size & 0xFF), static_cast<char>(size >> 8),
                     dict);
}

}  // namespace checkvalve::io
