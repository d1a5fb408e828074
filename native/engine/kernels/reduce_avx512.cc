// The same kernels, compiled for AVX-512 (F, BW, DQ, VL). Called only where the processor has all of it
// (reduce.cc).
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

namespace {

using Floats = float __attribute__((vector_size(64)));

inline Floats half_to_float(const uint16_t* from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}

inline void float_to_half(Floats values, uint16_t* to) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT));
}

}  // namespace

#include "kernels/reduce_impl.h"

namespace smdp {

ReduceFn avx512_kernel(DType type, ReduceOp op) { return kernel_for(type, op); }
Conversion avx512_conversion(DType type) { return conversion_for(type); }

}  // namespace smdp
