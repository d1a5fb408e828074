// libFuzzer calls this; SMDP_FUZZ_TARGET is the target that the program was built for.
#include <cstddef>
#include <cstdint>

#include "targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  smdp::fuzzing::SMDP_FUZZ_TARGET(std::as_bytes(std::span(data, bytes)));
  return 0;
}
