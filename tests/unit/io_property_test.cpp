// io_property_test.cpp: any tensors, written and read back, are the same tensors.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <utility>

#include "io/npy.h"
#include "io/safetensors.h"
#include "io_support.h"

namespace checkvalve::io::testing {
namespace {

// A random strided view into `memory`, in an order of dimensions and with strides that need not be dense.
ConstTensorView random_view(const std::vector<double>& memory) {
  ConstTensorView view{.data = memory.data()};
  view.dtype = *rc::gen::elementOf(std::vector<DType>(std::begin(kAllDTypes), std::end(kAllDTypes)));
  view.rank = *rc::gen::inRange(1, kMaxRank + 1);
  for (std::size_t i = 0; i < static_cast<std::size_t>(view.rank); ++i) {
    view.shape[i] = *rc::gen::inRange(0, 5);
    view.strides[i] = *rc::gen::inRange(0, 40);
  }
  return view;
}

// Element by element in row-major order, by division rather than by nested loops as the writer does it.
std::string gathered(const ConstTensorView& view) {
  std::string result;
  const std::size_t element = size_of(view.dtype);
  for (std::int64_t n = 0; n < view.numel(); ++n) {
    std::int64_t rest = n;
    std::int64_t offset = 0;
    for (auto i = static_cast<std::size_t>(view.rank); i-- > 0;) {
      offset += rest % view.shape[i] * view.strides[i];
      rest /= view.shape[i];
    }
    result.append(static_cast<const char*>(view.data) + static_cast<std::size_t>(offset) * element, element);
  }
  return result;
}

std::vector<double> distinct_bytes() {
  std::vector<double> memory(512);
  auto* const bytes_of_memory = reinterpret_cast<unsigned char*>(memory.data());
  for (std::size_t i = 0; i < memory.size() * sizeof(double); ++i) {
    bytes_of_memory[i] = static_cast<unsigned char>(i * 167 + i / 256);
  }
  return memory;
}

RC_GTEST_PROP(IoProperty, SafetensorsRoundTrip, ()) {
  const TemporaryFolder folder;
  const std::vector<double> memory = distinct_bytes();
  std::vector<NamedTensor> tensors;
  const int count = *rc::gen::inRange(0, 6);
  for (int i = 0; i < count; ++i) tensors.push_back({fmt::format("t\"{}\u00e9\n", i), random_view(memory)});
  write_safetensors(folder / "s", tensors);

  const auto file = SafetensorsFile::open(folder / "s");
  RC_ASSERT(file.tensors().size() == tensors.size());
  for (const auto& [name, tensor] : tensors) {
    const ConstTensorView read = file.find(name);
    RC_ASSERT(to_string(read) == to_string(tensor));
    RC_ASSERT(contents(read) == gathered(tensor));
    RC_ASSERT(reinterpret_cast<std::uintptr_t>(read.data) % size_of(read.dtype) == 0U);
  }
}

RC_GTEST_PROP(IoProperty, NpyRoundTrip, ()) {
  const TemporaryFolder folder;
  const std::vector<double> memory = distinct_bytes();
  ConstTensorView tensor = random_view(memory);
  tensor.dtype =
      *rc::gen::element(DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kInt8, DType::kUInt8, DType::kInt32);
  write_npy(folder / "x", tensor);
  const auto file = NpyFile::open(folder / "x");
  RC_ASSERT(to_string(file.tensor()) == to_string(tensor));
  RC_ASSERT(contents(file.tensor()) == gathered(tensor));
}

}  // namespace
}  // namespace checkvalve::io::testing
