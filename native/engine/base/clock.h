// The engine's monotonic clock, and deadlines on it.
#pragma once

#include <algorithm>
#include <chrono>

namespace smdp {

// The system's monotonic clock, or a clock that a simulation installs instead.
class Clock {
 public:
  using duration = std::chrono::steady_clock::duration;
  using time_point = std::chrono::steady_clock::time_point;

  // Replaces the system's clock in now().
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

// At most some thirty years, so that the sum of a time point and the duration in nanoseconds does not
// overflow.
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
