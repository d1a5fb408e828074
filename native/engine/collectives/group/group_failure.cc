// How a group fails: which failures it finds itself, how its calls end on all ranks, and the texts that
// describe them. Late and departed ranks are the failure detector's.
#include <algorithm>

#include "base/bytes.h"
#include "base/out_of_memory.h"
#include "collectives/group/group.h"
#include "net/call_number.h"

namespace smdp {
namespace {

constexpr double kReleaseGrace = 0.5;  // seconds for the ranks of the host to release a failed call's memory

}  // namespace

// --- Texts ---

std::string Group::describe_rank(int group_rank) const {
  return services_.layout().describe(members_[static_cast<std::size_t>(group_rank)]);
}

std::string Group::describe_call(std::uint64_t call) const {
  const auto number = [](std::uint64_t value) { return std::to_string(value); };
  const std::string which =
      is_message_call(call) ? "message call " + number(call & ~kMessageCall)
      : is_named(call) ? "buffer (step " + number(step_of(call)) + ", index " + number(index_of(call)) + ")"
                       : "operation " + number(call);
  return which + " of group '" + name_ + "'";
}

std::string Group::describe_wait(const Descriptor& what, std::uint64_t call,
                                 const Operation::Wait& wait) const {
  std::string text =
      "on " + describe_rank(rank_) + ": " + describe(what) + ", " + describe_call(call) + ", " + wait.phase;
  const char* separator = " of ";
  for (const int rank : wait.ranks) {
    text += separator + describe_rank(rank);
    separator = ", ";
  }
  return text;
}

// --- Causes ---

// Calls that are complete here complete without the departed rank, so they come first.
void Group::check_departures() {
  if (detector_.has_departures()) {
    inside_ = true;
    reap();
    detector_.check_departures();
  }
}

void Group::peer_lost(int job_rank, bool orderly, const Status& why) {
  const auto rank = rank_of(job_rank);
  if (!rank || !failed_.ok()) {
    return;
  }
  if (orderly) {
    detector_.on_closed_engine(*rank);
  } else {
    fail({Code::kPeerLost, describe_rank(*rank) + " was lost: " + why.message()});
  }
}

void Group::mismatch(int from, const FrameHeader& header, const Descriptor& ours) {
  const Descriptor& theirs = header.call;
  std::string what;
  const auto add = [&](const char* name, bool differs, const std::string& left, const std::string& right) {
    if (differs) {
      what += (what.empty() ? "" : ", ") + std::string(name) + " (" + left + " and " + right + ")";
    }
  };
  const auto add_name = [&](const char* name, auto left, auto right) {
    add(name, left != right, std::string(name_of(left)), std::string(name_of(right)));
  };
  const auto add_number = [&](const char* name, std::uint64_t left, std::uint64_t right) {
    add(name, left != right, std::to_string(left), std::to_string(right));
  };
  add_name("collective", ours.collective, theirs.collective);
  add_name("dtype", ours.dtype, theirs.dtype);
  add_number("size", ours.count, theirs.count);
  add_name("operation", ours.op, theirs.op);
  add_number(ours.collective == Collective::kAllReduce ? "number of buffers" : "root", ours.root,
             theirs.root);
  fail({Code::kMismatch, describe_call(header.operation) + " differs between ranks in " + what + ": " +
                             describe_rank(rank_) + " called " + describe(ours) + ", " + describe_rank(from) +
                             " called " + describe(theirs)});
}

void Group::disagree(const Exchange& exchange, int with, const std::string& how) {
  fail({Code::kMismatch, describe_call(exchange.number) + " differs between ranks: " + describe_rank(rank_) +
                             " called " + describe(exchange.call.what) + ", " + describe_rank(with) + " " +
                             how});
}

void Group::overrun(int by) {
  fail({Code::kExhausted, describe_rank(rank_) + " has no room for more messages of group '" + name_ +
                              "' that it does not receive; the last came from " + describe_rank(by)});
}

bool Group::is_starved() const {
  return std::ranges::any_of(calls_.running(),
                             [](const auto& entry) { return entry.second->starved_since().has_value(); });
}

// A call that has no memory waits until other calls free some. Where only failed calls hold memory, and their
// readers do not release it, the wait would not end.
bool Group::check_memory(TimePoint now) {
  const auto starved = std::ranges::find_if(calls_.running(), [now](const auto& entry) {
    const auto since = entry.second->starved_since();
    return since && now - *since > seconds(kReleaseGrace);
  });
  if (starved == calls_.running().end() || !services_.is_held_by_failures()) {
    return false;
  }
  fail({Code::kExhausted,
        describe_rank(rank_) + " has no shared memory left for " + describe(starved->second->call().what) +
            ", " + describe_call(starved->first) +
            ": other ranks of its host have not released the memory of failed calls (SMDP_ARENA_MIB)"},
       starved->first);
  return true;
}

// The other ranks complete without this rank what is complete here: everything it owed them is sent.
void Group::leave(Leaving how) {
  if (failed_.ok()) {
    FrameHeader header;
    header.type = FrameType::kLeave;
    header.piece = static_cast<std::uint32_t>(how);
    header.operation = calls_.first_open(false);
    header.offset = calls_.first_open(true);
    send_to_others(header);
  }
  const bool closes = how == Leaving::kClosesEngine;
  fail_here({Code::kClosed, closes ? "the engine was closed" : "the group was destroyed"});
}

// --- The end of the calls ---

// Nothing else completes these calls.
void Group::fail_calls(const Status& why, bool on_all_ranks, std::optional<std::uint64_t> subject) {
  if (failed_.ok()) {
    with_second_try([&] { end_calls(why, on_all_ranks, subject); });
  }
}

void Group::end_calls(const Status& why, bool on_all_ranks, std::optional<std::uint64_t> subject) {
  failed_ = why;
  if (on_all_ranks) {
    FrameHeader header;
    header.type = FrameType::kAbort;
    const std::string text = why.message().substr(0, kMaxText - 16);
    const Bytes bytes = Writer().put(static_cast<std::uint8_t>(why.code())).text(text).take();
    send_to_others(header, std::make_shared<std::vector<std::byte>>(bytes));
  }
  record_failures(why);
  end_running(why, subject);
  end_exchanges(why, subject);
  end_queued(why);
  early_.clear();
  give_up_memory();  // last: once it is done, another try does not know which ranks have released their parts
}

// The operations are destroyed on the loop's next turn: one of them may be the caller.
void Group::end_running(const Status& why, std::optional<std::uint64_t> subject) {
  auto ended = std::make_shared<std::vector<std::unique_ptr<Operation>>>();
  OpenCalls::Running& running = calls_.running();
  ended->reserve(running.size());
  services_.later([ended] {});
  while (!running.empty()) {
    const auto first = running.begin();
    Operation& operation = *first->second;
    operation.abandon();
    services_.cancel(id_, first->first);
    const std::string where =
        first->first == subject
            ? ""
            : " [" + describe_wait(operation.call().what, first->first, operation.waiting_for()) + "]";
    operation.call().handle->complete({why.code(), why.message() + where});
    ended->push_back(std::move(first->second));
    running.erase(first);
  }
  finished_.clear();
}

void Group::end_exchanges(const Status& why, std::optional<std::uint64_t> subject) {
  for (const std::uint64_t number : messages_.in_transit()) {
    services_.cancel(id_, number);
  }
  for (const auto& [number, exchange] : messages_.exchanges()) {
    const std::string where =
        number == subject
            ? ""
            : " [" + describe_wait(exchange.call.what, number, messages_.waiting_for(exchange)) + "]";
    if (!exchange.call.handle->is_complete()) {
      exchange.call.handle->complete({why.code(), why.message() + where});
    }
  }
  messages_.clear();
}

void Group::end_queued(const Status& why) {
  calls_.for_each_queued([&](const QueuedCall& queued) {
    if (!queued.call.handle->is_complete()) {
      queued.call.handle->complete(
          {why.code(), why.message() + " [" + describe_call(queued.number) + " had not begun]"});
    }
  });
  calls_.clear_queued();
}

// Before the callers learn of the failure: they may end the process.
void Group::record_failures(const Status& why) {
  note_waits();
  for (const auto& [number, operation] : calls_.running()) {
    records_.end(operation->trace(), why);
  }
  for (const auto& [number, exchange] : messages_.exchanges()) {
    records_.end(exchange.trace, why);
  }
  calls_.for_each_queued([&](const QueuedCall& queued) { records_.end(queued.record, why); });
  services_.failed(why);
}

void Group::note_waits() {
  for (const auto& [number, operation] : calls_.running()) {
    if (FlightRecord* record = records_.find(operation->trace())) {
      records_.note_wait(*record, operation->waiting_for());
    }
  }
  for (const auto& [number, exchange] : messages_.exchanges()) {
    if (FlightRecord* record = records_.find(exchange.trace)) {
      records_.note_wait(*record, messages_.waiting_for(exchange));
    }
  }
}

// No call of this rank reads or writes any more. Each rank of the host reports that to the ranks whose memory
// it may have been reading.
void Group::give_up_memory() {
  std::vector<int> mates;
  for (const int mate : layout_.mates_of(rank_)) {
    if (mate != rank_) {
      mates.push_back(members_[static_cast<std::size_t>(mate)]);
      FrameHeader header;
      header.type = FrameType::kReleased;
      header.group = id_;
      services_.send(mates.back(), {header, {}, nullptr, nullptr});
    }
  }
  services_.retire(id_, regions_, mates);
}

}  // namespace smdp
