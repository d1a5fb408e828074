// What a group records of its calls for traces: in the flight recorder, and in the log of marks where traces
// are on.
#pragma once

#include <cstdint>
#include <memory>

#include "collectives/group/open_calls.h"
#include "layout/plan.h"
#include "record/flight_recorder.h"
#include "record/marks.h"

namespace smdp {

class CallRecords {
 public:
  // `marks`: null where traces are off. `layout` outlives this object; `rank`: this rank within the group.
  CallRecords(FlightRecorder& flight, MarkLog* marks, std::shared_ptr<const TracedGroup> group,
              const GroupLayout& layout, int rank)
      : flight_(flight), marks_(marks), group_(std::move(group)), layout_(layout), rank_(rank) {}

  [[nodiscard]] const std::shared_ptr<const TracedGroup>& group() const { return group_; }
  // The record of a call that is made now.
  std::uint64_t add(std::uint64_t call, const Descriptor& what, TimePoint submitted, TimePoint deadline) {
    return flight_.add(group_, call, what, submitted, deadline);
  }
  // The call begins.
  OperationTrace begin(const QueuedCall& call, TimePoint now);
  // Null: the recorder has overwritten it.
  [[nodiscard]] FlightRecord* find(const OperationTrace& trace) { return flight_.find(trace.record); }
  void note_wait(FlightRecord& record, const Operation::Wait& wait) const;
  void end(const OperationTrace& trace, const Status& status);
  // The call ends before it begins.
  void end(std::uint64_t record, const Status& status) { flight_.end(record, status, Clock::now()); }

 private:
  FlightRecorder& flight_;
  MarkLog* marks_;
  std::shared_ptr<const TracedGroup> group_;
  const GroupLayout& layout_;
  int rank_;
};

}  // namespace smdp
