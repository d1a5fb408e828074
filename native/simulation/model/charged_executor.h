// An executor whose tasks take the time that they are charged (World::spend) on a processor of their host.
#pragma once

#include <memory>

#include "base/executor.h"
#include "costs.h"
#include "memory.h"
#include "processors.h"
#include "world.h"

namespace smdp::model {

class ChargedExecutor final : public Executor {
 public:
  // `memory`: of the host.
  ChargedExecutor(simulation::World& world, Processors& processors, Memory& memory, const Costs& costs);
  ~ChargedExecutor() override;
  ChargedExecutor(const ChargedExecutor&) = delete;
  ChargedExecutor& operator=(const ChargedExecutor&) = delete;

  Status start(const Threads& threads) override;
  void stop() override;
  void post(Task task) override;
  // Frames from the network, which run after the tasks of the host.
  void post_received(Task task);
  void post_before_drive(Task task) override { post(std::move(task)); }
  // Not used in a world: its only thread would wait for itself.
  [[noreturn]] void drive(const std::function<bool()>& done, TimePoint deadline) override;
  [[nodiscard]] bool offloads(std::uint64_t bytes) const override;
  void offload(Task work, Task done) override;
  void set_tick(Task tick, std::function<Work()> work) override;
  void set_exhausted(Task exhausted) override { (void)exhausted; }

 private:
  struct Process;
  std::shared_ptr<Process> process_;  // events of the world may outlive this
};

}  // namespace smdp::model
