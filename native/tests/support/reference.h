// The function that defines the sums. Plain, slow, and independent of the engine's kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/types.h"

namespace smdp::testing {

using Buffer = std::vector<std::byte>;

// Within a host by local rank, in fp32 (fp64 for fp64, the type itself for integers), rounded to the type;
// then the hosts in order, in fp32, rounded once more; an average divides before that last rounding, and one
// of 16 bits before both, by factors of the number of ranks: a host's sum by the smallest factor that is at
// least the number of ranks of the largest host. A NaN has one pattern. `hosts[h][l]` is the input of local
// rank l on host h.
Buffer reference_reduce(DType type, ReduceOp op, const std::vector<std::vector<Buffer>>& hosts);

// The same for fp32 sums that are sent between hosts in the type `wire`: each host's sum is rounded to it,
// the sums are added in order in fp32, and the result is rounded to it. An average divides as an average of
// `wire` does.
Buffer reference_reduce_narrowed(DType wire, ReduceOp op, const std::vector<std::vector<Buffer>>& hosts);

// Random elements: ordinary values, and some of zero, infinity, NaN and subnormal for floating types.
Buffer random_buffer(DType type, std::size_t count, std::uint32_t seed);

float widen(DType type, std::uint16_t bits);
std::uint16_t narrow(DType type, float value);

}  // namespace smdp::testing
