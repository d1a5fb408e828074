// How far another host's clock is ahead of ours: from questions answered with the other's time. The true
// value lies within half the round trip of the estimate, so of each series the quickest answer counts.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace smdp {

class ClockOffset {
 public:
  struct Estimate {
    std::chrono::nanoseconds ahead{0};
    std::chrono::nanoseconds error{0};  // at most, either way
  };

  // One question: when it was sent, what the other's clock said, when the answer came; in nanoseconds.
  void add(std::int64_t sent, std::int64_t theirs, std::int64_t received);
  void clear() { *this = {}; }
  [[nodiscard]] int answers() const { return answers_; }
  [[nodiscard]] const std::optional<Estimate>& best() const { return best_; }

 private:
  int answers_ = 0;
  std::optional<Estimate> best_;
};

}  // namespace smdp
