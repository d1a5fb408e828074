// The same kernels, compiled for AVX-512 (F, BW, DQ, VL). Called only where the processor has all of it
// (reduce.cc).
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

namespace {

void half_to_float(const uint16_t* from, float* to, size_t n) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    _mm512_storeu_ps(to + i, _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i))));
  }
  for (; i < n; ++i) {
    to[i] = _cvtsh_ss(from[i]);
  }
}

void float_to_half(const float* from, uint16_t* to, size_t n) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m256i halves = _mm512_cvtps_ph(_mm512_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), halves);
  }
  for (; i < n; ++i) {
    to[i] = static_cast<uint16_t>(_cvtss_sh(from[i], _MM_FROUND_TO_NEAREST_INT));
  }
}

}  // namespace

#include "kernels/reduce_impl.h"

namespace smdp {

ReduceFn avx512_kernel(DType type, ReduceOp op) { return kernel_for(type, op); }
Conversion avx512_conversion(DType type) { return conversion_for(type); }

}  // namespace smdp
