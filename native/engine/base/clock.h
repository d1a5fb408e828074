// Time as the engine knows it: a monotonic clock, and points in it after which nobody waits any more.
#pragma once

#include <chrono>

namespace smdp {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;

inline Clock::duration seconds(double value) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(value));
}

inline TimePoint after(double value) { return Clock::now() + seconds(value); }

// For poll() and epoll_wait(): milliseconds until `deadline`, at least 0, rounded up, at most `most`.
inline int milliseconds_until(TimePoint deadline, int most = 1000) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return left < 0 ? 0 : (left > most ? most : static_cast<int>(left));
}

}  // namespace smdp
