#include "record/flight_recorder.h"

#include <algorithm>

namespace smdp {

FlightRecorder::FlightRecorder(std::size_t capacity) : capacity_(capacity) { ring_.reserve(capacity); }

std::uint64_t FlightRecorder::add(const std::shared_ptr<const TracedGroup>& group, std::uint64_t operation,
                                  const Descriptor& what, TimePoint created, TimePoint deadline) {
  const std::uint64_t id = next_++;
  if (capacity_ == 0) {
    return id;
  }
  const std::size_t place = id % capacity_;
  if (place == ring_.size()) {
    ring_.emplace_back();
  }
  FlightRecord& record = ring_[place];
  if (record.group != group) {  // counting its owners costs more than all the rest
    record.group = group;
  }
  record.id = id;
  record.operation = operation;
  record.what = what;
  record.state = FlightRecord::State::kScheduled;
  record.created = created;
  record.started = record.ended = TimePoint{};
  record.deadline = deadline;
  record.phase.clear();
  record.waits_for.clear();
  record.error.clear();
  return id;
}

FlightRecord* FlightRecorder::find(std::uint64_t id) {
  if (ring_.empty() || id >= next_) {
    return nullptr;
  }
  FlightRecord& record = ring_[id % capacity_];
  return record.id == id ? &record : nullptr;
}

void FlightRecorder::end(std::uint64_t id, const Status& status, TimePoint at) {
  if (FlightRecord* record = find(id)) {
    record->state = status.ok() ? FlightRecord::State::kCompleted : FlightRecord::State::kFailed;
    record->ended = at;
    record->error = status.message();
  }
}

std::vector<const FlightRecord*> FlightRecorder::records() const {
  std::vector<const FlightRecord*> all;
  all.reserve(ring_.size());
  for (const FlightRecord& record : ring_) {
    all.push_back(&record);
  }
  std::ranges::sort(all, {}, [](const FlightRecord* record) { return record->id; });
  return all;
}

}  // namespace smdp
