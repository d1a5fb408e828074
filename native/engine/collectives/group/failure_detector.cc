#include "collectives/group/failure_detector.h"

#include <algorithm>
#include <utility>

#include "net/call_number.h"

namespace smdp {
namespace {

constexpr double kReportTime = 0.25;  // seconds for the reports of the other ranks to arrive
constexpr double kReportLife = 0.5;   // seconds for which a wait report holds
constexpr double kArrivalTime = 0.5;  // seconds for what a rank sent before it left to arrive
constexpr const char* kHasClosed = " ended or closed its engine";
constexpr double kClosedGrace = 0.5;  // seconds that calls may run after a rank closed its engine

FrameHeader suspicion_of(int rank) {
  FrameHeader header;
  header.type = FrameType::kSuspect;
  header.piece = static_cast<std::uint32_t>(rank);
  return header;
}

}  // namespace

// --- Ranks that left ---

void FailureDetector::on_departure(int from, Leaving how, std::uint64_t first, std::uint64_t first_named) {
  departures_.push_back({from, how, first, first_named, Clock::now()});
}

void FailureDetector::on_closed_engine(int rank) { closed_.emplace(rank, Clock::now()); }

// The group fails on all ranks: the departing rank's own frame may not reach all of them, and those that it
// does not reach would blame the ranks that fail because of it.
void FailureDetector::check_departures() {
  for (const Departure& departure : departures_) {
    for (const bool named : {false, true}) {
      const std::uint64_t open = calls_.first_open(named);
      if (calls_.has_open(named) && open >= (named ? departure.first_named : departure.first)) {
        host_.fail({Code::kPeerLost,
                    describe(departure) + " before " + host_.describe_call(open) + " was complete there"});
        return;
      }
    }
  }
}

std::string FailureDetector::describe(const Departure& departure) const {
  const bool closed = departure.how == Leaving::kClosesEngine;
  return host_.describe_rank(departure.rank) + (closed ? kHasClosed : " destroyed the group");
}

// A rank that was in the group has reported how far it took part. It owes nothing up to there, however long
// the other ranks take.
void FailureDetector::check_closed_engines(TimePoint now) {
  for (const auto& [rank, at] : closed_) {
    const bool has_left = std::ranges::find(departures_, rank, &Departure::rank) != departures_.end();
    if (!has_left && !calls_.empty() && now - at > seconds(kClosedGrace)) {
      host_.fail({Code::kPeerLost,
                  host_.describe_rank(rank) + kHasClosed + " without making the calls of the others"});
      return;
    }
  }
}

// --- Late ranks ---

bool FailureDetector::on_suspicion(int from, const FrameHeader& header) {
  if (header.piece >= group_.members.size()) {
    return false;
  }
  const auto suspect = static_cast<int>(header.piece);
  if (is_message_call(header.operation)) {
    add_wait_report(from, suspect, Clock::now());
    return true;
  }
  if (suspect == rank_) {
    repeat_reports(header.operation, Clock::now());
  }
  if (Operation* operation = calls_.find(header.operation)) {
    operation->watch().reporters.insert(from);
    operation->watch().suspects.insert(suspect);
  } else if (!calls_.is_ahead(header.operation)) {
    Suspicion& suspicion = suspicions_[from];
    if (suspicion.call != header.operation) {
      suspicion = {header.operation, {}};
    }
    suspicion.suspects.insert(suspect);
  }
  return true;
}

// Other ranks wait for this rank in a later call, and this rank is still in an earlier one. They dropped its
// report about the earlier call when they completed that call.
void FailureDetector::repeat_reports(std::uint64_t awaited_in, TimePoint now) {
  for (const auto& [call, operation] : calls_.running()) {
    const auto& report = operation->watch().report;
    if (report && now - report->at > seconds(kReportTime) && is_later(awaited_in, call)) {
      report_wait(*operation, now);
    }
  }
}

void FailureDetector::on_frame(int from, std::uint64_t call) {
  if (suspicions_.empty()) {
    return;
  }
  const auto found = suspicions_.find(from);
  if (found != suspicions_.end() && is_later(call, found->second.call)) {
    suspicions_.erase(found);
  }
}

void FailureDetector::on_complete(std::uint64_t call) {
  std::erase_if(suspicions_, [=](const auto& entry) { return is_later(call, entry.second.call); });
}

// Where the ranks that this rank waits for changed shortly before the deadline, the time for reports goes
// beyond it.
void FailureDetector::check_operation(Operation& operation, TimePoint now) {
  Operation::Watch& watch = operation.watch();
  if (now >= operation.deadline()) {
    const bool is_outdated = !watch.report || watch.report->ranks != operation.waiting_for().ranks;
    if (is_outdated && now < operation.deadline() + seconds(kReportTime)) {
      report_wait_and_pause(operation, now);
    } else if (!watch.report ||
               now >= std::min(operation.deadline(), watch.report->at) + seconds(kReportTime)) {
      host_.fail({Code::kTimeout, "the deadline passed " + describe_causes(operation)}, operation.number());
    }
    return;
  }
  if (now < watch.warn_at) {
    return;
  }
  if (!watch.report) {
    report_wait_and_pause(operation, now);
  } else if (warned_ && calls_.find(*warned_) != nullptr) {
    watch.warn_at = now + seconds(warn_s_);  // the calls behind the slow one wait for the same ranks
  } else {
    warned_ = operation.number();
    watch.warn_at = TimePoint::max();
    host_.warn("slow: " + describe_causes(operation));
  }
}

void FailureDetector::report_wait_and_pause(Operation& operation, TimePoint now) {
  report_wait(operation, now);
  operation.watch().warn_at = now + seconds(kReportTime);
}

void FailureDetector::report_wait(Operation& operation, TimePoint now) {
  operation.watch().report = {now, operation.waiting_for().ranks};
  for (const int rank : operation.watch().report->ranks) {
    FrameHeader header = suspicion_of(rank);
    header.call = operation.call().what;
    header.operation = operation.number();
    host_.send_to_others(header);
  }
}

// The ranks that some rank waits for, and that report no wait of their own, in this call or in another one
// that runs: a rank that reports a wait in another call may not have made this one yet. Where that leaves
// no rank, the cause is in the other calls. `operation` runs.
std::vector<int> FailureDetector::find_causes(Operation& operation) const {
  std::vector<int> direct = operation.waiting_for().ranks;
  std::set<int> suspects = operation.watch().suspects;
  suspects.insert(direct.begin(), direct.end());
  std::set<int> reporters;
  for (const auto& [rank, suspicion] : suspicions_) {
    reporters.insert(rank);
    suspects.insert(suspicion.suspects.begin(), suspicion.suspects.end());
  }
  std::set<int> suspects_in_any_call;
  for (const auto& [call, other] : calls_.running()) {
    const Operation::Watch& watch = other->watch();
    reporters.insert(watch.reporters.begin(), watch.reporters.end());
    suspects_in_any_call.insert(watch.suspects.begin(), watch.suspects.end());
  }
  for (const std::set<int>* const among : {&suspects, &suspects_in_any_call}) {
    std::vector<int> causes;
    std::ranges::copy_if(*among, std::back_inserter(causes),
                         [&](int rank) { return rank != rank_ && !reporters.contains(rank); });
    if (!causes.empty()) {
      return causes;
    }
  }
  return direct;
}

std::string FailureDetector::describe_causes(Operation& operation) const {
  return host_.describe_wait(operation.call().what, operation.number(),
                             {operation.waiting_for().phase, find_causes(operation)});
}

// A call that has not begun fails with the one that runs, where the deadlines of both have passed.
void FailureDetector::check_queue(TimePoint now) {
  const bool awaits_reports = std::ranges::any_of(
      calls_.running(), [now](const auto& entry) { return now >= entry.second->deadline(); });
  const TimePoint limit = awaits_reports ? now - seconds(kReportTime) : now;
  bool is_late = false;
  calls_.for_each_queued([&](const QueuedCall& call) { is_late = is_late || limit >= call.deadline; });
  if (is_late && !host_.has_failed()) {
    host_.fail({Code::kTimeout, "a deadline passed for a call of group '" + group_.name + "' on " +
                                    host_.describe_rank(rank_) +
                                    " that had not begun: earlier calls were not complete"});
  }
}

// --- Calls made of messages ---

void FailureDetector::check_messages(TimePoint now) {
  const bool some_left = !closed_.empty() || !departures_.empty();
  for (auto& [number, exchange] : messages_.exchanges()) {
    if (now >= exchange.deadline && !exchange.reported_at) {
      exchange.reported_at = now;
      if (own_waits_reported_at_ != now) {
        report_message_waits(now);
      }
    } else if (exchange.reported_at && now >= *exchange.reported_at + seconds(kReportTime)) {
      Operation::Wait wait = messages_.waiting_for(exchange);
      wait.ranks = ends_of_wait_chains(wait.ranks, now);
      host_.fail(
          {Code::kTimeout, "the deadline passed " + host_.describe_wait(exchange.call.what, number, wait)},
          number);
      return;
    }
    if (now >= exchange.warn_at) {
      warn_of_message(exchange, now);
    }
    if (some_left && !check_absent_peers(exchange, now)) {
      return;
    }
  }
}

// One line for all messages that wait, with the oldest.
void FailureDetector::warn_of_message(Exchange& exchange, TimePoint now) {
  const auto& exchanges = messages_.exchanges();
  if (warned_message_ && exchanges.contains(*warned_message_)) {
    exchange.warn_at = now + seconds(warn_s_);
    return;
  }
  warned_message_ = exchange.number;
  exchange.warn_at = TimePoint::max();
  std::string text =
      "slow: " + host_.describe_wait(exchange.call.what, exchange.number, messages_.waiting_for(exchange));
  std::set<int> awaited;
  for (const auto& [number, other] : exchanges) {
    if (number != exchange.number) {
      const std::vector<int> ranks = messages_.waiting_for(other).ranks;
      awaited.insert(ranks.begin(), ranks.end());
    }
  }
  const std::size_t others = exchanges.size() - 1;
  if (others > 0) {
    text += "; " + std::to_string(others) + " more message " + (others > 1 ? "calls" : "call") +
            " of the group " + (others > 1 ? "wait" : "waits");
  }
  const char* separator = " for ";
  for (const int rank : awaited) {
    text += separator + host_.describe_rank(rank);
    separator = ", ";
  }
  host_.warn(text);
}

// The rank that this rank waits for may itself wait for another. The report goes to all ranks, so that each
// finds the end of such a chain.
void FailureDetector::report_message_waits(TimePoint now) {
  std::set<int> awaited;
  const auto add = [&awaited](const std::vector<int>& ranks) { awaited.insert(ranks.begin(), ranks.end()); };
  for (const auto& [number, exchange] : messages_.exchanges()) {
    add(messages_.waiting_for(exchange).ranks);
  }
  for (const auto& [number, operation] : calls_.running()) {
    add(operation->waiting_for().ranks);
  }
  own_waits_reported_at_ = now;
  for (const int rank : awaited) {
    FrameHeader header = suspicion_of(rank);
    header.operation = kMessageCall;
    host_.send_to_others(header);
  }
}

void FailureDetector::add_wait_report(int from, int awaited, TimePoint now) {
  WaitReport& report = wait_reports_[from];
  if (now - report.at > seconds(kReportLife)) {
    report.ranks.clear();
  }
  report.at = now;
  report.ranks.insert(awaited);
  if (awaited == rank_ && now - own_waits_reported_at_ > seconds(kReportTime / 2)) {
    report_message_waits(now);
  }
}

std::vector<int> FailureDetector::ends_of_wait_chains(const std::vector<int>& awaited, TimePoint now) const {
  std::set<int> visited = {rank_};
  std::vector<int> next = awaited;
  std::vector<int> ends;
  while (!next.empty()) {
    const int rank = next.back();
    next.pop_back();
    if (!visited.insert(rank).second) {
      continue;
    }
    const auto report = wait_reports_.find(rank);
    if (report == wait_reports_.end() || now - report->second.at > seconds(kReportLife)) {
      ends.push_back(rank);
    } else {
      next.insert(next.end(), report->second.ranks.begin(), report->second.ranks.end());
    }
  }
  std::ranges::sort(ends);
  return ends.empty() ? awaited : ends;  // they wait for each other
}

// Empty: the rank is there, or what it sent before it left may still arrive.
std::optional<std::string> FailureDetector::describe_absence(int rank, TimePoint now) const {
  const auto closed = closed_.find(rank);
  if (closed != closed_.end() && now - closed->second > seconds(kArrivalTime)) {
    return host_.describe_rank(rank) + kHasClosed;
  }
  const auto left = std::ranges::find(departures_, rank, &Departure::rank);
  if (left != departures_.end() && now - left->at > seconds(kArrivalTime)) {
    return describe(*left);
  }
  return std::nullopt;
}

// False: the group has failed. A rank that left owes nothing to ranks that do not wait for it. A receive from
// any rank fails only when all ranks left.
bool FailureDetector::check_absent_peers(const Exchange& exchange, TimePoint now) {
  const std::vector<int> awaited =
      messages_.unanswered_by(exchange, [this](int rank) { return closed_.contains(rank); });
  const bool any = exchange.call.parts.size() == 1 && exchange.call.parts[0].peer == Part::kAnyRank;
  const auto is_absent = [&](int rank) { return describe_absence(rank, now).has_value(); };
  const auto count = std::ranges::count_if(awaited, is_absent);
  if (count == 0 || (any && std::cmp_less(count, awaited.size()))) {
    return true;
  }
  const int first = *std::ranges::find_if(awaited, is_absent);
  host_.fail(
      {Code::kPeerLost, *describe_absence(first, now) + " before it made the calls that others wait for"});
  return false;
}

}  // namespace smdp
