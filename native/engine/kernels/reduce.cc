#include "kernels/reduce.h"

#include <algorithm>

#include "kernels/copy.h"

namespace smdp {

ReduceFn portable_kernel(DType type, ReduceOp op);
Conversion portable_conversion(DType type);
#ifdef SMDP_HAVE_X86_KERNELS
ReduceFn avx2_kernel(DType type, ReduceOp op);
ReduceFn avx512_kernel(DType type, ReduceOp op);
Conversion avx2_conversion(DType type);
Conversion avx512_conversion(DType type);
#endif
#ifdef SMDP_HAVE_ARM_KERNELS
ReduceFn neon_kernel(DType type, ReduceOp op);
Conversion neon_conversion(DType type);
#endif

namespace {

struct Built {
  Isa isa;
  KernelSet kernels;
};

// The fastest first.
constexpr std::array kBuilt = {
#ifdef SMDP_HAVE_X86_KERNELS
    Built{Isa::kAvx512, {avx512_kernel, avx512_conversion, copy, copy_streaming}},
    Built{Isa::kAvx2, {avx2_kernel, avx2_conversion, copy, copy_streaming}},
#endif
#ifdef SMDP_HAVE_ARM_KERNELS
    Built{Isa::kNeon, {neon_kernel, neon_conversion, copy, copy_streaming}},
#endif
    Built{Isa::kPortable, {portable_kernel, portable_conversion, copy, copy_streaming}},
};

const Built* built(Isa isa) {
  const auto* const found = std::ranges::find(kBuilt, isa, &Built::isa);
  return found == kBuilt.end() ? nullptr : found;
}

bool processor_has(Isa isa) {
#ifdef SMDP_HAVE_X86_KERNELS
  const bool f16c = __builtin_cpu_supports("f16c") != 0;
  if (isa == Isa::kAvx2) {
    return f16c && __builtin_cpu_supports("avx2") != 0;
  }
  if (isa == Isa::kAvx512) {
    return f16c && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
           __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
  }
#endif
  return isa == Isa::kPortable || isa == Isa::kNeon;
}

}  // namespace

bool is_available(Isa isa) { return built(isa) != nullptr && processor_has(isa); }

Isa best_isa() { return std::ranges::find_if(kBuilt, is_available, &Built::isa)->isa; }

std::string_view name_of(Isa isa) {
  switch (isa) {
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kNeon:
      return "neon";
    case Isa::kPortable:
      break;
  }
  return "portable";
}

const KernelSet& kernels(Isa isa) { return built(isa)->kernels; }

}  // namespace smdp
