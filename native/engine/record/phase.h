// The phases of an operation on one rank.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace smdp {

enum class Phase : std::uint8_t { kWaitLocal, kWaitHosts, kWire, kCopy, kReduce };
inline constexpr std::size_t kPhases = 5;

using PhaseTimes = std::array<std::chrono::nanoseconds, kPhases>;

}  // namespace smdp
