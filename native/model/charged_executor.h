// An executor whose tasks take time: what they are charged for (World::spend) on a processor of their host.
#pragma once

#include <memory>

#include "base/executor.h"
#include "costs.h"
#include "processors.h"
#include "world.h"

namespace smdp::model {

class ChargedExecutor final : public Executor {
 public:
  ChargedExecutor(simulation::World& world, Processors& processors, const Costs& costs);
  ~ChargedExecutor() override;
  ChargedExecutor(const ChargedExecutor&) = delete;
  ChargedExecutor& operator=(const ChargedExecutor&) = delete;

  Status start(int pin_cpu, std::chrono::microseconds spin) override;
  void stop() override;
  void post(Task task) override;
  void post_before_drive(Task task) override { post(std::move(task)); }
  // Nobody waits in a world, whose one thread would wait for itself.
  [[noreturn]] void drive(const std::function<bool()>& done, TimePoint deadline) override;
  void set_tick(Task tick, std::function<Work()> work) override;
  void set_exhausted(Task exhausted) override { (void)exhausted; }

 private:
  struct Process;
  std::shared_ptr<Process> process_;  // events of the world may outlive this
};

}  // namespace smdp::model
