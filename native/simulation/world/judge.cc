// Checks that hold at the end of every job, whatever faults it had.
#include <algorithm>
#include <cctype>
#include <string_view>

#include "job.h"

namespace smdp::simulation {
namespace {

constexpr std::chrono::milliseconds kJustMade{500};  // a call that the other ranks may not know of yet
constexpr double kSlack = 1.5;  // seconds for the ticks and the frames between a failure and its report

// The ranks that a message names, which it names with their hosts.
std::vector<int> named_in(std::string_view text) {
  static constexpr std::string_view kMark = "rank ";
  std::vector<int> ranks;
  for (std::size_t at = text.find(kMark); at != text.npos; at = text.find(kMark, at)) {
    at += kMark.size();
    std::size_t end = at;
    while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end])) != 0) {
      ++end;
    }
    if (end > at && text.substr(end, 7) == " (host ") {
      ranks.push_back(std::stoi(std::string(text.substr(at, end - at))));
    }
    at = end;
  }
  return ranks;
}

// The text behind the first `mark`, or empty.
std::string_view behind(std::string_view text, std::string_view mark) {
  const std::size_t at = text.find(mark);
  return at == text.npos ? std::string_view() : text.substr(at + mark.size());
}

// A message gives the reason why a group failed, and in brackets the state of the call.
std::string_view cause_in(std::string_view message) {
  if (const auto before = behind(message, " failed before: "); !before.empty()) {
    message = before;
  }
  return message.substr(0, message.find(" ["));
}

// The ranks that a message blames: the rank that it begins with or, where a deadline passed, the ranks that
// were waited for.
std::vector<int> blamed_in(std::string_view cause, Code code) {
  if (code != Code::kTimeout) {
    return named_in(cause);
  }
  const auto wait = behind(behind(cause, " of group '"), "', ");
  return named_in(wait.empty() ? cause : wait);
}

std::string list(const std::set<int>& ranks) {
  std::string text;
  for (const int rank : ranks) {
    text += (text.empty() ? "" : ", ") + std::to_string(rank);
  }
  return text;
}

}  // namespace

void Job::judge() {
  for (int rank = 0; rank < size(); ++rank) {
    for (const auto& made : at(rank).made) {
      if (!made->is_over()) {
        continue;  // reported already as not ended
      }
      const std::string name = "call " + std::to_string(made->number) + " on rank " + std::to_string(rank);
      verdict_.ends.push_back({rank, made->number, made->status()});
      if (made->status().ok()) {
        judge_success(name, rank, *made);
      } else if (!at(rank).is_gone) {
        ++verdict_.failures;
        judge_error(name, rank, *made);
        if (made->refused.ok() && made->values.digest() != made->digest) {
          wrong(name + ": its memory was written to after it had failed");
        }
      }
    }
    if (!at(rank).is_gone) {
      judge_usage(rank);
    }
  }
}

// Its result is right, and no rank completes a call before every rank of the group has made it.
void Job::judge_success(const std::string& name, int rank, const CallOnRank& made) {
  const PlannedCall& planned = plan_.calls[made.number];
  if (!at(rank).is_gone && !reference_.agrees(made.values, made.number, made.what, made.group_rank)) {
    wrong(name + " has another result than the reference");
  }
  if (!at(rank).is_gone) {
    judge_time(name, rank, made);
  }
  if (is_made_of_messages(planned.what.collective)) {
    return;
  }
  for (const int member : plan_.groups[planned.group]) {
    const auto& theirs = at(member).made;
    const auto found = std::ranges::find(theirs, made.number, [](const auto& one) { return one->number; });
    if (found == theirs.end() || (*found)->at > made.ended) {
      wrong(name + " was complete before rank " + std::to_string(member) + " had made it");
    } else if ((*found)->what != made.what) {
      wrong(name + " was complete although rank " + std::to_string(member) + " made another call");
    }
  }
}

