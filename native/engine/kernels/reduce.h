// The sums: several sources are added in the given order, in one pass, and rounded once.
//
// Floating types narrower than fp64 accumulate in fp32; integers wrap; bool is 0 or 1 with sum as "or" and
// product as "and". A NaN result has one bit pattern. Nothing here fuses a multiplication with an addition,
// so the portable and the vector kernels give the same bits (tests compare them).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/types.h"

namespace smdp {

// sources[0..n) and out hold `count` elements each; out may be one of the sources. With a divisor above 1 the
// accumulated value is divided by it before the rounding (truncated towards zero for integers).
using ReduceFn = void (*)(const std::byte* const* sources, std::size_t n, std::byte* out, std::size_t count,
                          std::uint32_t divisor);

// Values in fp32 to a narrower type, rounded to nearest with ties to even, and back, which is exact. A NaN
// becomes the one bit pattern of its type; what is too large for fp16 becomes infinite.
struct Conversion {
  void (*narrow)(const float* from, std::byte* to, std::size_t count) = nullptr;
  void (*widen)(const std::byte* from, float* to, std::size_t count) = nullptr;
};

// The spans have equal size and do not overlap.
using CopyFn = void (*)(std::span<const std::byte> from, std::span<std::byte> to);

// All functions that read or write the bytes of a sum. The model of cost has a set that counts and moves
// nothing.
struct KernelSet {
  // kAvg has the kernel of kSum: the caller passes the divisor to the last fold only. nullptr where
  // is_offered() is false.
  ReduceFn (*reduce)(DType type, ReduceOp op) = nullptr;
  // `type`: kFloat16 or kBFloat16.
  Conversion (*convert)(DType type) = nullptr;
  CopyFn copy = nullptr;
  CopyFn copy_streaming = nullptr;  // kernels/copy.h
};

enum class Isa : std::uint8_t { kPortable, kAvx2, kAvx512, kNeon };
inline constexpr std::array kIsas = {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kNeon};

// In this build, and on this processor. kernels() takes no other.
[[nodiscard]] bool is_available(Isa isa);
[[nodiscard]] Isa best_isa();
// The name in SMDP_KERNELS.
[[nodiscard]] std::string_view name_of(Isa isa);

[[nodiscard]] const KernelSet& kernels(Isa isa);

}  // namespace smdp
