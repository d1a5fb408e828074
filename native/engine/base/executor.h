// The interface between an engine and what runs its work: threads, waiting and the tick.
//
// An executor runs one task at a time, so state that only its tasks use needs no lock. The loop (net/loop.h)
// implements it with threads and an epoll set; a simulation runs all executors of a job on one thread and one
// simulated clock.
//
// An executor may have threads that copy and sum bytes for its tasks (offload()). A task leaves the memory of
// such work alone until the work is done.
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

  // What the owner waits for: nothing; pieces of something large, every few milliseconds; data from the
  // network; or answers within microseconds, for which polling before sleeping pays.
  enum class Work : std::uint8_t { kNone, kSeldom, kSlow, kSwift };

  // The time between two ticks.
  [[nodiscard]] static constexpr std::chrono::milliseconds tick_period(Work under_way) {
    return std::chrono::milliseconds(under_way == Work::kNone ? 250 : 20);
  }

  struct Threads {
    int pin_cpu = -1;                   // the processor that tasks run on; -1: any
    std::chrono::microseconds spin{0};  // how long it polls while there is swift work, before it sleeps
    int copy_threads = 0;               // for offload()
  };

  virtual ~Executor() = default;

  // Starts to run tasks.
  virtual Status start(const Threads& threads) = 0;
  // Runs the posted tasks, then ends. Not from a task; safe to call twice.
  virtual void stop() = 0;

  // From any thread: `task` runs in the order of posting.
  virtual void post(Task task) = 0;
  // The same from a thread that calls drive() at once: no other thread is woken.
  virtual void post_before_drive(Task task) = 0;
  // Runs tasks, or waits for another thread that does, until `done` returns true or the deadline passes.
  // Calls `done` on the calling thread.
  virtual void drive(const std::function<bool()>& done, TimePoint deadline) = 0;

  // Whether to offload() work on so many bytes: there are threads, and the work takes longer than offloading.
  [[nodiscard]] virtual bool offloads(std::uint64_t bytes) const = 0;
  // From a task: `work` runs on another thread, at the same time as tasks and other offloaded work; then
  // `done` runs as a task. `work` neither throws nor allocates.
  virtual void offload(Task work, Task done) = 0;

  // Runs `tick` about every tick_period(work()).
  virtual void set_tick(Task tick, std::function<Work()> work) = 0;
  // Runs `exhausted` when a task ran out of memory. The task is not repeated.
  virtual void set_exhausted(Task exhausted) = 0;
};

}  // namespace smdp
