// The calls of a group that are not complete on this rank: those that run, and those that have not begun.
//
// Calls begin in the order in which they are made. Buffers named by (step, index) are made in any order and
// begin by their names. Belongs to its group, on the loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "collectives/operation.h"

namespace smdp {

// A call that has not begun.
struct QueuedCall {
  std::uint64_t number = 0;
  Call call;
  TimePoint deadline;
  TimePoint submitted;
  std::uint64_t record = 0;  // of the flight recorder
};

class OpenCalls {
 public:
  using Running = std::map<std::uint64_t, std::unique_ptr<Operation>>;

  // The number of a call that is made now; also of one made of messages.
  std::uint64_t number(const Call& call);
  // The named buffer was not made before, and belongs to its step.
  [[nodiscard]] bool is_valid_name(const Call& call) const;
  void queue(QueuedCall call);
  // Removes and returns the next call of the series, if it may begin while at most `most` of them run.
  std::optional<QueuedCall> take_next(bool named, std::size_t most);
  template <class Visit>
  void for_each_queued(Visit visit) const {
    for (const QueuedCall& call : queue_) {
      visit(call);
    }
    for (const auto& [number, call] : named_) {
      visit(call);
    }
  }
  void clear_queued();

  [[nodiscard]] Running& running() { return running_; }
  [[nodiscard]] const Running& running() const { return running_; }
  // Null: the call does not run.
  [[nodiscard]] Operation* find(std::uint64_t call) const;

  [[nodiscard]] bool empty() const { return running_.empty() && queue_.empty() && named_.empty(); }
  [[nodiscard]] std::size_t size() const { return running_.size() + queue_.size() + named_.size(); }
  // The call has not begun on this rank; otherwise it runs or is complete.
  [[nodiscard]] bool is_ahead(std::uint64_t call) const;
  // The oldest running call of its series.
  [[nodiscard]] bool is_oldest(std::uint64_t call) const;
  // The oldest call of the series that is not complete, or the number of the next one.
  [[nodiscard]] std::uint64_t first_open(bool named) const;
  [[nodiscard]] bool has_open(bool named) const;

 private:
  std::uint64_t next_number_ = 0;  // of the next call
  std::uint64_t begun_ = 0;        // calls by order that have begun
  std::uint64_t next_step_ = 0;    // of the next named buffer to begin
  std::uint64_t next_index_ = 0;
  std::uint64_t next_message_call_ = 0;
  std::deque<QueuedCall> queue_;
  std::map<std::uint64_t, QueuedCall> named_;
  Running running_;
};

}  // namespace smdp
