#include "lost_memory.h"

#include <utility>

namespace smdp::simulation {

namespace {

thread_local constinit std::uint64_t countdown = 0;

}  // namespace

bool loses_this_allocation() { return countdown > 0 && --countdown == 0; }

LosesMemory::LosesMemory(std::uint64_t& its_countdown) : countdown_(its_countdown) { countdown = countdown_; }
LosesMemory::~LosesMemory() { countdown_ = std::exchange(countdown, 0); }

Spared::Spared() : countdown_(std::exchange(countdown, 0)) {}
Spared::~Spared() { countdown = countdown_; }

}  // namespace smdp::simulation
