// The source of the kernels, compiled once per instruction set (reduce_portable.cc, reduce_avx2.cc,
// reduce_avx512.cc, reduce_neon.cc).
//
// Everything is in an unnamed namespace and calls nothing of the standard library: the linker merges
// functions that two files emit under one name, and an old processor could then run one that contains AVX2.
// The including file defines Floats, its vector of fp32, and for one vector of halves Floats
// half_to_float(const uint16_t*) and void float_to_half(Floats, uint16_t*).
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <type_traits>

#include "kernels/reduce.h"

namespace {

using smdp::DType;
using smdp::ReduceFn;
using smdp::ReduceOp;

constexpr size_t kTile = 2048;  // elements; an fp32 sum of 8 KiB stays in the first-level cache

using Words = uint32_t __attribute__((vector_size(sizeof(Floats))));

// Two vectors of sums for one vector of bfloat16 numbers: of the numbers in the low and in the high half of
// each word. Splitting and joining them needs no shuffle.
struct Pairs {
  Floats low;
  Floats high;
};

// Wire is the type of an element in memory, Accumulator the type of its sum, and Lanes the accumulators that
// one step handles. The compiler vectorizes single accumulators by itself, except the conversions of fp16;
// for floats it would check at each block whether a source and the sum overlap.
template <class T>
struct Plain {
  using Wire = T;
  using Accumulator = T;
  using Lanes = T;
};
template <>
struct Plain<float> {
  using Wire = float;
  using Accumulator = float;
  using Lanes = Floats;
};
struct Half {
  using Wire = uint16_t;
  using Accumulator = float;
  using Lanes = Floats;
};
struct BFloat16 {
  using Wire = uint16_t;
  using Accumulator = float;
  using Lanes = Pairs;
};
// For conversions, where element i of one array becomes element i of the other.
struct SingleBFloat16 {
  using Wire = uint16_t;
  using Accumulator = float;
  using Lanes = float;
};
struct Bool {
  using Wire = uint8_t;
  using Accumulator = uint8_t;
  using Lanes = uint8_t;
};
template <class Type>
constexpr size_t kLanes =
    sizeof(typename Type::Lanes) / sizeof(typename Type::Accumulator);  // NOLINT(bugprone-sizeof-expression)

constexpr uint32_t kQuietNan32 = 0x7fc00000U;
constexpr uint64_t kQuietNan64 = 0x7ff8000000000000U;
constexpr uint32_t kHighHalf = 0xffff0000U;

template <class Float, class Bits>
inline Float with_quiet_nans(Float values, Bits quiet) {
  return values != values ? __builtin_bit_cast(Float, quiet) : values;
}
inline Floats canonical(Floats values) { return with_quiet_nans(values, Words{} + kQuietNan32); }
inline float canonical(float value) { return with_quiet_nans(value, kQuietNan32); }
inline double canonical(double value) { return with_quiet_nans(value, kQuietNan64); }
template <class T>
inline T canonical(T value) {
  return value;
}

template <class Lanes, class T>
inline Lanes read(const T* from) {
  if constexpr (std::is_same_v<T, Lanes>) {
    return *from;
  } else {
    Lanes values;
    __builtin_memcpy(&values, from, sizeof(values));
    return values;
  }
}
template <class Lanes, class T>
inline void write(Lanes values, T* to) {
  if constexpr (std::is_same_v<T, Lanes>) {
    *to = values;
  } else {
    __builtin_memcpy(to, &values, sizeof(values));
  }
}

template <class T>
inline typename Plain<T>::Lanes load(Plain<T>, const T* from) {
  return read<typename Plain<T>::Lanes>(from);
}
inline uint8_t load(Bool, const uint8_t* from) { return *from != 0 ? 1 : 0; }
inline Floats load(Half, const uint16_t* from) { return half_to_float(from); }
inline Pairs load(BFloat16, const uint16_t* from) {
  const auto words = read<Words>(from);
  return {__builtin_bit_cast(Floats, words << 16U), __builtin_bit_cast(Floats, words & kHighHalf)};
}
inline float load(SingleBFloat16, const uint16_t* from) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(*from) << 16U);
}

