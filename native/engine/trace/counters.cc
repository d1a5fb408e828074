#include "trace/counters.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>
#include <vector>

namespace smdp {
namespace {

constexpr std::chrono::milliseconds kLate{1};  // a shorter wait counts for no rank
constexpr std::size_t kMostLate = 3;

std::string seconds_text(std::chrono::nanoseconds time) {
  std::array<char, 40> digits{};
  const double value = std::chrono::duration<double>(time).count();
  const auto [end, error] =
      std::to_chars(digits.data(), digits.data() + digits.size(), value, std::chars_format::fixed, 6);
  return {digits.data(), end};
}

std::string late_text(const std::map<int, std::chrono::nanoseconds>& late) {
  std::vector<std::pair<std::chrono::nanoseconds, int>> latest;
  latest.reserve(late.size());
  for (const auto& [rank, time] : late) {
    latest.emplace_back(-time, rank);
  }
  std::ranges::sort(latest);
  latest.resize(std::min(latest.size(), kMostLate));
  std::string text = "[";
  for (const auto& [time, rank] : latest) {
    text += (text.size() > 1 ? ", " : "") + std::string(R"({"rank": )") + std::to_string(rank) +
            R"(, "seconds": )" + seconds_text(-time) + "}";
  }
  return text + "]";
}

}  // namespace

Counters::Counters(int rank, double period_s, TimePoint now)
    : rank_(rank), period_(seconds(period_s)), since_(now) {}

void Counters::ended(const EndedOperation& one) {
  totals_.add(one.bytes(), one.ended - one.started, one.phases);
  if (one.last_heard >= 0 && one.until_last_heard >= kLate) {
    late_[one.group->members[static_cast<std::size_t>(one.last_heard)]] += one.until_last_heard;
  }
}

std::string Counters::tick(TimePoint now) { return now - since_ < period_ ? "" : finish(now); }

std::string Counters::finish(TimePoint now) {
  const auto phase = [this](Phase which) {
    return seconds_text(totals_.phases[static_cast<std::size_t>(which)]);
  };
  const auto wall = std::chrono::system_clock::now().time_since_epoch();
  std::string line = R"({"smdp_event": 1, "event": "engine", "time": )" +
                     seconds_text(std::chrono::duration_cast<std::chrono::milliseconds>(wall)) +
                     R"(, "rank": )" + std::to_string(rank_) + R"(, "seconds": )" +
                     seconds_text(now - since_) + R"(, "operations": )" + std::to_string(totals_.operations) +
                     R"(, "bytes": )" + std::to_string(totals_.bytes) + R"(, "wait_local_s": )" +
                     phase(Phase::kWaitLocal) + R"(, "wait_hosts_s": )" + phase(Phase::kWaitHosts) +
                     R"(, "wire_s": )" + phase(Phase::kWire) + R"(, "copy_s": )" + phase(Phase::kCopy) +
                     R"(, "reduce_s": )" + phase(Phase::kReduce) + R"(, "late": )" +
                     late_text(std::exchange(late_, {})) + "}";
  totals_ = {};
  since_ = now;
  return line;
}

}  // namespace smdp
