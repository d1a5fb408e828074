// An executor whose turns are events of a world: what is posted runs a moment later, unless its process is
// held up.
#pragma once

#include <deque>
#include <memory>

#include "base/executor.h"
#include "world.h"

namespace smdp::simulation {

class VirtualExecutor final : public Executor {
 public:
  explicit VirtualExecutor(World& world);
  ~VirtualExecutor() override;
  VirtualExecutor(const VirtualExecutor&) = delete;
  VirtualExecutor& operator=(const VirtualExecutor&) = delete;

  Status start(const Threads& threads) override;
  void stop() override;
  void post(Task task) override;
  void post_before_drive(Task task) override { post(std::move(task)); }
  // Nobody waits in a world, whose one thread would wait for itself.
  [[noreturn]] void drive(const std::function<bool()>& done, TimePoint deadline) override;
  // However little it is, where there are copy threads.
  [[nodiscard]] bool offloads(std::uint64_t bytes) const override;
  void offload(Task work, Task done) override;
  void set_tick(Task tick, std::function<Work()> work) override;
  void set_exhausted(Task exhausted) override;

  // Until then no task and no tick runs: the process is stopped, or gets no processor.
  void pause_until(TimePoint when);
  // Its clock leaps, as after its machine was suspended.
  void leap(Clock::duration time);
  // After so many more allocations of this process one fails; `lost` runs when it has.
  void lose_memory(std::uint64_t allocations, Task lost);

 private:
  struct Process;
  std::shared_ptr<Process> process_;  // events of the world may outlive this
};

}  // namespace smdp::simulation
