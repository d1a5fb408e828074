// Where the time of one operation goes on this rank. At any moment it is in one phase: the loop copies or
// reduces for it, or it waits. A wait is for the ranks of this host or for other hosts while one of those
// that must speak has said nothing in this operation; once all have, data is on its way.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/clock.h"

namespace smdp {

enum class Phase : std::uint8_t { kWaitLocal, kWaitHosts, kWire, kCopy, kReduce };
inline constexpr std::size_t kPhases = 5;

using PhaseTimes = std::array<std::chrono::nanoseconds, kPhases>;

class Phases {
 public:
  // A part of the operation's time, drawn as one bar. Short phases beside each other share one.
  struct Stretch {
    TimePoint begin;
    TimePoint end;
    PhaseTimes took{};

    [[nodiscard]] Phase main() const;
  };

  // `locals`, `hosts`: how many ranks this host has in the group, and how many hosts there are.
  void begin(std::size_t locals, std::size_t hosts, TimePoint now);
  // Before anything is heard: from whom this rank must hear.
  void expect_local(std::size_t local);
  void expect_host(std::size_t host);
  void heard_local(std::size_t local, int rank, TimePoint now);
  void heard_host(std::size_t host, int rank, TimePoint now);
  void work_on(Phase phase, TimePoint now) { enter(phase, now); }
  void rest(TimePoint now) { enter(resting(), now); }
  void end(TimePoint now);

  [[nodiscard]] const PhaseTimes& totals() const { return totals_; }
  [[nodiscard]] const std::vector<Stretch>& stretches() const { return stretches_; }
  // The rank of the group that was heard last of those this rank had to hear from, and how long that took;
  // -1 when there was none.
  [[nodiscard]] int last_heard() const { return last_heard_; }
  [[nodiscard]] std::chrono::nanoseconds until_last_heard() const { return until_last_heard_; }

 private:
  void enter(Phase phase, TimePoint now);
  void add(Phase phase, TimePoint from, TimePoint to);
  void heard(std::vector<std::uint8_t>& expected, std::size_t which, std::size_t& missing, int rank,
             TimePoint now);
  [[nodiscard]] Phase resting() const;

  TimePoint begin_{};
  TimePoint since_{};
  Phase now_in_ = Phase::kWaitLocal;
  std::vector<std::uint8_t> locals_;  // 1: expected and not heard yet
  std::vector<std::uint8_t> hosts_;
  std::size_t locals_missing_ = 0;
  std::size_t hosts_missing_ = 0;
  int last_heard_ = -1;
  std::chrono::nanoseconds until_last_heard_{0};
  PhaseTimes totals_{};
  std::vector<Stretch> stretches_;
};

}  // namespace smdp
