// Time, waiting and chance, as the code under test meets them in the programs that link this.
//
// The linker puts this world behind poll(), nanosleep(), steady_clock::now() and getrandom() (--wrap,
// CMakeLists.txt); sockets stay the kernel's. Where the engine would wait, the others of the input have their
// turn instead, in the same thread, and when they have nothing left to do the clock jumps. So a minute's
// deadline costs microseconds, and an input does the same whenever and wherever it is run.
#pragma once

#include <poll.h>

#include <functional>
#include <span>

#include "base/clock.h"

namespace smdp::fuzzing {

class World {
 public:
  // `turn`: the others do one thing; false when they have nothing left to do. One world at a time.
  explicit World(std::function<bool()> turn);
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World();

  void pass(Clock::duration time) { now_ += time; }

  // What the wrapped functions ask.
  static World* current();
  [[nodiscard]] TimePoint now() const { return now_; }
  int poll(std::span<pollfd> entries, int timeout_ms);
  void sleep(Clock::duration time);
  void draw(std::span<std::byte> out);

 private:
  bool others_act();

  std::function<bool()> turn_;
  TimePoint now_{std::chrono::hours(1)};
  std::uint64_t drawn_ = 0;
  unsigned idle_ = 0;           // waits in which nobody had anything to do
  unsigned in_one_moment_ = 0;  // polls that ended at once since somebody acted or time passed
};

}  // namespace smdp::fuzzing
