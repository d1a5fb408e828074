// Makes timeline and counters of what was noted of every operation, when somebody asked for them. Belongs to
// the loop.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/options.h"
#include "trace/counters.h"
#include "trace/marks.h"
#include "trace/timeline.h"

namespace smdp {

class Tracer {
 public:
  // Takes an event line and puts it where followers read.
  using EmitEvent = std::function<void(const std::string& line)>;

  // Null when the options ask for nothing.
  static Result<std::unique_ptr<Tracer>> create(const Options& options, const TraceIdentity& who,
                                                EmitEvent emit);

  [[nodiscard]] MarkLog& log() { return log_; }
  // Every second or so reads the marks, and tells what is due.
  void tick(TimePoint now);
  void close();

  [[nodiscard]] bool wants_clocks() const { return timeline_ != nullptr; }
  void clock(TimePoint at, const ClockOffset::Estimate& estimate);

 private:
  struct Running {
    EndedOperation one;
    Phases phases;
  };

  explicit Tracer(EmitEvent emit) : emit_(std::move(emit)) {}
  void read_marks();
  void begin(const Mark& mark, BegunOperation& begun);
  void end(const Mark& mark, Running& running);

  EmitEvent emit_;
  MarkLog log_;
  Clock::duration period_{};
  TimePoint read_at_{};
  std::unique_ptr<Timeline> timeline_;
  std::optional<Counters> counters_;
  std::unordered_map<std::uint32_t, std::unique_ptr<Running>> running_;
  std::vector<std::unique_ptr<Running>> spare_;  // with the memory of those before
  std::vector<bool> lanes_;                      // taken
};

}  // namespace smdp
