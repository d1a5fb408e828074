// Totals over operations: number, bytes, and time by phase.
#pragma once

#include <chrono>
#include <cstdint>

#include "trace/phases.h"

namespace smdp {

struct Totals {
  std::uint64_t operations = 0;
  std::uint64_t bytes = 0;
  std::chrono::nanoseconds took{0};  // from begin to end
  PhaseTimes phases{};

  void add(std::uint64_t payload, std::chrono::nanoseconds time, const PhaseTimes& by_phase) {
    ++operations;
    bytes += payload;
    took += time;
    for (std::size_t i = 0; i < kPhases; ++i) {
      phases[i] += by_phase[i];
    }
  }
};

}  // namespace smdp
