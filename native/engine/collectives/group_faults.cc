// How a group fails, on all its ranks at once, and how it finds words for it: calls that differ, ranks that
// are lost, leave or are late.
#include <algorithm>

#include "base/bytes.h"
#include "collectives/group.h"

namespace smdp {
namespace {

constexpr double kLeaveGrace = 0.5;     // seconds that operations may go on after a member closed unsaid
constexpr double kWitnessPause = 0.25;  // seconds for the other ranks' suspicions to arrive
constexpr double kReleaseGrace =
    0.5;  // seconds for the host's other ranks to let go of a failed call's memory

std::string number(std::uint64_t value) { return std::to_string(value); }

}  // namespace

std::string Group::name_operation(std::uint64_t operation) const {
  const std::string which = is_mail(operation) ? "message call " + number(operation & ~kMail)
                            : (operation & kNamed) != 0
                                ? "buffer (step " + number((operation & ~kNamed) >> 32U) + ", index " +
                                      number(operation & 0xffffffffU) + ")"
                                : "operation " + number(operation);
  return which + " of group '" + name_ + "'";
}

std::string Group::describe_wait(const Operation& operation, const std::vector<int>& ranks) const {
  return describe_wait(operation.call().what, operation.number(), operation.waiting_for().phase, ranks);
}

std::string Group::describe_wait(const Descriptor& what, std::uint64_t operation, const std::string& phase,
                                 const std::vector<int>& ranks) const {
  std::string text =
      "on " + describe_rank(rank_) + ": " + describe(what) + ", " + name_operation(operation) + ", " + phase;
  const char* separator = " of ";
  for (const int rank : ranks) {
    text += separator + describe_rank(rank);
    separator = ", ";
  }
  return text;
}

bool Group::hear_suspicion(int from, const FrameHeader& header) {
  if (header.piece >= members_.size()) {
    return false;
  }
  const auto suspect = static_cast<int>(header.piece);
  if (is_mail(header.operation)) {
    hear_waits(from, suspect, Clock::now());
    return true;
  }
  if (suspect == rank_) {
    tell_why_behind(header.operation, Clock::now());
  }
  const auto found = active_.find(header.operation);
  if (found != active_.end()) {
    found->second->witnesses().insert(from);
    found->second->suspects().insert(suspect);
  } else if (!is_ahead(header.operation)) {
    Hearsay& heard = hearsay_[from];
    if (heard.operation != header.operation) {
      heard = {header.operation, {}};
    }
    heard.suspects.insert(suspect);
  }
  return true;
}

// Others wait for this rank in a later call, and it is still in this one. What it said of this one they
// dropped when they completed it, so it says it again.
void Group::tell_why_behind(std::uint64_t awaited_in, TimePoint now) {
  for (const auto& [number, operation] : active_) {
    const bool is_told = operation->told() && now - operation->told()->at > seconds(kWitnessPause);
    if (is_told && is_later(awaited_in, number)) {
      say_suspicions(*operation, now);
    }
  }
}

// Who goes on to later calls waits for nobody in an earlier one, or says so in the later ones too.
void Group::forget_hearsay(int from, std::uint64_t operation) {
  const auto heard = hearsay_.find(from);
  if (heard != hearsay_.end() && is_later(operation, heard->second.operation)) {
    hearsay_.erase(heard);
  }
}

std::vector<int> Group::culprits(Operation& operation) const {
  const std::vector<int> direct = operation.waiting_for().ranks;
  std::set<int> all = operation.suspects();
  all.insert(direct.begin(), direct.end());
  std::set<int> witnesses = operation.witnesses();
  for (const auto& [rank, heard] : hearsay_) {
    witnesses.insert(rank);
    all.insert(heard.suspects.begin(), heard.suspects.end());
  }
  std::vector<int> left;
  std::ranges::copy_if(all, std::back_inserter(left),
                       [&](int rank) { return rank != rank_ && !witnesses.contains(rank); });
  return left.empty() ? direct : left;
}

void Group::mismatch(int from, const FrameHeader& header, const Descriptor& ours) {
  const Descriptor& theirs = header.call;
  std::string what;
  const auto add = [&](const char* name, bool differs, const std::string& left, const std::string& right) {
    if (differs) {
      what += (what.empty() ? "" : ", ") + std::string(name) + " (" + left + " and " + right + ")";
    }
  };
  add("collective", ours.collective != theirs.collective, std::string(name_of(ours.collective)),
      std::string(name_of(theirs.collective)));
  add("dtype", ours.dtype != theirs.dtype, std::string(name_of(ours.dtype)),
      std::string(name_of(theirs.dtype)));
  add("size", ours.count != theirs.count, number(ours.count), number(theirs.count));
  add("operation", ours.op != theirs.op, std::string(name_of(ours.op)), std::string(name_of(theirs.op)));
  add(ours.collective == Collective::kAllReduce ? "number of buffers" : "root", ours.root != theirs.root,
      number(ours.root), number(theirs.root));
  fail({Code::kMismatch, name_operation(header.operation) + " differs between ranks in " + what + ": " +
                             describe_rank(rank_) + " called " + describe(ours) + ", " + describe_rank(from) +
                             " called " + describe(theirs)},
       true);
}

void Group::tell_all(FrameHeader header, const std::shared_ptr<std::vector<std::byte>>& payload) {
  header.group = id_;
  for (const int member : members_) {
    if (member != members_[static_cast<std::size_t>(rank_)]) {
      const auto bytes = payload ? std::span<const std::byte>(*payload) : std::span<const std::byte>();
      services_.send(member, {header, bytes, payload, nullptr});
    }
  }
}

// A call that is not ended here would be nobody's, so where memory is lost on the way, the rest is ended in a
// second try. Noexcept: where there is none for that either, the process ends, and the others hear that.
void Group::fail(const Status& why, bool tell, std::optional<std::uint64_t> subject) {
  if (!failed_.ok()) {
    return;
  }
  try {
    end_calls(why, tell, subject);
  } catch (const std::bad_alloc&) {
    [&]() noexcept { end_calls(why, tell, subject); }();
  }
}

void Group::end_calls(const Status& why, bool tell, std::optional<std::uint64_t> subject) {
  failed_ = why;
  if (tell) {
    FrameHeader header;
    header.type = FrameType::kAbort;
    const std::string text = why.message().substr(0, kMaxText - 16);
    const Bytes bytes = Writer().put(static_cast<std::uint8_t>(why.code())).text(text).take();
    tell_all(header, std::make_shared<std::vector<std::byte>>(bytes));
  }
  record_failures(why);
  end_active(why, subject);
  fail_mail(why, subject);
  give_up_memory();
  const auto end_waiting = [&](const Waiting& waiting) {
    if (!waiting.call.handle->is_complete()) {
      waiting.call.handle->complete(
          {why.code(), why.message() + " [" + name_operation(waiting.number) + " had not begun]"});
    }
  };
  std::ranges::for_each(queue_, end_waiting);
  for (const auto& [operation, waiting] : named_) {
    end_waiting(waiting);
  }
  queue_.clear();
  named_.clear();
  parked_.clear();
}

// The operations die on the next turn: one of them may be the caller.
void Group::end_active(const Status& why, std::optional<std::uint64_t> subject) {
  auto dying = std::make_shared<std::vector<std::unique_ptr<Operation>>>();
  dying->reserve(active_.size());
  services_.later([dying] {});
  while (!active_.empty()) {
    const auto first = active_.begin();
    Operation& running = *first->second;
    running.abandon();
    services_.cancel(id_, first->first);
    const std::string where =
        first->first == subject ? "" : " [" + describe_wait(running, running.waiting_for().ranks) + "]";
    running.call().handle->complete({why.code(), why.message() + where});
    dying->push_back(std::move(first->second));
    active_.erase(first);
  }
  finished_.clear();
}

// No call reads or writes any more. Each rank of the host says so to the others, whose memory it may have
// been reading.
void Group::give_up_memory() {
  std::vector<int> mates;
  for (const int mate : of_this_host()) {
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

bool Group::is_starved() const {
  return std::ranges::any_of(active_,
                             [](const auto& entry) { return entry.second->starved_since().has_value(); });
}

// A call that has no memory waits for what other calls give back. Where only failed ones have any, whose
// readers say nothing, there is nothing to wait for.
bool Group::check_memory(TimePoint now) {
  const auto starved = std::ranges::find_if(active_, [now](const auto& entry) {
    const auto since = entry.second->starved_since();
    return since && now - *since > seconds(kReleaseGrace);
  });
  if (starved == active_.end() || !services_.is_held_by_failures()) {
    return false;
  }
  fail({Code::kExhausted,
        describe_rank(rank_) + " has no shared memory left for " + describe(starved->second->call().what) +
            ", " + name_operation(starved->first) +
            ": other ranks of its host have not let go of that of calls that failed (SMDP_ARENA_MIB)"},
       true, starved->first);
  return true;
}

std::uint64_t Group::first_open(bool named) const {
  const auto oldest = active_.lower_bound(named ? kNamed : 0);
  if (oldest != active_.end() && ((oldest->first & kNamed) != 0) == named) {
    return oldest->first;
  }
  return named ? kNamed | next_step_ << 32U | next_index_ : begun_;
}

bool Group::has_open(bool named) const {
  return named ? !named_.empty() || active_.lower_bound(kNamed) != active_.end()
               : first_open(false) < next_number_;
}

// What this rank has completed, the others complete without it: all it owed them is on its way.
void Group::leave() {
  if (failed_.ok()) {
    FrameHeader header;
    header.type = FrameType::kLeave;
    header.operation = first_open(false);
    header.offset = first_open(true);
    tell_all(header, nullptr);
  }
  fail({Code::kClosed, "the group was destroyed"}, false);
}

// Told on: its word may not reach all, and those whom it misses would blame the ranks that fail of it and
// close. What is complete here ends well before.
void Group::check_departures() {
  if (departures_.empty()) {
    return;
  }
  inside_ = true;
  reap();
  for (const Departure& departure : departures_) {
    for (const bool named : {false, true}) {
      const std::uint64_t open = first_open(named);
      if (has_open(named) && open >= (named ? departure.first_named : departure.first)) {
        fail({Code::kPeerLost, describe_rank(departure.rank) + " destroyed the group before " +
                                   name_operation(open) + " was complete there"},
             true);
        return;
      }
    }
  }
}

// One that destroyed the group before has said how far it went, and owes nothing up to there, however long
// the others take.
void Group::check_closed(TimePoint now) {
  for (const auto& [rank, at] : closed_) {
    const bool told =
        std::ranges::any_of(departures_, [&](const Departure& one) { return one.rank == rank; });
    if (!told && in_collectives() && now - at > seconds(kLeaveGrace)) {
      fail({Code::kPeerLost,
            describe_rank(rank) + " closed its engine without making the calls of the others"},
           true);
      return;
    }
  }
}

void Group::peer_lost(int job_rank, bool orderly, const Status& why) {
  const auto rank = rank_of(job_rank);
  if (!rank || !failed_.ok()) {
    return;
  }
  if (orderly) {
    closed_.emplace(*rank, Clock::now());
    return;
  }
  fail({Code::kPeerLost, services_.layout().describe(job_rank) + " was lost: " + why.message()}, true);
}

void Group::tick(TimePoint now) {
  if (!failed_.ok()) {
    return;
  }
  inside_ = true;
  std::vector<std::uint64_t> running;
  running.reserve(active_.size());
  for (const auto& [operation, state] : active_) {
    running.push_back(operation);
  }
  for (const std::uint64_t operation : running) {
    if (const auto found = active_.find(operation); found != active_.end()) {
      found->second->advance();
    }
  }
  reap();
  check_departures();
  if (!failed_.ok() || check_memory(now)) {
    return;
  }
  check_closed(now);
  tick_mail(now);
  for (const std::uint64_t operation : running) {
    if (const auto found = active_.find(operation); found != active_.end() && failed_.ok()) {
      check_times(*found->second, now);
    }
  }
  check_queue(now);
}

// Calls that have not begun, which end with the one that is under way where its deadline has passed, too.
void Group::check_queue(TimePoint now) {
  const bool is_settling =
      std::ranges::any_of(active_, [now](const auto& entry) { return now >= entry.second->deadline(); });
  const TimePoint passed = is_settling ? now - seconds(kWitnessPause) : now;
  const auto is_late = [passed](const Waiting& waiting) { return passed >= waiting.deadline; };
  const bool queue_late = std::ranges::any_of(queue_, is_late);
  if (failed_.ok() &&
      (queue_late || std::ranges::any_of(named_, [&](const auto& entry) { return is_late(entry.second); }))) {
    fail({Code::kTimeout, "a deadline passed for a call of group '" + name_ + "' on " + describe_rank(rank_) +
                              " that had not begun: earlier calls were not complete"},
         true);
  }
}

// The rank to blame is known a moment after all have said for whom they wait. Where that changed shortly
// before the deadline, the moment goes beyond it.
void Group::check_times(Operation& operation, TimePoint now) {
  const auto& told = operation.told();
  if (now >= operation.deadline()) {
    const bool is_news = !told || told->ranks != operation.waiting_for().ranks;
    if (is_news && now < operation.deadline() + seconds(kWitnessPause)) {
      tell_suspicions(operation, now);
    } else if (!told || now >= std::min(operation.deadline(), told->at) + seconds(kWitnessPause)) {
      fail({Code::kTimeout, "the deadline passed " + describe_wait(operation, culprits(operation))}, true,
           operation.number());
    }
    return;
  }
  if (!told && now >= operation.warn_at()) {
    tell_suspicions(operation, now);
    return;
  }
  if (now < operation.warn_at()) {
    return;
  }
  if (warned_ && active_.contains(*warned_)) {
    operation.warn_again_at(now + seconds(settings_.warn_s));  // those behind it wait for the same
    return;
  }
  warned_ = operation.number();
  operation.warn_again_at(TimePoint::max());
  services_.log(LogLevel::kWarning, "slow: " + describe_wait(operation, culprits(operation)));
}

void Group::tell_suspicions(Operation& operation, TimePoint now) {
  say_suspicions(operation, now);
  operation.warn_again_at(now + seconds(kWitnessPause));
}

void Group::say_suspicions(Operation& operation, TimePoint now) {
  operation.tells({now, operation.waiting_for().ranks});
  for (const int rank : operation.told()->ranks) {
    FrameHeader header;
    header.type = FrameType::kSuspect;
    header.call = operation.call().what;
    header.operation = operation.number();
    header.piece = static_cast<std::uint32_t>(rank);
    tell_all(header, nullptr);
  }
}

}  // namespace smdp
