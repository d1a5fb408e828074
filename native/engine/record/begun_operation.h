// What traces record of an operation when it begins on this rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "record/flight_recorder.h"

namespace smdp {

struct BegunOperation {
  std::shared_ptr<const TracedGroup> group;
  std::uint64_t operation = 0;  // its number in the group
  Descriptor what;
  TimePoint created{};
  TimePoint started{};
  std::size_t locals = 1;  // ranks of the group on this host
  std::size_t hosts = 1;

  [[nodiscard]] std::uint64_t bytes() const { return what.count * size_of(what.dtype); }
};

}  // namespace smdp
