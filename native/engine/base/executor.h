// The seam between an engine and what runs its work: threads, waiting and the tick.
//
// An executor runs one thing at a time, so what is touched by its tasks alone needs no lock. The loop with
// its threads and its epoll set stands behind it (net/loop.h); a simulation puts all executors of a job on
// one thread and one clock, which it turns itself.
//
// Beside its tasks it may have threads that copy and add up bytes for them (offload()): what such work
// touches stays as it is until the work is done.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "base/clock.h"
#include "base/status.h"

namespace smdp {

class Executor {
 public:
  using Task = std::function<void()>;

  // What the owner has under way: nothing, something large of which a piece comes every few milliseconds,
  // something that the network will bring in its own time, or something that others answer within
  // microseconds, so that it is worth looking again before sleeping.
  enum class Work : std::uint8_t { kNone, kSeldom, kSlow, kSwift };

  // Between two ticks.
  [[nodiscard]] static constexpr std::chrono::milliseconds tick_period(Work under_way) {
    return std::chrono::milliseconds(under_way == Work::kNone ? 250 : 20);
  }

  struct Threads {
    int pin_cpu = -1;  // the processor that tasks run on; -1: any
    std::chrono::microseconds spin{
        0};                // how long it looks for more while there is swift work, before it sleeps
    int copy_threads = 0;  // for what is offloaded
  };

  virtual ~Executor() = default;

  // Starts to run tasks.
  virtual Status start(const Threads& threads) = 0;
  // Runs what is posted already, then ends. From outside only; safe to call twice.
  virtual void stop() = 0;

  // From any thread: `task` runs in the order of posting.
  virtual void post(Task task) = 0;
  // The same from a thread that calls drive() at once: nobody is woken for it.
  virtual void post_before_drive(Task task) = 0;
  // Runs tasks, or waits for another thread that does, until `done` or the deadline. `done` is asked on the
  // calling thread.
  virtual void drive(const std::function<bool()>& done, TimePoint deadline) = 0;

  // Whether to offload() work on so many bytes: there are threads for it, and it takes longer than that.
  [[nodiscard]] virtual bool offloads(std::uint64_t bytes) const = 0;
  // From a task: `work` runs on another thread, at the same time as tasks and other such work; then `done`
  // runs as a task. `work` neither throws nor takes memory.
  virtual void offload(Task work, Task done) = 0;

  // `tick` runs about every tick_period() of what `work` returns.
  virtual void set_tick(Task tick, std::function<Work()> work) = 0;
  // `exhausted` runs when there was no memory for what a task did. What it had in hand is lost.
  virtual void set_exhausted(Task exhausted) = 0;
};

}  // namespace smdp
