#include "trace/timeline/timeline.h"

#include <bit>
#include <utility>

namespace smdp {
namespace {

constexpr std::chrono::milliseconds kLong{1};
constexpr std::uint64_t kShortDrawn = 500;           // per second
constexpr std::size_t kMostWaiting = 20'000;         // operations that wait for a slow disk
constexpr std::chrono::milliseconds kHandOver{900};  // the tracer calls every second
constexpr std::chrono::seconds kTotals{10};

}  // namespace

Timeline::Timeline(TraceIdentity who, std::unique_ptr<TimelineFile> file)
    : who_(std::move(who)),
      file_(std::move(file)),
      handed_over_(Clock::now()),
      totals_written_(handed_over_) {
  file_->post([who = who_, now = handed_over_](TimelineFile& to) {
    std::string line;
    put_process(line, who);
    to.add_always(std::exchange(line, {}));
    put_identity(line, who, now);
    to.add_always(line);
  });
}

bool Timeline::is_drawn(const EndedOperation& one) {
  if (one.failed || one.ended - one.started >= kLong) {
    return true;
  }
  const std::uint64_t number = one.operation + (one.operation >> 32U);  // step and index of a named buffer
  if (number % stride_ != 0) {
    ++thinned_;
    return false;
  }
  if (++short_drawn_ > kShortDrawn) {
    stride_ *= 2;
    short_drawn_ = kShortDrawn / 2;
  }
  return true;
}

void Timeline::ended(const EndedOperation& one, const std::vector<Phases::Stretch>& stretches) {
  totals_[static_cast<int>(std::bit_width(one.bytes()))].add(one.bytes(), one.ended - one.started,
                                                             one.phases);
  if (!is_drawn(one)) {
    return;
  }
  if (collected_.operations.size() >= kMostWaiting) {
    ++lost_;
    return;
  }
  for (; lanes_ <= one.lane; ++lanes_) {
    collected_.new_lanes.push_back(lanes_);
  }
  collected_.operations.push_back({one, next_++, stretches});
}

void Timeline::clock(TimePoint at, const ClockOffset::Estimate& estimate) {
  collected_.clocks.push_back({at, estimate});
}

void Timeline::tick(TimePoint now) {
  if (now - handed_over_ < kHandOver) {
    return;
  }
  handed_over_ = now;
  if (short_drawn_ < kShortDrawn / 2 && stride_ > 1) {
    stride_ /= 2;
  }
  short_drawn_ = 0;
  if (file_->is_busy()) {
    return;
  }
  const bool with_totals = now - totals_written_ >= kTotals;
  totals_written_ = with_totals ? now : totals_written_;
  hand_over(with_totals);
}

void Timeline::close() {
  hand_over(true);
  file_->close();
}

void Timeline::hand_over(bool with_totals) {
  collected_.thinned = thinned_;
  collected_.lost = lost_;
  if (with_totals) {
    collected_.totals = totals_;
  }
  file_->post([rank = who_.rank, collected = std::make_shared<const Collected>(std::exchange(
                                     collected_, {}))](TimelineFile& to) { write(to, rank, *collected); });
}

// On the file's thread.
void Timeline::write(TimelineFile& file, int rank, const Collected& collected) {
  std::string line;
  const auto add_always = [&file, &line] { file.add_always(std::exchange(line, {})); };
  for (const int lane : collected.new_lanes) {
    put_lane(line, rank, lane);
    add_always();
  }
  for (const Collected::Clock& clock : collected.clocks) {
    put_clock(line, rank, clock.at, clock.estimate);
    add_always();
  }
  for (const Collected::Drawn& drawn : collected.operations) {
    line.clear();
    put_operation(line, rank, drawn.number, drawn.one);
    bool room = file.add(line);
    for (const Phases::Stretch& stretch : drawn.stretches) {
      line.clear();
      put_stretch(line, rank, drawn.one.lane, drawn.number, stretch);
      room = room && file.add(line);
    }
  }
  line.clear();
  for (const auto& [size_class, totals] : collected.totals) {
    put_totals(line, rank, size_class, totals);
    add_always();
  }
  if (!collected.totals.empty()) {
    put_undrawn(line, rank, collected.thinned, collected.lost + file.dropped());
    add_always();
  }
}

}  // namespace smdp
