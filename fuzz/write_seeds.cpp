// write_seeds.cpp: writes valid small files from which the fuzzers start. Usage: write_seeds safetensors|npy FOLDER
#include <cstdint>
#include <exception>
#include <filesystem>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "io/npy.h"
#include "io/safetensors.h"

namespace {

using checkvalve::DType;
using checkvalve::make_dense;

const std::uint64_t kMemory[8] = {1, 2, 3, 4, 5, 6, 7, 8};

void write_safetensors_seeds(const std::filesystem::path& folder) {
  using checkvalve::io::write_safetensors;
  write_safetensors(folder / "none", {});
  write_safetensors(folder / "metadata", {}, {{"layer", "20"}, {"source", "seed"}});
  std::vector<checkvalve::io::NamedTensor> tensors;
  for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kInt8,
                            DType::kUInt8, DType::kInt32, DType::kE4M3, DType::kE5M2, DType::kE8M0}) {
    tensors.push_back({std::string(name_of(dtype)), make_dense(&kMemory[0], dtype, 3, {1, 3, 2})});
    write_safetensors(folder / name_of(dtype), std::vector{tensors.back()});
  }
  write_safetensors(folder / "all", tensors, {{"layer", "20"}});
}

void write_npy_seeds(const std::filesystem::path& folder) {
  for (const DType dtype :
       {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kInt8, DType::kUInt8, DType::kInt32}) {
    checkvalve::io::write_npy(folder / name_of(dtype), make_dense(&kMemory[0], dtype, 4, {1, 2, 1, 3}));
  }
  checkvalve::io::write_npy(folder / "vector", make_dense(&kMemory[0], DType::kFloat32, 1, {2}));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view format = argc == 3 ? argv[1] : "";
  if (format != "safetensors" && format != "npy") {
    std::cerr << "usage: write_seeds safetensors|npy FOLDER\n";
    return 2;
  }
  try {
    const std::filesystem::path folder = argv[2];
    std::filesystem::create_directories(folder);
    format == "npy" ? write_npy_seeds(folder) : write_safetensors_seeds(folder);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 2;
  }
  return 0;
}
