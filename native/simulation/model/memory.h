// The memory of a host, whose bandwidth all its processors share: a queue of the bytes that copies and sums
// read and write.
//
// A turn of a process is one event of the world, however long it takes, so the requests of other processes in
// that time come later with an earlier time. The queue is therefore stored as the work that is left, not as
// the time when it is free.
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
      const TimePoint now = world_->now();
      left_ -= std::clamp(now - seen_, Clock::duration{}, left_);
      seen_ = std::max(seen_, now);
      left_ += seconds(static_cast<double>(bytes) / costs_->memory_rate);
    }
    world_->spend(std::max(alone, left_));
  }

 private:
  simulation::World* world_;
  const Costs* costs_;
  Clock::duration left_{};  // of the queue, when it was last seen
  TimePoint seen_{};
};

}  // namespace smdp::model
