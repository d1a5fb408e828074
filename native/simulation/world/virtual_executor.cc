#include "virtual_executor.h"

#include <cstdlib>
#include <new>
#include <utility>

#include "lost_memory.h"

namespace smdp::simulation {

using std::chrono::microseconds;

struct VirtualExecutor::Process : std::enable_shared_from_this<Process> {
  explicit Process(World& its_world) : world(its_world) {}

  // The time until a thread is awake and has a processor.
  void wake() {
    if (running && !std::exchange(awake, true)) {
      world.at(std::max(world.now(), paused_until) + world.between(microseconds(1), microseconds(40)),
               [self = weak_from_this()] {
                 if (const auto process = self.lock()) {
                   process->turn();
                 }
               });
    }
  }

  void turn() {
    awake = false;
    if (world.now() < paused_until) {
      wake();
      return;
    }
    run_posted();
  }

  void run_posted() {
    std::deque<Task> tasks = std::exchange(posted, {});
    for (Task& task : tasks) {
      run(task);
      task = nullptr;
    }
  }

  // As in the loop: the task is not repeated, and later tasks run.
  void run(const Task& task) {
    const World::ClockAhead clock(world, ahead);
    const bool loses = allocations_left > 0;
    try {
      const FailsAllocation memory(allocations_left);
      task();
    } catch (const std::bad_alloc&) {
      exhausted();
    }
    if (loses && allocations_left == 0) {
      lost_memory();
    }
  }

  // Within that time, unless it ends before; a paused process does nothing on any of its threads.
  void when_it_runs(Clock::duration most, Task task) {
    world.at(std::max(world.now(), paused_until) + world.between(microseconds(0), most),
             [self = weak_from_this(), most, task = std::move(task)]() mutable {
               const auto process = self.lock();
               if (!process || !process->running) {
                 return;
               }
               if (process->world.now() < process->paused_until) {
                 process->when_it_runs(most, std::move(task));
               } else {
                 task();
               }
             });
  }

  void plan_tick() {
    world.at(std::max(world.now() + tick_period(work ? work() : Work::kNone), paused_until),
             [self = weak_from_this()] {
               const auto process = self.lock();
               if (process && process->running) {
                 if (process->world.now() >= process->paused_until) {
                   process->run_posted();  // a loop handles what has arrived before it checks the time
                   process->run(process->tick);
                 }
                 process->plan_tick();
               }
             });
  }

  World& world;
  std::deque<Task> posted;
  Task tick;
  Task exhausted;
  Task lost_memory;
  std::function<Work()> work;
  TimePoint paused_until{};
  Clock::duration ahead{};
  std::uint64_t allocations_left = 0;  // until one fails; 0: none does
  int copy_threads = 0;
  bool running = false;
  bool awake = false;  // a turn is scheduled
};

VirtualExecutor::VirtualExecutor(World& world) : process_(std::make_shared<Process>(world)) {}

VirtualExecutor::~VirtualExecutor() { process_->running = false; }

Status VirtualExecutor::start(const Threads& threads) {
  process_->copy_threads = threads.copy_threads;
  process_->running = true;
  process_->wake();
  process_->plan_tick();
  return {};
}

void VirtualExecutor::stop() {
  if (std::exchange(process_->running, false)) {
    while (!process_->posted.empty()) {
      process_->run_posted();
    }
  }
}

void VirtualExecutor::post(Task task) {
  const Uncounted spared;
  process_->posted.push_back(std::move(task));
  process_->wake();
}

void VirtualExecutor::drive(const std::function<bool()>&, TimePoint) { std::abort(); }

bool VirtualExecutor::offloads(std::uint64_t bytes) const { return bytes > 0 && process_->copy_threads > 0; }

void VirtualExecutor::offload(Task work, Task done) {
  const Uncounted spared;
  process_->when_it_runs(
      microseconds(200), [process = process_, work = std::move(work), done = std::move(done)]() mutable {
        work();
        process->when_it_runs(microseconds(20), [process, done = std::move(done)]() mutable {
          process->posted.push_back(std::move(done));
          process->wake();
        });
      });
}

void VirtualExecutor::set_tick(Task tick, std::function<Work()> work) {
  process_->tick = std::move(tick);
  process_->work = std::move(work);
}

void VirtualExecutor::set_exhausted(Task exhausted) { process_->exhausted = std::move(exhausted); }

void VirtualExecutor::leap(Clock::duration time) { process_->ahead += time; }

void VirtualExecutor::lose_memory(std::uint64_t allocations, Task lost) {
  process_->allocations_left = allocations;
  process_->lost_memory = std::move(lost);
}

void VirtualExecutor::pause_until(TimePoint when) {
  process_->paused_until = std::max(process_->paused_until, when);
}

}  // namespace smdp::simulation
