// What a group tells the flight recorder and the tracer.
#include "collectives/group.h"

namespace smdp {

OperationTrace Group::trace_begin(const Waiting& waiting, TimePoint now) {
  if (FlightRecord* record = services_.flight().find(waiting.record)) {
    record->state = FlightRecord::State::kStarted;
    record->started = now;
  }
  OperationTrace trace;
  trace.record = waiting.record;
  // Messages have no number that all ranks share, by which timelines are laid beside each other.
  if (Tracer* tracer = services_.tracer(); tracer != nullptr && !is_mail(waiting.number)) {
    const auto host = static_cast<std::size_t>(layout_.host_of[static_cast<std::size_t>(rank_)]);
    BegunOperation one;
    one.group = traced_;
    one.operation = waiting.number;
    one.what = waiting.call.what;
    one.created = waiting.submitted;
    one.started = now;
    one.locals = layout_.hosts[host].size();
    one.hosts = layout_.hosts.size();
    trace.marks = {tracer->log(), tracer->log().begin(std::move(one))};
  }
  return trace;
}

void Group::trace_end(const OperationTrace& trace, const Status& status) {
  const TimePoint now = Clock::now();
  services_.flight().end(trace.record, status, now);
  trace.marks.end(!status.ok(), now);
}

void Group::note_waits() {
  for (const auto& [number, operation] : active_) {
    if (FlightRecord* record = services_.flight().find(operation->trace().record)) {
      note_wait(*record, operation->waiting_for());
    }
  }
  for (const auto& [number, exchange] : mail_.under_way()) {
    if (FlightRecord* record = services_.flight().find(exchange.trace.record)) {
      note_wait(*record, mail_.waiting_for(number));
    }
  }
}

void Group::note_wait(FlightRecord& record, const Operation::Wait& wait) const {
  record.phase = wait.phase;
  record.waits_for.clear();
  for (const int rank : wait.ranks) {
    record.waits_for.push_back(members_[static_cast<std::size_t>(rank)]);
  }
}

// Before the callers hear of it, who may end the process.
void Group::record_failures(const Status& why) {
  note_waits();
  for (const auto& [number, operation] : active_) {
    trace_end(operation->trace(), why);
  }
  for (const auto& [number, exchange] : mail_.under_way()) {
    trace_end(exchange.trace, why);
  }
  for (const Waiting& waiting : queue_) {
    services_.flight().end(waiting.record, why, Clock::now());
  }
  for (const auto& [number, waiting] : named_) {
    services_.flight().end(waiting.record, why, Clock::now());
  }
  services_.failed(why);
}

// It is on record all the same: calls that differ are found when the first ranks have made theirs, and what
// the others called shows who differs.
void Group::refuse(const Call& call) {
  const TimePoint now = Clock::now();
  const std::uint64_t number = number_of(call);
  const Status status(failed_.code(), "group '" + name_ + "' failed before: " + failed_.message() + " [" +
                                          describe(call.what) + ", " + name_operation(number) +
                                          " had not begun]");
  services_.flight().end(services_.flight().add(traced_, number, call.what, now, now), status, now);
  services_.failed(failed_);
  call.handle->complete(status);
}

}  // namespace smdp
