// What the engine did in the last seconds, as an event line for whoever follows the job (docs/events.md).
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
  // The line, without its end, when the period is over; else empty.
  std::string tick(TimePoint now);
  // The line of what was not told yet.
  std::string last(TimePoint now);

 private:
  int rank_;
  Clock::duration period_;
  TimePoint since_;
  Totals totals_;
  std::map<int, std::chrono::nanoseconds>
      late_;  // by rank of the job: how long this rank waited to hear of it
};

}  // namespace smdp
