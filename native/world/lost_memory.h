// Memory that is lost once: of the allocations that a simulated process makes, one fails, wherever in the
// engine that is.
//
// The world's own allocations, made on the way, stand for what is outside the process and do not fail.
#pragma once

#include <cstdint>

namespace smdp::simulation {

// Asked by world/allocation.cc once per allocation: whether this one fails.
bool loses_this_allocation();

// While it lives, the allocation that `countdown` counts down to throws std::bad_alloc; 0: none does.
class LosesMemory {
 public:
  explicit LosesMemory(std::uint64_t& countdown);
  ~LosesMemory();
  LosesMemory(const LosesMemory&) = delete;
  LosesMemory& operator=(const LosesMemory&) = delete;

 private:
  std::uint64_t& countdown_;
};

// While it lives, nothing is counted.
class Spared {
 public:
  Spared();
  ~Spared();
  Spared(const Spared&) = delete;
  Spared& operator=(const Spared&) = delete;

 private:
  std::uint64_t countdown_;
};

}  // namespace smdp::simulation
