#include "trace/phases.h"

#include <algorithm>

namespace smdp {
namespace {

// A bar covers at least 1/kFineness of the operation's time until then, so that a long operation of many
// pieces has some hundred bars.
constexpr int kFineness = 24;

}  // namespace

Phase Phases::Stretch::main() const {
  return static_cast<Phase>(std::ranges::max_element(took) - took.begin());
}

void Phases::begin(std::size_t locals, std::size_t hosts, TimePoint now) {
  begin_ = since_ = now;
  now_in_ = Phase::kWaitLocal;
  locals_.assign(locals, 0);
  hosts_.assign(hosts, 0);
  locals_missing_ = hosts_missing_ = 0;
  last_heard_ = -1;
  until_last_heard_ = {};
  totals_ = {};
  stretches_.clear();
}

void Phases::expect_local(std::size_t local) {
  locals_missing_ += locals_[local] == 0 ? 1 : 0;
  locals_[local] = 1;
}

void Phases::expect_host(std::size_t host) {
  hosts_missing_ += hosts_[host] == 0 ? 1 : 0;
  hosts_[host] = 1;
}

void Phases::heard_local(std::size_t local, int rank, TimePoint now) {
  heard(locals_, local, locals_missing_, rank, now);
}

void Phases::heard_host(std::size_t host, int rank, TimePoint now) {
  heard(hosts_, host, hosts_missing_, rank, now);
}

void Phases::heard(std::vector<std::uint8_t>& expected, std::size_t which, std::size_t& missing, int rank,
                   TimePoint now) {
  if (expected[which] == 0) {
    return;
  }
  expected[which] = 0;
  --missing;
  last_heard_ = rank;
  until_last_heard_ = now - begin_;
  if (now_in_ != Phase::kCopy && now_in_ != Phase::kReduce) {
    enter(resting(), now);
  }
}

Phase Phases::resting() const {
  if (locals_missing_ > 0) {
    return Phase::kWaitLocal;
  }
  if (hosts_missing_ > 0) {
    return Phase::kWaitHosts;
  }
  return hosts_.size() > 1 ? Phase::kWire : Phase::kWaitLocal;
}

void Phases::end(TimePoint now) { add(now_in_, since_, now); }

void Phases::enter(Phase phase, TimePoint now) {
  if (phase != now_in_) {
    add(now_in_, since_, now);
    now_in_ = phase;
    since_ = now;
  }
}

void Phases::add(Phase phase, TimePoint from, TimePoint to) {
  const auto took = to - from;
  if (took <= Clock::duration::zero()) {
    return;
  }
  const auto which = static_cast<std::size_t>(phase);
  totals_[which] += took;
  const auto grain = (to - begin_) / kFineness;
  if (stretches_.empty() || took >= grain || stretches_.back().end - stretches_.back().begin >= grain) {
    stretches_.push_back({from, to, {}});
  }
  stretches_.back().end = to;
  stretches_.back().took[which] += took;
}

}  // namespace smdp
