// The same kernels, compiled for AVX2 and F16C. Called only where the processor has both (reduce.cc).
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

namespace {

void half_to_float(const uint16_t* from, float* to, size_t n) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  }
  for (; i < n; ++i) {
    to[i] = _cvtsh_ss(from[i]);
  }
}

void float_to_half(const float* from, uint16_t* to, size_t n) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), halves);
  }
  for (; i < n; ++i) {
    to[i] = static_cast<uint16_t>(_cvtss_sh(from[i], _MM_FROUND_TO_NEAREST_INT));
  }
}

}  // namespace

#include "kernels/reduce_impl.h"

namespace smdp {

ReduceFn avx2_kernel(DType type, ReduceOp op) { return kernel_for(type, op); }
Conversion avx2_conversion(DType type) { return conversion_for(type); }

}  // namespace smdp
