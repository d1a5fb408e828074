#include "lost_memory.h"

#include <utility>

namespace smdp::simulation {

namespace {

thread_local constinit std::uint64_t countdown = 0;

}  // namespace

bool fails_this_allocation() { return countdown > 0 && --countdown == 0; }

FailsAllocation::FailsAllocation(std::uint64_t& its_countdown) : countdown_(its_countdown) {
  countdown = countdown_;
}
FailsAllocation::~FailsAllocation() { countdown_ = std::exchange(countdown, 0); }

Uncounted::Uncounted() : countdown_(std::exchange(countdown, 0)) {}
Uncounted::~Uncounted() { countdown = countdown_; }

}  // namespace smdp::simulation
