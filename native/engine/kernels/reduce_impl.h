// The kernels' one text, compiled once per instruction set (reduce_portable.cc, reduce_avx2.cc,
// reduce_avx512.cc, reduce_neon.cc).
//
// Everything lives in an unnamed namespace and nothing of the standard library is called: a function that
// two files emitted under one name would be merged by the linker, and an old processor could meet AVX2 in
// it. The including file defines half_to_float(const uint16_t*, float*, n) and float_to_half(const float*,
// uint16_t*, n).
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/reduce.h"

namespace {

using smdp::DType;
using smdp::ReduceFn;
using smdp::ReduceOp;

constexpr size_t kTile = 2048;  // elements; an fp32 accumulator of 8 KiB stays in the first-level cache

struct Half {
  using Wire = uint16_t;
  using Accumulator = float;
};
struct Brain {
  using Wire = uint16_t;
  using Accumulator = float;
};
struct Truth {
  using Wire = uint8_t;
  using Accumulator = uint8_t;
};
template <class T>
struct Plain {
  using Wire = T;
  using Accumulator = T;
};

inline float float_of(uint32_t bits) { return __builtin_bit_cast(float, bits); }
inline uint32_t bits_of(float value) { return __builtin_bit_cast(uint32_t, value); }

constexpr uint32_t kQuietNan32 = 0x7fc00000U;
constexpr uint64_t kQuietNan64 = 0x7ff8000000000000U;

inline float canonical(float value) { return value != value ? float_of(kQuietNan32) : value; }
inline double canonical(double value) {
  return value != value ? __builtin_bit_cast(double, kQuietNan64) : value;
}
template <class T>
inline T canonical(T value) {
  return value;
}

template <class T>
inline void load(Plain<T>, const T* from, T* to, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    to[i] = from[i];
  }
}
inline void load(Truth, const uint8_t* from, uint8_t* to, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    to[i] = from[i] != 0 ? 1 : 0;
  }
}
inline void load(Half, const uint16_t* from, float* to, size_t n) { half_to_float(from, to, n); }
inline void load(Brain, const uint16_t* from, float* to, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    to[i] = float_of(static_cast<uint32_t>(from[i]) << 16U);
  }
}

template <class T>
inline void store(Plain<T>, const T* from, T* to, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    to[i] = canonical(from[i]);
  }
}
inline void store(Truth, const uint8_t* from, uint8_t* to, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    to[i] = from[i];
  }
}
inline void store(Half, float* from, uint16_t* to, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    from[i] = canonical(from[i]);
  }
  float_to_half(from, to, n);
}
inline void store(Brain, const float* from, uint16_t* to, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const uint32_t bits = bits_of(canonical(from[i]));
    const uint32_t rounded = (bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U;  // to nearest, ties to even
    to[i] = static_cast<uint16_t>(from[i] != from[i] ? kQuietNan32 >> 16U : rounded);
  }
}

// Signed overflow is undefined, so integers are added and multiplied as unsigned of at least 32 bits.
template <class T>
struct Arithmetic {
  using Type = T;
};
template <>
struct Arithmetic<int8_t> {
  using Type = uint32_t;
};
template <>
struct Arithmetic<uint8_t> {
  using Type = uint32_t;
};
template <>
struct Arithmetic<int16_t> {
  using Type = uint32_t;
};
template <>
struct Arithmetic<int32_t> {
  using Type = uint32_t;
};
template <>
struct Arithmetic<int64_t> {
  using Type = uint64_t;
};

template <ReduceOp Op, class A>
inline A combine(A left, A right) {
  using U = typename Arithmetic<A>::Type;
  if constexpr (Op == ReduceOp::kSum) {
    return static_cast<A>(static_cast<U>(left) + static_cast<U>(right));
  } else if constexpr (Op == ReduceOp::kProduct) {
    return static_cast<A>(static_cast<U>(left) * static_cast<U>(right));
  } else if constexpr (Op == ReduceOp::kMin) {
    return right < left || right != right ? right : left;  // a NaN on either side stays; of equals the first
  } else if constexpr (Op == ReduceOp::kMax) {
    return right > left || right != right ? right : left;
  } else if constexpr (Op == ReduceOp::kBand) {
    return static_cast<A>(left & right);
  } else if constexpr (Op == ReduceOp::kBor) {
    return static_cast<A>(left | right);
  } else {
    return static_cast<A>(left ^ right);
  }
}

template <class A>
inline A divide(A value, uint32_t divisor) {
  return static_cast<A>(static_cast<int64_t>(value) / static_cast<int64_t>(divisor));
}
inline float divide(float value, uint32_t divisor) { return value / static_cast<float>(divisor); }
inline double divide(double value, uint32_t divisor) { return value / static_cast<double>(divisor); }

// Four lines of the cache: enough turns that the compiler makes vectors of them.
constexpr size_t kBlockBytes = 256;

inline void fetch(const void* from) {
  constexpr size_t kLine = 64;
  for (size_t offset = 0; offset < kBlockBytes; offset += kLine) {
    __builtin_prefetch(static_cast<const char*>(from) + offset);
  }
}

