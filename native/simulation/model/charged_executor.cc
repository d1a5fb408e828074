#include "charged_executor.h"

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <utility>
#include <vector>

#include "counting_kernels.h"
#include "net/loop.h"

namespace smdp::model {

namespace {

constexpr std::chrono::milliseconds kDoze{1};  // as the loop does it (net/loop.h)

// Tasks by the time from which on they can run.
class Inbox {
 public:
  void put(TimePoint when, Executor::Task task) {
    tasks_.push_back({when, next_++, std::move(task)});
    std::push_heap(tasks_.begin(), tasks_.end());
  }
  Executor::Task take_first() {
    std::pop_heap(tasks_.begin(), tasks_.end());
    Executor::Task task = std::move(tasks_.back().task);
    tasks_.pop_back();
    return task;
  }
  [[nodiscard]] bool empty() const { return tasks_.empty(); }
  [[nodiscard]] TimePoint first_at() const { return tasks_.empty() ? TimePoint::max() : tasks_.front().when; }

 private:
  struct Posted {
    TimePoint when;
    std::uint64_t number = 0;
    Executor::Task task;
    friend bool operator<(const Posted& one, const Posted& other) {
      return one.when != other.when ? one.when > other.when : one.number > other.number;
    }
  };

  std::vector<Posted> tasks_;  // a heap
  std::uint64_t next_ = 0;
};

}  // namespace

struct ChargedExecutor::Process : std::enable_shared_from_this<Process> {
  Process(simulation::World& its_world, Processors& its_processors, Memory& its_memory,
          const Costs& its_costs)
      : world(its_world), processors(its_processors), memory(its_memory), costs(its_costs) {}

  struct Copying {
    Task work;
    Task done;
  };

  // Another process may post while it is some way into its turn: what is posted later can have an earlier
  // time.
  void put(Inbox& inbox, Task task) {
    const TimePoint when = world.now();
    inbox.put(when, std::move(task));
    if (running && !inside) {
      turn_at(when);
    }
  }

  // What the host's ranks and the copy threads say goes before what the network brings (net/loop.cc).
  Inbox* next_inbox() {
    if (posted.first_at() <= world.now()) {
      return &posted;
    }
    return received.first_at() <= world.now() ? &received : nullptr;
  }

  // The thread sleeps until it is woken, unless it was at work a moment ago and looks for more.
  void turn_at(TimePoint when) {
    const TimePoint awake_until = busy_until + spin;
    const TimePoint seen = std::max(when, quiet_until);
    const TimePoint begins = seen <= awake_until ? std::max(seen, busy_until) : seen + seconds(costs.wake);
    if (begins < planned) {
      planned = begins;
      plan(begins);
    }
  }

  void plan(TimePoint when) {
    world.at(when, [self = weak_from_this(), when] {
      if (const auto process = self.lock(); process && process->running && process->planned == when) {
        process->turn();
      }
    });
  }

  void turn() {
    if (const TimePoint free = processors.free_at(); free > world.now()) {
      planned = free;
      plan(free);
      return;
    }
    const TimePoint began = world.now();
    inside = true;
    const CountingKernels::On of_this_host(memory);
    while (Inbox* inbox = next_inbox()) {
      inbox->take_first()();
    }
    inside = false;
    busy_until = world.now();
    processors.occupy(began, busy_until - began);
    const Work under_way = work ? work() : Work::kNone;
    quiet_until = under_way == Work::kSeldom ? busy_until + kDoze : busy_until;
    const bool near = under_way == Work::kSwift || copying > 0 || !offloaded.empty();
    spin = near ? spin_while_swift : Clock::duration{};
    planned = TimePoint::max();
    if (const TimePoint first = std::min(posted.first_at(), received.first_at()); first < TimePoint::max()) {
      turn_at(first);
    }
  }

  // A copy thread that has nothing to do takes the first of what is offloaded.
  void copy_next() {
    if (offloaded.empty() || copying == copy_threads || !running) {
      return;
    }
    ++copying;
    Copying next = std::move(offloaded.front());
    offloaded.pop_front();
    copy_at(std::max(world.now() + seconds(costs.hand_over), processors.free_at()), std::move(next));
  }

  void copy_at(TimePoint when, Copying next) {
    world.at(when, [self = weak_from_this(), next = std::move(next)]() mutable {
      if (const auto process = self.lock(); process && process->running) {
        process->copy(std::move(next));
      }
    });
  }

  void copy(Copying next) {
    if (const TimePoint free = processors.free_at(); free > world.now()) {
      copy_at(free, std::move(next));
      return;
    }
    const TimePoint began = world.now();
    {
      const CountingKernels::On of_this_host(memory);
      next.work();
    }
    processors.occupy(began, world.now() - began);
    --copying;
    // Later than now(), which is when the work is done.
    world.at(world.now(), [self = weak_from_this(), done = std::move(next.done)]() mutable {
      if (const auto process = self.lock()) {
        process->put(process->posted, std::move(done));
        process->copy_next();
      }
    });
  }

  void plan_tick() {
    world.after(tick_period(work ? work() : Work::kNone), [self = weak_from_this()] {
      const auto process = self.lock();
      if (process && process->running) {
        process->tick();
        process->plan_tick();
      }
    });
  }

  simulation::World& world;
  Processors& processors;
  Memory& memory;
  int copy_threads = 0;
  int copying = 0;  // of them, at work
  std::deque<Copying> offloaded;
  const Costs& costs;
  Inbox posted;
  Inbox received;  // from the network
  Task tick;
  std::function<Work()> work;
  TimePoint planned = TimePoint::max();  // the next turn
  TimePoint busy_until{};
  TimePoint quiet_until{};  // it dozes
  Clock::duration spin{};
  Clock::duration spin_while_swift{};
  bool running = false;
  bool inside = false;  // a turn is under way
};

ChargedExecutor::ChargedExecutor(simulation::World& world, Processors& processors, Memory& memory,
                                 const Costs& costs)
    : process_(std::make_shared<Process>(world, processors, memory, costs)) {}

ChargedExecutor::~ChargedExecutor() { process_->running = false; }

Status ChargedExecutor::start(const Threads& threads) {
  process_->running = true;
  process_->copy_threads = threads.copy_threads;
  process_->spin_while_swift = threads.spin;
  process_->turn_at(process_->world.now());
  process_->plan_tick();
  return {};
}

void ChargedExecutor::stop() {
  if (std::exchange(process_->running, false)) {
    while (!process_->posted.empty()) {
      process_->posted.take_first()();
    }
    while (!process_->received.empty()) {
      process_->received.take_first()();
    }
  }
}

void ChargedExecutor::post(Task task) { process_->put(process_->posted, std::move(task)); }

void ChargedExecutor::post_received(Task task) { process_->put(process_->received, std::move(task)); }

void ChargedExecutor::drive(const std::function<bool()>&, TimePoint) { std::abort(); }

bool ChargedExecutor::offloads(std::uint64_t bytes) const {
  return process_->copy_threads > 0 && bytes >= Loop::kLeastOffload;
}

void ChargedExecutor::offload(Task work, Task done) {
  process_->offloaded.push_back({std::move(work), std::move(done)});
  process_->world.at(process_->world.now(), [self = process_->weak_from_this()] {
    if (const auto process = self.lock()) {
      process->copy_next();
    }
  });
}

void ChargedExecutor::set_tick(Task tick, std::function<Work()> work) {
  process_->tick = std::move(tick);
  process_->work = std::move(work);
}

}  // namespace smdp::model
