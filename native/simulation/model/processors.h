// The processors of a host: a turn waits until one is free, and occupies it until the turn is done.
#pragma once

#include <queue>
#include <vector>

#include "base/clock.h"

namespace smdp::model {

class Processors {
 public:
  explicit Processors(std::size_t cores) : free_at_(std::greater<>(), std::vector<TimePoint>(cores)) {}

  [[nodiscard]] TimePoint free_at() const { return free_at_.top(); }
  // One of those that were free at `from`.
  void occupy(TimePoint from, Clock::duration time) {
    free_at_.pop();
    free_at_.push(from + time);
    busy_ += time;
  }
  // Of all of them together.
  [[nodiscard]] Clock::duration busy() const { return busy_; }

 private:
  std::priority_queue<TimePoint, std::vector<TimePoint>, std::greater<>> free_at_;
  Clock::duration busy_{};
};

}  // namespace smdp::model
