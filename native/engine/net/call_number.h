// The number of a call within its group, as frames and traces carry it.
//
// A group has three series of calls, which the two highest bits distinguish: calls numbered in the order in
// which they are made, buffers named by (step, index), and calls made of point-to-point messages. Each series
// is ordered; calls of different series are not.
#pragma once

#include <cstdint>

namespace smdp {

inline constexpr std::uint64_t kNamedCall = 1ULL << 63U;
inline constexpr std::uint64_t kMessageCall = 1ULL << 62U;

constexpr std::uint64_t named_call(std::uint64_t step, std::uint64_t index) {
  return kNamedCall | step << 32U | index;
}

constexpr bool is_named(std::uint64_t call) { return (call & kNamedCall) != 0; }
constexpr bool is_message_call(std::uint64_t call) { return call >> 62U == 1; }

// Of a named call.
constexpr std::uint64_t step_of(std::uint64_t call) { return (call & ~kNamedCall) >> 32U; }
constexpr std::uint64_t index_of(std::uint64_t call) { return call & 0xffffffffU; }

// Both belong to one series, and `call` is the later one.
constexpr bool is_later(std::uint64_t call, std::uint64_t other) {
  return is_named(call) == is_named(other) && call > other;
}

}  // namespace smdp
