// What traces record of an operation that is complete or has failed on this rank.
#pragma once

#include <chrono>

#include "record/begun_operation.h"
#include "record/phase.h"

namespace smdp {

struct EndedOperation : BegunOperation {
  TimePoint ended{};
  bool failed = false;
  int lane = 0;  // as in trace_events.h
  PhaseTimes phases{};
  int last_heard = -1;  // as in Phases
  std::chrono::nanoseconds until_last_heard{0};
};

}  // namespace smdp
