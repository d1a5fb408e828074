// Time and randomness of a simulated job: one thread, one clock that jumps from event to event, one seed.
//
// Events of the same moment happen in a random order. A seed gives the same run at any time and on any
// machine, which the hash of all notes proves.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace smdp::simulation {

class World {
  // The clock that the processes read.
  struct Watch final : Clock::Source {
    explicit Watch(const World& its_world) : world(its_world) {}
    [[nodiscard]] TimePoint now() const override { return world.now() + ahead; }

    const World& world;
    Clock::duration ahead{};
  };

 public:
  using Action = std::function<void()>;

  // Replaces the system's clock for the whole process while it lives: one world at a time. `records`: keeps
  // the notes for a timeline, not only their hash.
  World(std::uint64_t seed, bool records);
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World();

  [[nodiscard]] TimePoint now() const { return now_ + spent_; }
  // The current event spends this time; what it does afterwards happens later.
  void spend(Clock::duration time) { spent_ += time; }
  // Since the world began.
  [[nodiscard]] Clock::duration age() const { return now() - kBegin; }

  void at(TimePoint when, Action action);
  void after(Clock::duration time, Action action) { at(now() + time, std::move(action)); }
  // The next event; false when there is none.
  bool step();
  // Drops all events.
  void end() { const std::vector<Event> over = std::exchange(events_, {}); }

  // While it lives, code reads a clock that is `ahead` of the world's.
  class ClockAhead {
   public:
    ClockAhead(World& world, Clock::duration ahead) : watch_(world.watch_) { watch_.ahead = ahead; }
    ~ClockAhead() { watch_.ahead = {}; }
    ClockAhead(const ClockAhead&) = delete;
    ClockAhead& operator=(const ClockAhead&) = delete;

   private:
    Watch& watch_;
  };

  // Random numbers.
  std::uint64_t draw();
  std::uint64_t below(std::uint64_t bound) { return draw() % bound; }  // the bounds are small
  bool chance(double share) { return static_cast<double>(draw() >> 11U) < share * 0x1p53; }
  Clock::duration between(Clock::duration least, Clock::duration most) {
    return least + Clock::duration(below(static_cast<std::uint64_t>((most - least).count()) + 1));
  }

  // Notes an event on `rank`: it becomes part of the hash, and a line of the timeline, for which alone `text`
  // is called. Returns the number of the line.
  std::size_t note(int rank, std::uint64_t what, const std::function<std::string()>& text);
  // Notes the outcome of an event: part of the hash too, and appended to its line.
  void add(std::size_t line, std::uint64_t what, const std::function<std::string()>& text);
  [[nodiscard]] std::size_t lines() const { return lines_; }
  // The current time in milliseconds, for a line.
  [[nodiscard]] std::string time() const;
  [[nodiscard]] std::uint64_t hash() const { return hash_; }
  // At most `most` lines: the first notes, and more of the last ones.
  [[nodiscard]] std::string timeline(std::size_t most) const;

 private:
  static constexpr TimePoint kBegin{std::chrono::hours(1)};

  struct Event {
    TimePoint when;
    std::uint64_t order = 0;  // among events of one moment
    Action action;
    friend bool operator<(const Event& one, const Event& other) {
      return one.when != other.when ? one.when > other.when : one.order > other.order;
    }
  };

  void mix(std::uint64_t value);

  TimePoint now_ = kBegin;   // of the current event
  Clock::duration spent_{};  // by the current event
  Watch watch_{*this};
  std::uint64_t state_;
  std::uint64_t hash_ = 0xcbf29ce484222325U;
  std::vector<Event> events_;  // a heap
  bool records_;
  std::size_t lines_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace smdp::simulation
