// An executor whose turns are events of a world: posted tasks run a moment later, unless the process is
// paused.
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
  // Not used in a world: its only thread would wait for itself.
  [[noreturn]] void drive(const std::function<bool()>& done, TimePoint deadline) override;
  // Work of any size is offloaded where there are copy threads.
  [[nodiscard]] bool offloads(std::uint64_t bytes) const override;
  void offload(Task work, Task done) override;
  void set_tick(Task tick, std::function<Work()> work) override;
  void set_exhausted(Task exhausted) override;

  // No task and no tick runs before that time: the process is paused, or gets no processor.
  void pause_until(TimePoint when);
  // Its clock jumps, as after a suspension of its machine.
  void leap(Clock::duration time);
  // The allocation of this process after so many more fails; runs `lost` then.
  void lose_memory(std::uint64_t allocations, Task lost);

 private:
  struct Process;
  std::shared_ptr<Process> process_;  // events of the world may outlive this
};

}  // namespace smdp::simulation
