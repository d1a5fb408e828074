// Time as the engine knows it: a monotonic clock, and points in it after which nobody waits any more.
#pragma once

#include <algorithm>
#include <chrono>

namespace smdp {

// The system's monotonic clock, or another that a simulation puts in its place.
class Clock {
 public:
  using duration = std::chrono::steady_clock::duration;
  using time_point = std::chrono::steady_clock::time_point;

  // What stands behind now() in place of the system's clock.
  class Source {
   public:
    virtual ~Source() = default;
    [[nodiscard]] virtual time_point now() const = 0;
  };

  [[nodiscard]] static time_point now() {
    return source_ == nullptr ? std::chrono::steady_clock::now() : source_->now();
  }
  // For the whole process, while no engine is open; null: the system's clock.
  static void replace(const Source* source) { source_ = source; }

 private:
  static inline const Source* source_ = nullptr;
};

using TimePoint = Clock::time_point;

// At most some thirty years: a duration in nanoseconds, added to the time it is, reaches for a few centuries.
inline Clock::duration seconds(double value) {
  constexpr double kLongest = 1e9;
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(std::clamp(value, -kLongest, kLongest)));
}

inline TimePoint after(double value) { return Clock::now() + seconds(value); }

// For poll() and epoll_wait(): milliseconds until `deadline`, at least 0, rounded up, at most `most`.
inline int milliseconds_until(TimePoint deadline, int most = 1000) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return left < 0 ? 0 : (left > most ? most : static_cast<int>(left));
}

}  // namespace smdp
