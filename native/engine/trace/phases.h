// How one operation spends its time on this rank. At any moment the operation is in one phase: the loop
// copies or reduces for it, or the operation waits. It waits for ranks of this host or for other hosts until
// each of those that must send has sent something in this operation; after that it waits for data on the
// wire.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "record/phase.h"

namespace smdp {

class Phases {
 public:
  // A part of the operation's time, drawn as one bar. Short consecutive phases share one.
  struct Stretch {
    TimePoint begin;
    TimePoint end;
    PhaseTimes took{};

    [[nodiscard]] Phase main() const;
  };

  // `locals`, `hosts`: how many ranks this host has in the group, and how many hosts there are.
  void begin(std::size_t locals, std::size_t hosts, TimePoint now);
  // Before any frame arrives: the ranks and hosts that must send to this rank.
  void expect_local(std::size_t local);
  void expect_host(std::size_t host);
  void heard_local(std::size_t local, int rank, TimePoint now);
  void heard_host(std::size_t host, int rank, TimePoint now);
  void work_on(Phase phase, TimePoint now) { enter(phase, now); }
  void rest(TimePoint now) { enter(resting(), now); }
  void end(TimePoint now);

  [[nodiscard]] const PhaseTimes& totals() const { return totals_; }
  [[nodiscard]] const std::vector<Stretch>& stretches() const { return stretches_; }
  // The rank of the group whose first frame arrived last, and how long that took; -1: no rank had to send.
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
  std::vector<std::uint8_t> locals_;  // 1: expected, and has sent nothing yet
  std::vector<std::uint8_t> hosts_;
  std::size_t locals_missing_ = 0;
  std::size_t hosts_missing_ = 0;
  int last_heard_ = -1;
  std::chrono::nanoseconds until_last_heard_{0};
  PhaseTimes totals_{};
  std::vector<Stretch> stretches_;
};

}  // namespace smdp
