// What every schedule's answer has in common.
#pragma once

#include "model.h"
#include "networks.h"
#include "world.h"

namespace smdp::model {

// The rest of an answer whose buckets are done.
void conclude(Answer& answer, simulation::World& world, const Wires& wires);

}  // namespace smdp::model
