#include "kernels/reduce.h"

namespace smdp {

ReduceFn portable_kernel(DType type, ReduceOp op);
Conversion portable_conversion(DType type);
#ifdef SMDP_HAVE_X86_KERNELS
ReduceFn avx2_kernel(DType type, ReduceOp op);
ReduceFn avx512_kernel(DType type, ReduceOp op);
Conversion avx2_conversion(DType type);
Conversion avx512_conversion(DType type);
#endif

bool is_available(Isa isa) {
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
  return isa == Isa::kPortable;
}

Isa best_isa() {
  for (const Isa isa : {Isa::kAvx512, Isa::kAvx2}) {
    if (is_available(isa)) {
      return isa;
    }
  }
  return Isa::kPortable;
}

std::string_view name_of(Isa isa) {
  switch (isa) {
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kPortable:
      break;
  }
  return "portable";
}

ReduceFn reduce_kernel(Isa isa, DType type, ReduceOp op) {
#ifdef SMDP_HAVE_X86_KERNELS
  if (isa == Isa::kAvx2) {
    return avx2_kernel(type, op);
  }
  if (isa == Isa::kAvx512) {
    return avx512_kernel(type, op);
  }
#endif
  return portable_kernel(type, op);
}

Conversion conversion(Isa isa, DType type) {
#ifdef SMDP_HAVE_X86_KERNELS
  if (isa == Isa::kAvx2) {
    return avx2_conversion(type);
  }
  if (isa == Isa::kAvx512) {
    return avx512_conversion(type);
  }
#endif
  return portable_conversion(type);
}

}  // namespace smdp
