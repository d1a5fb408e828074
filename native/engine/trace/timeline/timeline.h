// Decides which operations are drawn in the timeline. It draws all operations of a millisecond or more. A
// program may make tens of thousands of shorter ones per second, which would fill the file in seconds and
// take longer to draw than to run. Of those it draws every second, fourth, eighth ... by their number, so
// that ranks with the same rate draw the same operations. The totals by size include all operations.
//
// Belongs to the loop, which only collects; the file's thread formats the text (timeline_file.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "trace/timeline/timeline_file.h"
#include "trace/timeline/trace_events.h"

namespace smdp {

class Timeline {
 public:
  Timeline(TraceIdentity who, std::unique_ptr<TimelineFile> file);

  void ended(const EndedOperation& one, const std::vector<Phases::Stretch>& stretches);
  void clock(TimePoint at, const ClockOffset::Estimate& estimate);
  // Passes the collected operations to the file about every second.
  void tick(TimePoint now);
  void close();

 private:
  // Passed from the loop to the file's thread, which alone uses it then.
  struct Collected {
    struct Drawn {
      EndedOperation one;
      std::uint64_t number;
      std::vector<Phases::Stretch> stretches;
    };
    struct Clock {
      TimePoint at;
      ClockOffset::Estimate estimate;
    };
    std::vector<Drawn> operations;
    std::vector<int> new_lanes;
    std::vector<Clock> clocks;
    std::map<int, Totals> totals;  // by size class; of all operations so far, or empty
    std::uint64_t thinned = 0;
    std::uint64_t lost = 0;
  };

  [[nodiscard]] bool is_drawn(const EndedOperation& one);
  void hand_over(bool with_totals);
  static void write(TimelineFile& file, int rank, const Collected& collected);

  TraceIdentity who_;
  std::unique_ptr<TimelineFile> file_;
  Collected collected_;
  std::map<int, Totals> totals_;  // by size class
  std::uint64_t next_ = 0;
  int lanes_ = 0;
  std::uint64_t thinned_ = 0;
  std::uint64_t lost_ = 0;  // operations dropped because the file's thread was too slow
  std::uint64_t stride_ = 1;
  std::uint64_t short_drawn_ = 0;  // in the current second, since the stride changed
  TimePoint handed_over_{};
  TimePoint totals_written_{};
};

}  // namespace smdp
