// fuzz_npy.cpp: any bytes either parse to a valid tensor or raise IoError.
#include <cstddef>
#include <cstdint>
#include <span>

#include "check_view.h"
#include "checkvalve/error.h"
#include "io/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto file = checkvalve::io::NpyFile::parse(std::as_bytes(std::span(data, size)));
    checkvalve::fuzz::check_view(file.tensor());
  } catch (const checkvalve::IoError&) {
    // A clear refusal; anything else that is thrown ends the fuzzer.
  }
  return 0;
}
