// Counters of the engine over a period, as an event line (docs/reference/events.md).
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "base/clock.h"
#include "trace/ended_operation.h"
#include "trace/totals.h"

namespace smdp {

class Counters {
 public:
  Counters(int rank, double period_s, TimePoint now);

  void ended(const EndedOperation& one);
  // The line, without the line end, when the period is over; otherwise empty.
  std::string tick(TimePoint now);
  // The line of the current period, which it ends.
  std::string finish(TimePoint now);

 private:
  int rank_;
  Clock::duration period_;
  TimePoint since_;
  Totals totals_;
  std::map<int, std::chrono::nanoseconds>
      late_;  // by rank of the job: how long this rank waited for its first frame
};

}  // namespace smdp
