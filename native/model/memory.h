// The memory of a host, whose bandwidth all its processors share: a queue of the bytes that copies and sums
// read and write.
#pragma once

#include <algorithm>

#include "costs.h"
#include "world.h"

namespace smdp::model {

class Memory {
 public:
  Memory(simulation::World& world, const Costs& costs) : world_(&world), costs_(&costs) {}

  // A processor that would alone take `each` seconds a byte moves `bytes`: at once as fast as it can, or as
  // the memory lets it.
  void move(double each, std::size_t bytes) {
    const auto alone = seconds(each * static_cast<double>(bytes));
    if (costs_->memory_rate > 0) {
      free_ = std::max(free_, world_->now()) + seconds(static_cast<double>(bytes) / costs_->memory_rate);
    }
    world_->spend(std::max(alone, free_ - world_->now()));
  }

 private:
  simulation::World* world_;
  const Costs* costs_;
  TimePoint free_{};
};

}  // namespace smdp::model
