// Computes the timeline and the counters from the marks of all operations, when they are on. Belongs to the
// loop.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/options.h"
#include "record/marks.h"
#include "trace/counters.h"
#include "trace/timeline/timeline.h"

namespace smdp {

class Tracer {
 public:
  // Writes an event line to where the entrypoint reads it.
  using EmitEvent = std::function<void(const std::string& line)>;

  // Null when the options turn on neither timeline nor counters.
  static Result<std::unique_ptr<Tracer>> create(const Options& options, const TraceIdentity& who,
                                                EmitEvent emit);

  [[nodiscard]] MarkLog& log() { return log_; }
  // Reads the marks about every second, and writes what is due.
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
  std::vector<std::unique_ptr<Running>> spare_;  // ended ones, whose memory is used again
  std::vector<bool> lanes_;                      // in use
};

}  // namespace smdp