template <ReduceOp Op, class T>
inline void accumulate_block(Plain<T>, const T* from, T* sum, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    sum[i] = combine<Op>(sum[i], from[i]);
  }
}
template <ReduceOp Op, class Type, class Wire, class Accumulator>
inline void accumulate_block(Type, const Wire* from, Accumulator* sum, size_t n) {
  Accumulator values[kBlockBytes / sizeof(Wire)];
  load(Type{}, from, values, n);
  accumulate_block<Op>(Plain<Accumulator>{}, values, sum, n);
}

// Adds a source's tile to the sum and fetches `next`, the tile that is read after it. What others hold out
// lies in a cache that the cores share, and the processor does not see the change of source coming: without
// this, eight sources were summed at a third of the speed. To fetch beyond the last tile's end does nothing.
template <class Type, ReduceOp Op, class Wire, class Accumulator>
inline void accumulate(const Wire* from, Accumulator* sum, size_t n, const Wire* next) {
  constexpr size_t kBlock = kBlockBytes / sizeof(Wire);
  size_t i = 0;
  for (; i + kBlock <= n; i += kBlock) {
    fetch(next + i);
    accumulate_block<Op>(Type{}, from + i, sum + i, kBlock);
  }
  accumulate_block<Op>(Type{}, from + i, sum + i, n - i);
}

template <class Type, ReduceOp Op>
void reduce(const std::byte* const* sources, size_t n, std::byte* out, size_t count, uint32_t divisor) {
  using Wire = typename Type::Wire;
  using Accumulator = typename Type::Accumulator;
  const auto source = [sources](size_t s) { return reinterpret_cast<const Wire*>(sources[s]); };
  Accumulator sum[kTile];
  for (size_t start = 0; start < count; start += kTile) {
    const size_t length = count - start < kTile ? count - start : kTile;
    load(Type{}, source(0) + start, sum, length);
    for (size_t s = 1; s < n; ++s) {
      const Wire* next = s + 1 < n ? source(s + 1) + start : source(0) + start + length;
      accumulate<Type, Op>(source(s) + start, sum, length, next);
    }
    if (divisor > 1) {
      for (size_t i = 0; i < length; ++i) {
        sum[i] = divide(sum[i], divisor);
      }
    }
    store(Type{}, sum, reinterpret_cast<Wire*>(out) + start, length);
  }
}

template <class Type>
void narrow(const float* from, std::byte* to, size_t count) {
  float tile[kTile];
  for (size_t start = 0; start < count; start += kTile) {
    const size_t length = count - start < kTile ? count - start : kTile;
    load(Plain<float>{}, from + start, tile, length);
    store(Type{}, tile, reinterpret_cast<typename Type::Wire*>(to) + start, length);
  }
}

template <class Type>
void widen(const std::byte* from, float* to, size_t count) {
  load(Type{}, reinterpret_cast<const typename Type::Wire*>(from), to, count);
}

smdp::Conversion conversion_for(DType type) {
  return type == DType::kFloat16 ? smdp::Conversion{narrow<Half>, widen<Half>}
                                 : smdp::Conversion{narrow<Brain>, widen<Brain>};
}

template <class Type>
ReduceFn arithmetic_kernel(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return reduce<Type, ReduceOp::kSum>;
    case ReduceOp::kMin:
      return reduce<Type, ReduceOp::kMin>;
    case ReduceOp::kMax:
      return reduce<Type, ReduceOp::kMax>;
    case ReduceOp::kProduct:
      return reduce<Type, ReduceOp::kProduct>;
    default:
      return nullptr;
  }
}

template <class Type>
ReduceFn integer_kernel(ReduceOp op) {
  switch (op) {
    case ReduceOp::kBand:
      return reduce<Type, ReduceOp::kBand>;
    case ReduceOp::kBor:
      return reduce<Type, ReduceOp::kBor>;
    case ReduceOp::kBxor:
      return reduce<Type, ReduceOp::kBxor>;
    default:
      return arithmetic_kernel<Type>(op);
  }
}

ReduceFn truth_kernel(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMax:
    case ReduceOp::kBor:
      return reduce<Truth, ReduceOp::kBor>;
    case ReduceOp::kProduct:
    case ReduceOp::kMin:
    case ReduceOp::kBand:
      return reduce<Truth, ReduceOp::kBand>;
    case ReduceOp::kBxor:
      return reduce<Truth, ReduceOp::kBxor>;
    default:
      return nullptr;
  }
}

ReduceFn kernel_for(DType type, ReduceOp op) {
  switch (type) {
    case DType::kFloat32:
      return arithmetic_kernel<Plain<float>>(op);
    case DType::kFloat64:
      return arithmetic_kernel<Plain<double>>(op);
    case DType::kFloat16:
      return arithmetic_kernel<Half>(op);
    case DType::kBFloat16:
      return arithmetic_kernel<Brain>(op);
    case DType::kInt8:
      return integer_kernel<Plain<int8_t>>(op);
    case DType::kInt16:
      return integer_kernel<Plain<int16_t>>(op);
    case DType::kInt32:
      return integer_kernel<Plain<int32_t>>(op);
    case DType::kInt64:
      return integer_kernel<Plain<int64_t>>(op);
    case DType::kUInt8:
      return integer_kernel<Plain<uint8_t>>(op);
    case DType::kBool:
      return truth_kernel(op);
  }
  return nullptr;
}

}  // namespace
