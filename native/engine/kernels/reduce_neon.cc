// The same kernels, with the halves converted by the processor. Every 64-bit Arm has these instructions, so
// for what else there is the compiler's own vectors are NEON already.
#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>

namespace {

float16x8_t halves_at(const uint16_t* from) { return vreinterpretq_f16_u16(vld1q_u16(from)); }

void half_to_float(const uint16_t* from, float* to, size_t n) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const float16x8_t halves = halves_at(from + i);
    vst1q_f32(to + i, vcvt_f32_f16(vget_low_f16(halves)));
    vst1q_f32(to + i + 4, vcvt_high_f32_f16(halves));
  }
  for (; i < n; ++i) {
    to[i] = static_cast<float>(__builtin_bit_cast(__fp16, from[i]));
  }
}

void float_to_half(const float* from, uint16_t* to, size_t n) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const float16x4_t low = vcvt_f16_f32(vld1q_f32(from + i));
    vst1q_u16(to + i, vreinterpretq_u16_f16(vcvt_high_f16_f32(low, vld1q_f32(from + i + 4))));
  }
  for (; i < n; ++i) {
    to[i] = __builtin_bit_cast(uint16_t, static_cast<__fp16>(from[i]));
  }
}

}  // namespace

#include "kernels/reduce_impl.h"

namespace smdp {

ReduceFn neon_kernel(DType type, ReduceOp op) { return kernel_for(type, op); }
Conversion neon_conversion(DType type) { return conversion_for(type); }

}  // namespace smdp
