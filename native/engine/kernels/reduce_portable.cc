// The kernels in plain C++, for every processor.
#include <stddef.h>
#include <stdint.h>

namespace {

using Floats = float __attribute__((vector_size(16)));

inline uint32_t bits_from(float value) { return __builtin_bit_cast(uint32_t, value); }
inline float float_from(uint32_t bits) { return __builtin_bit_cast(float, bits); }

inline float widened_half(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000U) << 16U;
  const uint32_t rest = static_cast<uint32_t>(half & 0x7fffU) << 13U;
  // The exponent moves from bias 15 to bias 127 by a multiplication with 2^112, which also makes subnormal
  // halves normal; it is exact. Infinities and NaNs keep all ones.
  const float magnitude =
      rest >= 0x0f800000U ? float_from(rest | 0x7f800000U) : float_from(rest) * float_from(0x77800000U);
  return float_from(bits_from(magnitude) | sign);
}

inline uint16_t rounded_half(float value) {
  const uint32_t bits = bits_from(value);
  const uint32_t sign = (bits >> 16U) & 0x8000U;
  const uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) {
    return static_cast<uint16_t>(sign | 0x7e00U);
  }
  if (magnitude >= 0x47800000U) {  // 65536 and above
    return static_cast<uint16_t>(sign | 0x7c00U);
  }
  if (magnitude < 0x38800000U) {  // below 2^-14: subnormal, rounded by adding 0.5, whose last place is 2^-24
    const float rounded = float_from(magnitude) + 0.5F;
    return static_cast<uint16_t>(sign | (bits_from(rounded) - bits_from(0.5F)));
  }
  const uint32_t odd = (magnitude >> 13U) & 1U;
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000U + 0xfffU + odd) >> 13U));
}

inline Floats half_to_float(const uint16_t* from) {
  return Floats{widened_half(from[0]), widened_half(from[1]), widened_half(from[2]), widened_half(from[3])};
}

inline void float_to_half(Floats values, uint16_t* to) {
  for (int i = 0; i < 4; ++i) {
    to[i] = rounded_half(values[i]);
  }
}

}  // namespace

#include "kernels/reduce_impl.h"

namespace smdp {

ReduceFn portable_kernel(DType type, ReduceOp op) { return kernel_for(type, op); }
Conversion portable_conversion(DType type) { return conversion_for(type); }

}  // namespace smdp
