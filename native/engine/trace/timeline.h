// Which operations are drawn in the timeline. All of a millisecond or more; of shorter ones, a program may
// make tens of thousands a second, so many that the file would be full in seconds and drawing would cost more
// than they: then every second, fourth, eighth ... by their number, so that ranks at one pace draw the same.
// The totals by size are of all.
//
// Belongs to the loop, which only collects; the file's thread makes the text (timeline_file.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "trace/timeline_file.h"
#include "trace/trace_events.h"

namespace smdp {

class Timeline {
 public:
  Timeline(TraceIdentity who, std::unique_ptr<TimelineFile> file);

  void ended(const EndedOperation& one, const std::vector<Phases::Stretch>& stretches);
  void clock(TimePoint at, const ClockOffset::Estimate& estimate);
  // Every second or so what was collected goes to the file.
  void tick(TimePoint now);
  void close();

 private:
  // What the loop hands to the file's thread, which alone touches it then.
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
    std::map<int, Totals> totals;  // by class of size; all so far, or none
    std::uint64_t thinned = 0;
    std::uint64_t lost = 0;
  };

  [[nodiscard]] bool is_drawn(const EndedOperation& one);
  void hand_over(bool with_totals);
  static void write(TimelineFile& file, int rank, const Collected& collected);

  TraceIdentity who_;
  std::unique_ptr<TimelineFile> file_;
  Collected collected_;
  std::map<int, Totals> totals_;  // by class of size
  std::uint64_t next_ = 0;
  int lanes_ = 0;
  std::uint64_t thinned_ = 0;
  std::uint64_t lost_ = 0;  // the file's thread was too far behind
  std::uint64_t stride_ = 1;
  std::uint64_t short_drawn_ = 0;  // in the present second, since the stride changed
  TimePoint handed_over_{};
  TimePoint totals_written_{};
};

}  // namespace smdp
