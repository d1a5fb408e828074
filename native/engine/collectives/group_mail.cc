// A group's calls that are made of messages: their beginning, their end, and how they fail.
#include <algorithm>

#include "collectives/group.h"

namespace smdp {
namespace {

constexpr double kArrivalGrace = 0.5;  // seconds that what a rank sent before it left may still be under way
constexpr double kAnswerPause = 0.25;  // seconds for the others to say whom they wait for
constexpr double kNews = 0.5;          // seconds for which what they said holds

bool is_collective(Collective collective) {
  return collective != Collective::kSend && collective != Collective::kRecv;
}

}  // namespace

void Group::submit_exchange(Waiting waiting) {
  waiting.record =
      services_.flight().add(traced_, waiting.number, waiting.call.what, waiting.submitted, waiting.deadline);
  Exchange exchange;
  exchange.number = waiting.number;
  exchange.deadline = waiting.deadline;
  const double left = std::chrono::duration<double>(waiting.deadline - waiting.submitted).count();
  exchange.warn_at = waiting.submitted + seconds(std::min(settings_.warn_s, left / 2));
  exchange.trace = trace_begin(waiting, waiting.submitted);
  if (is_collective(waiting.call.what.collective)) {
    exchange.sequence = next_message_collective_++;
  }
  exchange.call = std::move(waiting.call);
  mail_.begin(std::move(exchange));
}

void Group::exchanged(const Exchange& exchange) {
  trace_end(exchange.trace, {});
  exchange.call.handle->complete({});
}

bool Group::shares_host(int group_rank) const {
  return layout_.host_of[static_cast<std::size_t>(group_rank)] ==
         layout_.host_of[static_cast<std::size_t>(rank_)];
}

std::span<const std::byte> Group::peek(int group_rank, std::uint64_t offset, std::uint64_t bytes) {
  return services_.peek(members_[static_cast<std::size_t>(group_rank)], offset, bytes);
}

std::string Group::describe_wait(const Exchange& exchange) const {
  const Operation::Wait wait = mail_.waiting_for(exchange.number);
  return describe_wait(exchange.call.what, exchange.number, wait.phase, wait.ranks);
}

void Group::disagree(const Exchange& exchange, int with, const std::string& how) {
  fail({Code::kMismatch, name_operation(exchange.number) + " differs between ranks: " + describe_rank(rank_) +
                             " called " + describe(exchange.call.what) + ", " + describe_rank(with) + " " +
                             how},
       true);
}

void Group::overrun(int by) {
  fail({Code::kExhausted, describe_rank(rank_) + " has no room for more messages of group '" + name_ +
                              "' that it does not receive; the last came from " + describe_rank(by)},
       true);
}

void Group::fail_mail(const Status& why, std::optional<std::uint64_t> subject) {
  for (const std::uint64_t number : mail_.in_transit()) {
    services_.cancel(id_, number);
  }
  for (const auto& [number, exchange] : mail_.under_way()) {
    const std::string where = number == subject ? "" : " [" + describe_wait(exchange) + "]";
    if (!exchange.call.handle->is_complete()) {
      exchange.call.handle->complete({why.code(), why.message() + where});
    }
  }
  mail_.clear();
}

void Group::tick_mail(TimePoint now) {
  if (failed_.ok()) {
    mail_.pump();
  }
  std::vector<std::uint64_t> numbers;
  for (const auto& [number, exchange] : mail_.under_way()) {
    numbers.push_back(number);
  }
  for (const std::uint64_t number : numbers) {
    const auto found = mail_.under_way().find(number);
    if (found == mail_.under_way().end()) {
      continue;
    }
    Exchange& exchange = found->second;
    if (now >= exchange.deadline && !exchange.asked_at) {
      exchange.asked_at = now;
      tell_waits(now);
    } else if (exchange.asked_at && now >= *exchange.asked_at + seconds(kAnswerPause)) {
      const Operation::Wait wait = mail_.waiting_for(number);
      fail({Code::kTimeout, "the deadline passed " + describe_wait(exchange.call.what, number, wait.phase,
                                                                   mail_culprits(wait.ranks, now))},
           true, number);
      return;
    }
    if (now >= exchange.warn_at) {
      exchange.warn_at = TimePoint::max();
      services_.log(LogLevel::kWarning, "slow: " + describe_wait(exchange));
    }
    check_who_left(exchange, now);
  }
}

// The one that a rank waits for may itself wait for another. Told to all: each of them finds the end of such
// a chain.
void Group::tell_waits(TimePoint now) {
  std::set<int> awaited;
  const auto add = [&awaited](const std::vector<int>& ranks) { awaited.insert(ranks.begin(), ranks.end()); };
  for (const auto& [number, exchange] : mail_.under_way()) {
    add(mail_.waiting_for(number).ranks);
  }
  for (const auto& [number, operation] : active_) {
    add(operation->waiting_for().ranks);
  }
  told_own_waits_ = now;
  for (const int rank : awaited) {
    FrameHeader header;
    header.type = FrameType::kSuspect;
    header.operation = kMail;
    header.piece = static_cast<std::uint32_t>(rank);
    tell_all(header, nullptr);
  }
}

void Group::hear_waits(int from, int awaited, TimePoint now) {
  ToldWait& told = told_waits_[from];
  if (now - told.at > seconds(kNews)) {
    told.ranks.clear();
  }
  told.at = now;
  told.ranks.insert(awaited);
  if (awaited == rank_ && now - told_own_waits_ > seconds(kAnswerPause / 2)) {
    tell_waits(now);
  }
}

// Those at the ends of the chains that begin with the ranks waited for here.
std::vector<int> Group::mail_culprits(const std::vector<int>& awaited, TimePoint now) const {
  std::set<int> seen = {rank_};
  std::vector<int> next = awaited;
  std::vector<int> ends;
  while (!next.empty()) {
    const int rank = next.back();
    next.pop_back();
    if (!seen.insert(rank).second) {
      continue;
    }
    const auto told = told_waits_.find(rank);
    if (told == told_waits_.end() || now - told->second.at > seconds(kNews)) {
      ends.push_back(rank);
    } else {
      next.insert(next.end(), told->second.ranks.begin(), told->second.ranks.end());
    }
  }
  std::ranges::sort(ends);
  return ends.empty() ? awaited : ends;  // they wait for each other
}

// A rank that left owes nothing to those that do not wait for it, nor what is on its way; somebody that any
// rank will do for waits for all.
void Group::check_who_left(const Exchange& exchange, TimePoint now) {
  const std::vector<int> awaited =
      mail_.unanswered_by(exchange.number, [this](int rank) { return closed_.contains(rank); });
  const auto gone = [&](int rank) -> std::optional<std::string> {
    const auto closed = closed_.find(rank);
    if (closed != closed_.end() && now - closed->second > seconds(kArrivalGrace)) {
      return describe_rank(rank) + " closed its engine";
    }
    const auto left = std::ranges::find(departures_, rank, &Departure::rank);
    if (left != departures_.end() && now - left->at > seconds(kArrivalGrace)) {
      return describe_rank(rank) + " destroyed the group";
    }
    return std::nullopt;
  };
  const bool any = exchange.call.parts.size() == 1 && exchange.call.parts[0].peer == Part::kAnyRank;
  const auto count = std::ranges::count_if(awaited, [&](int rank) { return gone(rank).has_value(); });
  if (count == 0 || (any && std::cmp_less(count, awaited.size()))) {
    return;
  }
  const int first = *std::ranges::find_if(awaited, [&](int rank) { return gone(rank).has_value(); });
  fail({Code::kPeerLost, *gone(first) + " before it made the calls that others wait for"}, true);
}

}  // namespace smdp
