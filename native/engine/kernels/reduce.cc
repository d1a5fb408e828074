#include "kernels/reduce.h"

namespace smdp {

ReduceFn portable_kernel(DType type, ReduceOp op);
#ifdef SMDP_HAVE_AVX2
ReduceFn avx2_kernel(DType type, ReduceOp op);
#endif

bool is_available(Isa isa) {
  if (isa == Isa::kPortable) {
    return true;
  }
#ifdef SMDP_HAVE_AVX2
  return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("f16c") != 0;
#else
  return false;
#endif
}

Isa best_isa() { return is_available(Isa::kAvx2) ? Isa::kAvx2 : Isa::kPortable; }

ReduceFn reduce_kernel(Isa isa, DType type, ReduceOp op) {
#ifdef SMDP_HAVE_AVX2
  if (isa == Isa::kAvx2) {
    return avx2_kernel(type, op);
  }
#endif
  (void)isa;
  return portable_kernel(type, op);
}

}  // namespace smdp
