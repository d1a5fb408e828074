// Kernels that touch no byte: they charge what the real ones would take.
#pragma once

#include "costs.h"
#include "kernels/reduce.h"
#include "memory.h"

namespace smdp::model {

// For the engines that are made while it lives: one at a time in a process.
class CountingKernels {
 public:
  explicit CountingKernels(const Costs& costs);
  CountingKernels(const CountingKernels&) = delete;
  CountingKernels& operator=(const CountingKernels&) = delete;
  ~CountingKernels();

  [[nodiscard]] static const KernelSet& set();

  // While it lives, what runs is charged to the memory of that host.
  class On {
   public:
    explicit On(Memory& memory);
    ~On();
    On(const On&) = delete;
    On& operator=(const On&) = delete;
  };
};

}  // namespace smdp::model