template <class T>
inline void store(Plain<T>, typename Plain<T>::Lanes values, T* to) {
  write(canonical(values), to);
}
inline void store(Bool, uint8_t value, uint8_t* to) { *to = value; }
inline void store(Half, Floats values, uint16_t* to) { float_to_half(canonical(values), to); }
// The high half of each result is the bfloat16 number nearest to the value, of two as near the even one.
template <class Bits>
inline Bits rounded_to_bfloat16(Bits bits) {
  return bits + 0x7fffU + ((bits >> 16U) & 1U);
}
inline void store(BFloat16, Pairs values, uint16_t* to) {
  const Words low = rounded_to_bfloat16(__builtin_bit_cast(Words, canonical(values.low)));
  const Words high = rounded_to_bfloat16(__builtin_bit_cast(Words, canonical(values.high)));
  write((low >> 16U) | (high & kHighHalf), to);
}
inline void store(SingleBFloat16, float value, uint16_t* to) {
  *to = static_cast<uint16_t>(rounded_to_bfloat16(__builtin_bit_cast(uint32_t, canonical(value))) >> 16U);
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
    return (right < left) | (right != right) ? right
                                             : left;  // a NaN on either side stays; of equals the first
  } else if constexpr (Op == ReduceOp::kMax) {
    return (right > left) | (right != right) ? right : left;
  } else if constexpr (Op == ReduceOp::kBand) {
    return static_cast<A>(left & right);
  } else if constexpr (Op == ReduceOp::kBor) {
    return static_cast<A>(left | right);
  } else {
    return static_cast<A>(left ^ right);
  }
}

template <ReduceOp Op>
inline Pairs combine(Pairs left, Pairs right) {
  return {combine<Op>(left.low, right.low), combine<Op>(left.high, right.high)};
}

template <class A>
inline A divide(A value, uint32_t divisor) {
  return static_cast<A>(static_cast<int64_t>(value) / static_cast<int64_t>(divisor));
}
inline float divide(float value, uint32_t divisor) { return value / static_cast<float>(divisor); }
inline Floats divide(Floats values, uint32_t divisor) { return values / static_cast<float>(divisor); }
inline Pairs divide(Pairs values, uint32_t divisor) {
  return {divide(values.low, divisor), divide(values.high, divisor)};
}
inline double divide(double value, uint32_t divisor) { return value / static_cast<double>(divisor); }

// Four cache lines: enough iterations that the compiler vectorizes them.
constexpr size_t kBlockBytes = 256;

inline void fetch(const void* from) {
  constexpr size_t kLine = 64;
  for (size_t offset = 0; offset < kBlockBytes; offset += kLine) {
    __builtin_prefetch(static_cast<const char*>(from) + offset);
  }
}

// The address of element i in an array of single elements or of lanes.
template <class Type, class T>
inline T* at(T* array, size_t i) {
  return std::is_same_v<std::remove_const_t<T>, typename Type::Lanes> ? array + i / kLanes<Type> : array + i;
}

// The last elements of an array, fewer than one vector: single elements padded with zeros, lanes unchanged.
template <class Type, class T>
struct Rest {
  T values[kLanes<Type>] = {};

  Rest(const T* from, size_t n) { __builtin_memcpy(values, from, n * sizeof(T)); }
};
template <class Type>
struct Rest<Type, typename Type::Lanes> {
  const typename Type::Lanes* values;

  Rest(const typename Type::Lanes* from, size_t) : values(from) {}
};

// Calls step(to, from...) for each group of lanes of n elements.
template <class Type, class Step, class To, class... From>
[[gnu::always_inline]] inline void for_lanes(Step step, size_t n, To* to, const From*... from) {
  size_t i = 0;
  for (; i + kLanes<Type> <= n; i += kLanes<Type>) {
    step(at<Type>(to, i), at<Type>(from, i)...);
  }
  if (i == n) {
    return;
  }
  if constexpr (std::is_same_v<To, typename Type::Lanes>) {
    step(at<Type>(to, i), Rest<Type, From>(at<Type>(from, i), n - i).values...);
  } else {
    To rest[kLanes<Type>];
    step(rest, Rest<Type, From>(at<Type>(from, i), n - i).values...);
    __builtin_memcpy(to + i, rest, (n - i) * sizeof(To));
  }
}

// Combines the first source, or the sum so far, with the next source into the sum or, as the last, the
// result.
template <class Type, ReduceOp Op, bool First, bool Last>
struct Fold {
  using Wire = typename Type::Wire;
  using Lanes = typename Type::Lanes;
  using Left = std::conditional_t<First, Wire, Lanes>;
  using To = std::conditional_t<Last, Wire, Lanes>;

