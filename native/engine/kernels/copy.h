// Copies. The spans have equal size and do not overlap.
#pragma once

#include <cstddef>
#include <span>

namespace smdp {

void copy(std::span<const std::byte> from, std::span<std::byte> to);

// For results on their way out of a large buffer's piece: read soon from a cache by others, written to memory
// that nobody reads before the whole buffer is done. An ordinary copy would first fetch what it overwrites,
// a third of its traffic.
void copy_streaming(std::span<const std::byte> from, std::span<std::byte> to);

}  // namespace smdp
