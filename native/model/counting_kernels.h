// Kernels that touch no byte: they charge what the real ones would take.
#pragma once

#include "costs.h"
#include "kernels/reduce.h"
#include "world.h"

namespace smdp::model {

// For the engines that are made while it lives: one at a time in a process.
class CountingKernels {
 public:
  CountingKernels(simulation::World& world, const Costs& costs);
  CountingKernels(const CountingKernels&) = delete;
  CountingKernels& operator=(const CountingKernels&) = delete;
  ~CountingKernels();

  [[nodiscard]] static const KernelSet& set();
};

}  // namespace smdp::model
