// Time and chance of a simulated job: one thread, one clock that jumps from event to event, one seed.
//
// What happens at one moment happens in an order that is drawn. A seed gives the same run whenever and
// wherever it is run, which the hash of everything noted on the way proves.
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
  // The clock as the processes read it.
  struct Watch final : Clock::Source {
    explicit Watch(const World& its_world) : world(its_world) {}
    [[nodiscard]] TimePoint now() const override { return world.now() + ahead; }

    const World& world;
    Clock::duration ahead{};
  };

 public:
  using Action = std::function<void()>;

  // Stands in place of the system's clock for the whole process while it lives: one world at a time.
  // `records`: keeps the notes for a timeline, not their hash alone.
  World(std::uint64_t seed, bool records);
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World();

  [[nodiscard]] TimePoint now() const { return now_ + spent_; }
  // What the event under way does takes so long; what it does afterwards happens later.
  void spend(Clock::duration time) { spent_ += time; }
  // Since the world began.
  [[nodiscard]] Clock::duration age() const { return now() - kBegin; }

  void at(TimePoint when, Action action);
  void after(Clock::duration time, Action action) { at(now() + time, std::move(action)); }
  // The next event; false when there is none.
  bool step();
  // No event comes any more.
  void end() { const std::vector<Event> over = std::exchange(events_, {}); }

  // What runs while it lives reads a clock that is so far ahead of the world's.
  class ClockAhead {
   public:
    ClockAhead(World& world, Clock::duration ahead) : watch_(world.watch_) { watch_.ahead = ahead; }
    ~ClockAhead() { watch_.ahead = {}; }
    ClockAhead(const ClockAhead&) = delete;
    ClockAhead& operator=(const ClockAhead&) = delete;

   private:
    Watch& watch_;
  };

  // Chance.
  std::uint64_t draw();
  std::uint64_t below(std::uint64_t bound) { return draw() % bound; }  // the bounds are small
  bool chance(double share) { return static_cast<double>(draw() >> 11U) < share * 0x1p53; }
  Clock::duration between(Clock::duration least, Clock::duration most) {
    return least + Clock::duration(below(static_cast<std::uint64_t>((most - least).count()) + 1));
  }

  // What happened on `rank`: part of the hash, and a line of the timeline, whose text is made only there.
  // Returns the line's number.
  std::size_t note(int rank, std::uint64_t what, const std::function<std::string()>& text);
  // What became of it: part of the hash too, and said on the same line.
  void add(std::size_t line, std::uint64_t what, const std::function<std::string()>& text);
  [[nodiscard]] std::size_t lines() const { return lines_; }
  // For a line: now, in milliseconds.
  [[nodiscard]] std::string time() const;
  [[nodiscard]] std::uint64_t hash() const { return hash_; }
  // `most` lines: the first of the notes, and more of the last.
  [[nodiscard]] std::string timeline(std::size_t most) const;

 private:
  static constexpr TimePoint kBegin{std::chrono::hours(1)};

  struct Event {
    TimePoint when;
    std::uint64_t lot = 0;  // among those of one moment
    Action action;
    friend bool operator<(const Event& one, const Event& other) {
      return one.when != other.when ? one.when > other.when : one.lot > other.lot;
    }
  };

  void mix(std::uint64_t value);

  TimePoint now_ = kBegin;   // of the event under way
  Clock::duration spent_{};  // by it
  Watch watch_{*this};
  std::uint64_t state_;
  std::uint64_t hash_ = 0xcbf29ce484222325U;
  std::vector<Event> events_;  // a heap
  bool records_;
  std::size_t lines_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace smdp::simulation
