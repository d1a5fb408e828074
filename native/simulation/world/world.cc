#include "world.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "lost_memory.h"

namespace smdp::simulation {
namespace {

double milliseconds_of(Clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

}  // namespace

World::World(std::uint64_t seed, bool records) : state_(seed), records_(records) { Clock::replace(&watch_); }

World::~World() { Clock::replace(nullptr); }

void World::at(TimePoint when, Action action) {
  const Uncounted spared;
  events_.push_back({std::max(when, now_), draw(), std::move(action)});
  std::push_heap(events_.begin(), events_.end());
}

bool World::step() {
  if (events_.empty()) {
    return false;
  }
  std::pop_heap(events_.begin(), events_.end());
  Event next = std::move(events_.back());
  events_.pop_back();
  now_ = next.when;
  spent_ = {};
  next.action();
  return true;
}

// SplitMix64 (Steele, Lea, Flood 2014): every seed, zero included, gives another sequence.
std::uint64_t World::draw() {
  std::uint64_t value = state_ += 0x9e3779b97f4a7c15U;
  value = (value ^ value >> 30U) * 0xbf58476d1ce4e5b9U;
  value = (value ^ value >> 27U) * 0x94d049bb133111ebU;
  return value ^ value >> 31U;
}

// FNV-1a, eight bytes at a time.
void World::mix(std::uint64_t value) { hash_ = (hash_ ^ value) * 0x100000001b3U; }

std::size_t World::note(int rank, std::uint64_t what, const std::function<std::string()>& text) {
  const Uncounted spared;
  mix(static_cast<std::uint64_t>(age().count()));
  mix(static_cast<std::uint64_t>(rank) << 32U ^ what);
  if (records_) {
    char head[48];  // NOLINT(modernize-avoid-c-arrays)
    std::snprintf(head, sizeof(head), "%12.3f ms  rank %-3d ", milliseconds_of(age()), rank);
    notes_.push_back(head + text());
  }
  return lines_++;
}

void World::add(std::size_t line, std::uint64_t what, const std::function<std::string()>& text) {
  const Uncounted spared;
  mix(static_cast<std::uint64_t>(age().count()));
  mix(what);
  if (records_) {
    notes_[line] += text();
  }
}

std::string World::time() const {
  char text[32];  // NOLINT(modernize-avoid-c-arrays)
  std::snprintf(text, sizeof(text), "%.3f", milliseconds_of(age()));
  return text;
}

std::string World::timeline(std::size_t most) const {
  std::string text;
  const std::size_t left_out = notes_.size() > most ? notes_.size() - most + 1 : 0;
  const std::size_t head = most / 4;
  for (std::size_t line = 0; line < notes_.size(); ++line) {
    if (left_out > 0 && line == head) {
      text += "             ... " + std::to_string(left_out) + " lines left out\n";
      line += left_out;
    }
    text += notes_[line] + "\n";
  }
  return text;
}

}  // namespace smdp::simulation
