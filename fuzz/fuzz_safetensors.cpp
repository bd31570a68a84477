// fuzz_safetensors.cpp: any bytes either parse to valid tensors or raise IoError.
#include <cstddef>
#include <cstdint>
#include <span>

#include "check_view.h"
#include "checkvalve/error.h"
#include "io/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto file = checkvalve::io::SafetensorsFile::parse(std::as_bytes(std::span(data, size)));
    for (const auto& [name, tensor] : file.tensors()) {
      checkvalve::fuzz::check_view(file.find(name));
      checkvalve::fuzz::check_view(tensor);
    }
  } catch (const checkvalve::IoError&) {
    // A clear refusal; anything else that is thrown ends the fuzzer.
  }
  return 0;
}
