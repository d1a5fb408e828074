#include "trace/timeline/clock_offset.h"

namespace smdp {

void ClockOffset::add(std::int64_t sent, std::int64_t theirs, std::int64_t received) {
  if (received < sent) {
    return;
  }
  ++answers_;
  // Unsigned, because a damaged answer may contain any number.
  const auto half = static_cast<std::int64_t>(
      (static_cast<std::uint64_t>(received) - static_cast<std::uint64_t>(sent)) / 2);
  const std::chrono::nanoseconds error{half + 1};  // 1 for the remainder of the division
  if (!best_ || error < best_->error) {
    const std::uint64_t ahead = static_cast<std::uint64_t>(theirs) - static_cast<std::uint64_t>(sent) -
                                static_cast<std::uint64_t>(half);
    best_ = Estimate{std::chrono::nanoseconds{static_cast<std::int64_t>(ahead)}, error};
  }
}

}  // namespace smdp