// The call fails because of a fault in its group, names the rank at fault and the call, and ends in time.
void Job::judge_error(const std::string& name, int rank, const CallOnRank& made) {
  const Status& status = made.status();
  const std::uint32_t group = plan_.calls[made.number].group;
  const auto found = blame_.find(group);
  // Its ranks may wait for a rank of another group before they make this call.
  const bool may_wait_elsewhere = is_tight_ && !plan_.replaces.empty() && status.code() == Code::kTimeout;
  if (found == blame_.end() && !may_wait_elsewhere) {
    wrong(name + " failed, and nothing was wrong: " + status.message());
    return;
  }
  const std::set<int> guilty = found == blame_.end() ? std::set<int>() : found->second.ranks;
  if (status.code() == Code::kClosed && at(rank).destroyed.contains(group)) {
    return;
  }
  // When an allocation fails while a call is made, its number may be skipped.
  const bool names_it = status.message().find(made.name) != std::string::npos ||
                        (status.code() == Code::kExhausted && at(rank).has_lost_memory);
  if (!names_it) {
    wrong(name + " does not say that it is " + made.name + ": " + status.message());
  }
  const std::string_view cause = cause_in(status.message());
  const std::uint32_t failed = call_named_in(cause, made.number);
  // A rank that waits for another group's calls before it makes the call that failed is late, too.
  const auto is_late = [&](int one) {
    return !plan_.replaces.empty() && std::ranges::none_of(at(one).made, [&](const auto& theirs) {
      return theirs->number == failed && theirs->at + kJustMade <= made.ended;
    });
  };
  const auto is_guilty = [&](int one) { return guilty.contains(one) || is_late(one); };
  const std::vector<int> blamed = blamed_in(cause, status.code());
  const bool is_blamed = status.code() == Code::kTimeout ? std::ranges::all_of(blamed, is_guilty)
                                                         : std::ranges::any_of(blamed, is_guilty);
  // A rank that was paused itself cannot know that the others were not. When all continue, a deadline that
  // passes names the ranks that are waited for at that moment.
  const std::vector<int> judges = named_in(cause);
  const bool was_paused =
      is_tight_ && !judges.empty() && (is_guilty(judges.front()) || made.ended >= paused_until_);
  if (!was_paused && (blamed.empty() || !is_blamed)) {
    wrong(name + " blames another rank than " + list(guilty) + ": " + status.message());
  }
  judge_time(name, rank, made);
}

// The number of the call that a cause names. The rank that the cause names first reports it, and an error of
// a group ends its other calls too: `number` is the call that ended.
std::uint32_t Job::call_named_in(std::string_view cause, std::uint32_t number) const {
  const std::vector<int> ranks = named_in(cause);
  if (ranks.empty()) {
    return number;
  }
  const auto& theirs = at(ranks.front()).made;
  const auto named = std::ranges::find_if(theirs, [&](const auto& one) {
    return plan_.calls[one->number].group == plan_.calls[number].group &&
           cause.find(one->name) != std::string_view::npos;
  });
  return named == theirs.end() ? number : (*named)->number;
}

// A call ends by its deadline, whatever the other ranks do; an error that is known at once is reported at
// once.
void Job::judge_time(const std::string& name, int rank, const CallOnRank& made) {
  const Clock::duration own_delay = at(rank).was_paused ? delayed_ * 2 : Clock::duration{};
  if (made.refused.ok() && made.ended > made.at + seconds(plan_.timeout_s + kSlack) + own_delay) {
    wrong(name + " outlived its deadline");
    return;
  }
  if (made.status().ok() || made.status().code() == Code::kTimeout || is_tight_) {
    return;
  }
  // The ranks compare a call when it starts, after the calls before it. These may wait for a late rank.
  const TimePoint known = made.status().code() == Code::kMismatch ? begun_ : TimePoint{};
  const TimePoint since = blame_.at(plan_.calls[made.number].group).since;
  if (made.ended > std::max({made.at, since, known}) + seconds(plan_.heartbeat_s + kSlack) + delayed_ * 2) {
    wrong(name + " ended late: " + made.status().message());
  }
}

// All resources of calls and messages are free again, also of failed calls, because all ranks report that
// they read their memory no more. Memory that a rank that is gone, or left the group, did not take stays in
// use until the group ends.
void Job::judge_usage(int rank) {
  const Usage held = at(rank).engine->usage();
  const auto is_left = [&](std::uint64_t count, const char* what) {
    if (count > 0) {
      wrong("rank " + std::to_string(rank) + " has " + std::to_string(count) + " " + what +
            " in use, and no call under way");
    }
  };
  is_left(held.calls, "calls");
  is_left(held.in_flight_bytes, "bytes of its share of the network");
  is_left(held.early_bytes, "bytes of frames that wait for their call");
  const bool all_stay = std::ranges::none_of(ranks_, &Rank::is_gone) &&
                        std::ranges::none_of(plan_.faults, [](const Fault& fault) {
                          return fault.kind == FaultKind::kEarlyDestroy;
                        });
  if (!plan_.closes_early && all_stay) {
    is_left(held.regions, "regions of shared memory");
  }
}

}  // namespace smdp::simulation
