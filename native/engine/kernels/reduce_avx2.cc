// The same kernels, compiled for AVX2 and F16C. Called only where the processor has both (reduce.cc).
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

namespace {

using Floats = float __attribute__((vector_size(32)));

inline Floats half_to_float(const uint16_t* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

inline void float_to_half(Floats values, uint16_t* to) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT));
}

}  // namespace

#include "kernels/reduce_impl.h"

namespace smdp {

ReduceFn avx2_kernel(DType type, ReduceOp op) { return kernel_for(type, op); }
Conversion avx2_conversion(DType type) { return conversion_for(type); }

}  // namespace smdp
