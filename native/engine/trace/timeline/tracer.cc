#include "trace/timeline/tracer.h"

#include <algorithm>

namespace smdp {
namespace {

constexpr double kPeriod = 1;  // seconds
constexpr std::size_t kManyMarks = 50'000;

void read_mark(const Mark& mark, Phases& phases) {
  const auto which = static_cast<std::size_t>(mark.which);
  switch (mark.step) {
    case Step::kExpectLocal:
      return phases.expect_local(which);
    case Step::kExpectHost:
      return phases.expect_host(which);
    case Step::kHeardLocal:
      return phases.heard_local(which, mark.rank, mark.at);
    case Step::kHeardHost:
      return phases.heard_host(which, mark.rank, mark.at);
    case Step::kWork:
      return phases.work_on(static_cast<Phase>(mark.which), mark.at);
    case Step::kRest:
      return phases.rest(mark.at);
    case Step::kEnd:
      return phases.end(mark.at);
    case Step::kBegin:
      return;
  }
}

}  // namespace

Result<std::unique_ptr<Tracer>> Tracer::create(const Options& options, const TraceIdentity& who,
                                               EmitEvent emit) {
  if (options.timeline.empty() && options.counters_s == 0) {
    return std::unique_ptr<Tracer>();
  }
  std::unique_ptr<Tracer> tracer(new Tracer(std::move(emit)));
  tracer->period_ = seconds(options.counters_s > 0 ? std::min(kPeriod, options.counters_s) : kPeriod);
  if (!options.timeline.empty()) {
    auto file = TimelineFile::create(options.timeline, who.rank,
                                     static_cast<std::uint64_t>(options.timeline_mib) << 20U);
    if (!file.ok()) {
      return Status(Code::kInvalid, "SMDP_TIMELINE: " + file.status().message());
    }
    tracer->timeline_ = std::make_unique<Timeline>(who, std::move(*file));
  }
  if (options.counters_s > 0) {
    tracer->counters_.emplace(who.rank, options.counters_s, Clock::now());
  }
  return tracer;
}

void Tracer::begin(const Mark& mark, BegunOperation& begun) {
  std::unique_ptr<Running> running;
  if (spare_.empty()) {
    running = std::make_unique<Running>();
  } else {
    running = std::move(spare_.back());
    spare_.pop_back();
  }
  const auto lane = std::find(lanes_.begin(), lanes_.end(), false);  // NOLINT(modernize-use-ranges): proxies
  const auto place = lane - lanes_.begin();
  if (lane == lanes_.end()) {
    lanes_.push_back(true);
  } else {
    *lane = true;
  }
  running->phases.begin(begun.locals, begun.hosts, mark.at);
  static_cast<BegunOperation&>(running->one) = std::move(begun);
  running->one.lane = static_cast<int>(place);
  running_[mark.operation] = std::move(running);
}

void Tracer::end(const Mark& mark, Running& running) {
  EndedOperation& one = running.one;
  lanes_[static_cast<std::size_t>(one.lane)] = false;
  one.ended = mark.at;
  one.failed = mark.which != 0;
  one.phases = running.phases.totals();
  one.last_heard = running.phases.last_heard();
  one.until_last_heard = running.phases.until_last_heard();
  if (timeline_) {
    timeline_->ended(one, running.phases.stretches());
  }
  if (counters_) {
    counters_->ended(one);
  }
}

void Tracer::read_marks() {
  MarkLog::Batch batch = log_.take();
  for (const Mark& mark : batch.marks) {
    if (mark.step == Step::kBegin) {
      begin(mark, batch.begun[static_cast<std::size_t>(mark.which)]);
    } else if (const auto found = running_.find(mark.operation); found != running_.end()) {
      read_mark(mark, found->second->phases);
      if (mark.step == Step::kEnd) {
        end(mark, *found->second);
        spare_.push_back(std::move(found->second));
        running_.erase(found);
      }
    }
  }
  log_.give_back(std::move(batch));
}

void Tracer::tick(TimePoint now) {
  if (now - read_at_ < period_ && log_.size() < kManyMarks) {
    return;  // most ticks come during an operation
  }
  read_at_ = now;
  read_marks();
  if (timeline_) {
    timeline_->tick(now);
  }
  if (counters_) {
    if (const std::string line = counters_->tick(now); !line.empty()) {
      emit_(line);
    }
  }
}

void Tracer::close() {
  read_marks();
  if (timeline_) {
    timeline_->close();
  }
  if (counters_) {
    emit_(counters_->finish(Clock::now()));
  }
}

void Tracer::clock(TimePoint at, const ClockOffset::Estimate& estimate) {
  if (timeline_) {
    timeline_->clock(at, estimate);
  }
}

}  // namespace smdp
