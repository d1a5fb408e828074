// Copies. The spans have equal size and do not overlap.
#pragma once

#include <cstddef>
#include <span>

namespace smdp {

void copy(std::span<const std::byte> from, std::span<std::byte> to);

// For the results of a piece of a large buffer. The target is not read before the whole buffer is complete,
// so the copy bypasses the cache: an ordinary copy first fetches the lines that it overwrites, a third of its
// traffic.
void copy_streaming(std::span<const std::byte> from, std::span<std::byte> to);

}  // namespace smdp
