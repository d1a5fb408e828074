// What the loop records of operations while they run: one store for each step, into consecutive memory.
// Phases, bars and totals are computed from the marks later, when the loop is idle: a small operation takes
// as long as some hundred cache misses, and each further structure that it touches costs several.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "record/begun_operation.h"
#include "record/phase.h"

namespace smdp {

enum class Step : std::uint8_t {
  kBegin,        // `which`: its index in Batch::begun
  kExpectLocal,  // `which`: local index of a rank that must send to this one; no time, as in the next step
  kExpectHost,   // `which`: the host
  kHeardLocal,   // `which` as above, `rank` within the group
  kHeardHost,
  kWork,  // `which`: a Phase
  kRest,
  kEnd,  // `which`: 1 when it failed
};

struct Mark {
  TimePoint at;
  std::uint32_t operation = 0;  // its index among the operations of the log
  Step step = Step::kBegin;
  std::int32_t which = 0;
  std::int32_t rank = 0;
};

class MarkLog {
 public:
  struct Batch {
    std::vector<Mark> marks;
    std::vector<BegunOperation> begun;
  };

  std::uint32_t begin(BegunOperation begun) {
    const TimePoint at = begun.started;
    batch_.marks.push_back({at, next_, Step::kBegin, static_cast<std::int32_t>(batch_.begun.size()), 0});
    batch_.begun.push_back(std::move(begun));
    return next_++;
  }
  void note(std::uint32_t operation, Step step, std::int32_t which, std::int32_t rank, TimePoint at) {
    batch_.marks.push_back({at, operation, step, which, rank});
  }
  [[nodiscard]] std::size_t size() const { return batch_.marks.size(); }
  // The marks since the last take(). Return the batch with give_back() after reading: its memory is warm.
  [[nodiscard]] Batch take();
  void give_back(Batch batch);

 private:
  std::uint32_t next_ = 0;
  Batch batch_;
  Batch spare_;
};

// One operation's access to the log. Does nothing where traces are off.
class Marks {
 public:
  Marks() = default;
  Marks(MarkLog& log, std::uint32_t operation) : log_(&log), operation_(operation) {}

  [[nodiscard]] bool wanted() const { return log_ != nullptr; }
  void expect_local(std::size_t local) const { note(Step::kExpectLocal, static_cast<int>(local), 0, {}); }
  void expect_host(std::size_t host) const { note(Step::kExpectHost, static_cast<int>(host), 0, {}); }
  void heard_local(std::size_t local, int rank) const {
    if (wanted()) {
      note(Step::kHeardLocal, static_cast<int>(local), rank, Clock::now());
    }
  }
  void heard_host(int host, int rank) const {
    if (wanted()) {
      note(Step::kHeardHost, host, rank, Clock::now());
    }
  }
  void work_on(Phase phase) const {
    if (wanted()) {
      note(Step::kWork, static_cast<int>(phase), 0, Clock::now());
    }
  }
  void rest() const {
    if (wanted()) {
      note(Step::kRest, 0, 0, Clock::now());
    }
  }
  void end(bool failed, TimePoint at) const {
    if (wanted()) {
      note(Step::kEnd, failed ? 1 : 0, 0, at);
    }
  }

 private:
  void note(Step step, int which, int rank, TimePoint at) const {
    log_->note(operation_, step, which, rank, at);
  }

  MarkLog* log_ = nullptr;
  std::uint32_t operation_ = 0;
};

}  // namespace smdp