  static void step(To* to, const Left* left, const Wire* right) {
    Lanes sum;
    if constexpr (First) {
      sum = combine<Op>(load(Type{}, left), load(Type{}, right));
    } else {
      sum = combine<Op>(*left, load(Type{}, right));
    }
    if constexpr (Last) {
      store(Type{}, sum, to);
    } else {
      *to = sum;
    }
  }

  // Prefetches `next`, the tile that is read after this one. The values of other ranks are in a cache that
  // the cores share, and the processor does not predict the change of source: without the prefetch, eight
  // sources are summed at a third of the speed. A prefetch beyond the last tile does nothing.
  static void tile(size_t n, To* to, const Left* left, const Wire* right, const Wire* next) {
    constexpr size_t kBlock = kBlockBytes / sizeof(Wire);
    size_t i = 0;
    for (; i + kBlock <= n; i += kBlock) {
      fetch(next + i);
      for_lanes<Type>(step, kBlock, at<Type>(to, i), at<Type>(left, i), right + i);
    }
    for_lanes<Type>(step, n - i, at<Type>(to, i), at<Type>(left, i), right + i);
  }
};

template <class Type, class To>
void widen_all(size_t n, To* to, const typename Type::Wire* from) {
  for_lanes<Type>([](auto* out, const auto* in) { write(load(Type{}, in), out); }, n, to, from);
}

template <class Type, class From>
void round_all(size_t n, typename Type::Wire* to, const From* from, uint32_t divisor) {
  const auto step = [divisor](auto* out, const auto* in) {
    const auto values = read<typename Type::Lanes>(in);
    store(Type{}, divisor > 1 ? divide(values, divisor) : values, out);
  };
  for_lanes<Type>(step, n, to, from);
}

// Each tile goes through all sources before the next one. The last fold rounds, unless a division comes
// first.
template <class Type, ReduceOp Op>
void reduce(const std::byte* const* sources, size_t n, std::byte* out, size_t count, uint32_t divisor) {
  using Wire = typename Type::Wire;
  typename Type::Lanes sum[kTile / kLanes<Type>];
  for (size_t start = 0; start < count; start += kTile) {
    const size_t length = count - start < kTile ? count - start : kTile;
    const auto source = [=](size_t s) { return reinterpret_cast<const Wire*>(sources[s]) + start; };
    Wire* const result = reinterpret_cast<Wire*>(out) + start;
    if (n == 1) {
      widen_all<Type>(length, sum, source(0));
    }
    for (size_t s = 1; s < n; ++s) {
      const bool first = s == 1;
      const bool last = s + 1 == n && divisor <= 1;
      const Wire* const next = s + 1 < n ? source(s + 1) : source(0) + length;
      if (first && last) {
        Fold<Type, Op, true, true>::tile(length, result, source(0), source(1), next);
      } else if (first) {
        Fold<Type, Op, true, false>::tile(length, sum, source(0), source(1), next);
      } else if (last) {
        Fold<Type, Op, false, true>::tile(length, result, sum, source(s), next);
      } else {
        Fold<Type, Op, false, false>::tile(length, sum, sum, source(s), next);
      }
    }
    if (n == 1 || divisor > 1) {
      round_all<Type>(length, result, sum, divisor);
    }
  }
}

template <class Type>
void narrow(const float* from, std::byte* to, size_t count) {
  round_all<Type>(count, reinterpret_cast<typename Type::Wire*>(to), from, 1);
}

template <class Type>
void widen(const std::byte* from, float* to, size_t count) {
  widen_all<Type>(count, to, reinterpret_cast<const typename Type::Wire*>(from));
}

smdp::Conversion conversion_for(DType type) {
  return type == DType::kFloat16 ? smdp::Conversion{narrow<Half>, widen<Half>}
                                 : smdp::Conversion{narrow<SingleBFloat16>, widen<SingleBFloat16>};
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

ReduceFn bool_kernel(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMax:
    case ReduceOp::kBor:
      return reduce<Bool, ReduceOp::kBor>;
    case ReduceOp::kProduct:
    case ReduceOp::kMin:
    case ReduceOp::kBand:
      return reduce<Bool, ReduceOp::kBand>;
    case ReduceOp::kBxor:
      return reduce<Bool, ReduceOp::kBxor>;
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
      return arithmetic_kernel<BFloat16>(op);
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
      return bool_kernel(op);
  }
  return nullptr;
}

}  // namespace
