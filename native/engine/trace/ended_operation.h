// What traces are told of an operation: when it begins on this rank, and when it is over.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "trace/flight_recorder.h"
#include "trace/phases.h"

namespace smdp {

struct BegunOperation {
  std::shared_ptr<const TracedGroup> group;
  std::uint64_t operation = 0;  // its number in the group
  Descriptor what;
  TimePoint created{};
  TimePoint started{};
  std::size_t locals = 1;  // ranks of the group on this host
  std::size_t hosts = 1;

  [[nodiscard]] std::uint64_t bytes() const { return what.count * size_of(what.dtype); }
};

struct EndedOperation : BegunOperation {
  TimePoint ended{};
  bool failed = false;
  int lane = 0;  // as in trace_events.h
  PhaseTimes phases{};
  int last_heard = -1;  // as in Phases
  std::chrono::nanoseconds until_last_heard{0};
};

}  // namespace smdp
