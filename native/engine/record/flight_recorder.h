// The last operations of this rank, over all its groups: what was called, how far it came, and when.
//
// Always on, so it costs a few stores for each operation and no lock: it belongs to the loop, and
// trace/flight/flight_dump.h writes it on the loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "net/frame.h"

namespace smdp {

// A group as traces name it; it may be gone when they are written.
struct TracedGroup {
  std::uint64_t id = 0;
  std::string name;
  std::vector<int> members;  // ranks of the job
};

struct FlightRecord {
  enum class State : std::uint8_t { kScheduled, kStarted, kCompleted, kFailed };

  std::uint64_t id = 0;  // counts all records of this rank, from 0
  std::shared_ptr<const TracedGroup> group;
  std::uint64_t operation = 0;  // its number in the group, as in FrameHeader
  Descriptor what;
  State state = State::kScheduled;
  TimePoint created{};
  TimePoint started{};  // zero: not yet, as below
  TimePoint ended{};
  TimePoint deadline{};
  std::string phase;  // of one under way, as of the last dump
  std::vector<int> waits_for;
  std::string error;
};

class FlightRecorder {
 public:
  // `capacity` records are kept; with 0 every record is forgotten at once.
  explicit FlightRecorder(std::size_t capacity);

  // Its id; find() knows it until `capacity` others have followed.
  std::uint64_t add(const std::shared_ptr<const TracedGroup>& group, std::uint64_t operation,
                    const Descriptor& what, TimePoint created, TimePoint deadline);
  // Null when it was forgotten.
  [[nodiscard]] FlightRecord* find(std::uint64_t id);
  // The operation ended, so or so; nothing when it was forgotten.
  void end(std::uint64_t id, const Status& status, TimePoint at);
  // Oldest first.
  [[nodiscard]] std::vector<const FlightRecord*> records() const;

 private:
  std::size_t capacity_;
  std::uint64_t next_ = 0;
  std::vector<FlightRecord> ring_;  // record i at i modulo capacity
};

}  // namespace smdp
