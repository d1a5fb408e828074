// Simulated time, waiting and random numbers for the code under test.
//
// The linker replaces poll(), nanosleep(), steady_clock::now() and getrandom() (--wrap, CMakeLists.txt);
// sockets are the kernel's. Where the engine would wait, the other processes of the input take their turn
// instead, in the same thread; when they have nothing left to do, the clock jumps. So a deadline of a minute
// costs microseconds, and an input has the same effect on every run.
#pragma once

#include <poll.h>

#include <functional>
#include <span>

#include "base/clock.h"

namespace smdp::fuzzing {

class World {
 public:
  // `turn`: the other processes do one step; false: they have nothing left to do. One world at a time.
  explicit World(std::function<bool()> turn);
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World();

  void pass(Clock::duration time) { now_ += time; }

  // Called by the wrapped functions.
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
  unsigned idle_ = 0;           // waits in which no process had anything to do
  unsigned in_one_moment_ = 0;  // polls that ended at once since a process acted or time passed
};

}  // namespace smdp::fuzzing
