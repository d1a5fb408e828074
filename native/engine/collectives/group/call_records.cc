#include "collectives/group/call_records.h"

#include "net/call_number.h"

namespace smdp {

OperationTrace CallRecords::begin(const QueuedCall& call, TimePoint now) {
  if (FlightRecord* record = flight_.find(call.record)) {
    record->state = FlightRecord::State::kStarted;
    record->started = now;
  }
  OperationTrace trace;
  trace.record = call.record;
  // Timelines are aligned by numbers that all ranks share, which calls made of messages do not have.
  if (marks_ != nullptr && !is_message_call(call.number)) {
    BegunOperation begun;
    begun.group = group_;
    begun.operation = call.number;
    begun.what = call.call.what;
    begun.created = call.submitted;
    begun.started = now;
    begun.locals = layout_.mates_of(rank_).size();
    begun.hosts = layout_.hosts.size();
    trace.marks = {*marks_, marks_->begin(std::move(begun))};
  }
  return trace;
}

void CallRecords::note_wait(FlightRecord& record, const Operation::Wait& wait) const {
  record.phase = wait.phase;
  record.waits_for.clear();
  for (const int rank : wait.ranks) {
    record.waits_for.push_back(group_->members[static_cast<std::size_t>(rank)]);
  }
}

void CallRecords::end(const OperationTrace& trace, const Status& status) {
  const TimePoint now = Clock::now();
  flight_.end(trace.record, status, now);
  trace.marks.end(!status.ok(), now);
}

}  // namespace smdp
