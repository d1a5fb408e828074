// Estimates how far another host's clock is ahead, from requests that it answers with its time. The true
// value is within half the round trip of the estimate, so the quickest answer of each series counts.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace smdp {

class ClockOffset {
 public:
  struct Estimate {
    std::chrono::nanoseconds ahead{0};
    std::chrono::nanoseconds error{0};  // at most, in either direction
  };

  // One request: when it was sent, the time of the other clock, and when the answer arrived; in nanoseconds.
  void add(std::int64_t sent, std::int64_t theirs, std::int64_t received);
  void clear() { *this = {}; }
  [[nodiscard]] int answers() const { return answers_; }
  [[nodiscard]] const std::optional<Estimate>& best() const { return best_; }

 private:
  int answers_ = 0;
  std::optional<Estimate> best_;
};

}  // namespace smdp
