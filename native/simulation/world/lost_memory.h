// Lets one allocation of a simulated process fail, anywhere in the engine.
//
// The world's own allocations represent memory outside the process: they are not counted and do not fail.
#pragma once

#include <cstdint>

namespace smdp::simulation {

// Called by allocation.cc once per allocation: whether this one fails.
bool fails_this_allocation();

// While it lives, the `countdown`-th allocation throws std::bad_alloc; 0: none does.
class FailsAllocation {
 public:
  explicit FailsAllocation(std::uint64_t& countdown);
  ~FailsAllocation();
  FailsAllocation(const FailsAllocation&) = delete;
  FailsAllocation& operator=(const FailsAllocation&) = delete;

 private:
  std::uint64_t& countdown_;
};

// While it lives, allocations are not counted.
class Uncounted {
 public:
  Uncounted();
  ~Uncounted();
  Uncounted(const Uncounted&) = delete;
  Uncounted& operator=(const Uncounted&) = delete;

 private:
  std::uint64_t countdown_;
};

}  // namespace smdp::simulation
