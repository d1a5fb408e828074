// The same kernels, with fp16 converted by the processor. Every 64-bit Arm has these instructions; for all
// other code the compiler's vectors are NEON already.
#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>

namespace {

using Floats = float32x4_t;

inline Floats half_to_float(const uint16_t* from) {
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from)));
}

inline void float_to_half(Floats values, uint16_t* to) {
  vst1_u16(to, vreinterpret_u16_f16(vcvt_f16_f32(values)));
}

}  // namespace

#include "kernels/reduce_impl.h"

namespace smdp {

ReduceFn neon_kernel(DType type, ReduceOp op) { return kernel_for(type, op); }
Conversion neon_conversion(DType type) { return conversion_for(type); }

}  // namespace smdp
