#include "world.h"

#include <sys/random.h>
#include <time.h>

#include <algorithm>
#include <utility>

#include "input.h"

namespace smdp::fuzzing {
namespace {

World* current_world = nullptr;  // NOLINT: the wrapped functions have no other way to it

// More polls of the same state than any input has descriptors and bytes: a busy loop.
constexpr unsigned kMostLooks = 5000;
// So many waits in which no process acts take exactly their time; each later one takes twice as long as the
// one before, as on a busy machine.
constexpr unsigned kPatience = 60;
constexpr unsigned kMostDoublings = 16;

}  // namespace

World::World(std::function<bool()> turn) : turn_(std::move(turn)) { current_world = this; }

World::~World() { current_world = nullptr; }

World* World::current() { return current_world; }

bool World::others_act() {
  const bool acted = turn_();
  if (acted) {
    idle_ = 0;
    in_one_moment_ = 0;
  }
  return acted;
}

void World::sleep(Clock::duration time) {
  others_act();
  in_one_moment_ = 0;
  pass(time);
}

void World::draw(std::span<std::byte> out) {
  for (std::byte& byte : out) {
    byte = static_cast<std::byte>(++drawn_ * 0x9e3779b97f4a7c15U >> 56U);
  }
}

// The functions of the system, and their replacements.
int real_poll(pollfd* entries, nfds_t count, int timeout_ms) __asm__("__real_poll");
int real_nanosleep(const timespec* time, timespec* left) __asm__("__real_nanosleep");
ssize_t real_getrandom(void* out, std::size_t bytes, unsigned flags) __asm__("__real_getrandom");
TimePoint real_now() __asm__("__real__ZNSt6chrono3_V212steady_clock3nowEv");
int world_poll(pollfd* entries, nfds_t count, int timeout_ms) __asm__("__wrap_poll");
int world_nanosleep(const timespec* time, timespec* left) __asm__("__wrap_nanosleep");
ssize_t world_getrandom(void* out, std::size_t bytes, unsigned flags) __asm__("__wrap_getrandom");
TimePoint world_now() __asm__("__wrap__ZNSt6chrono3_V212steady_clock3nowEv");

int world_poll(pollfd* entries, nfds_t count, int timeout_ms) {
  return current_world == nullptr ? real_poll(entries, count, timeout_ms)
                                  : current_world->poll({entries, count}, timeout_ms);
}

int world_nanosleep(const timespec* time, timespec* left) {
  if (current_world == nullptr) {
    return real_nanosleep(time, left);
  }
  current_world->sleep(std::chrono::seconds(time->tv_sec) + std::chrono::nanoseconds(time->tv_nsec));
  return 0;
}

ssize_t world_getrandom(void* out, std::size_t bytes, unsigned flags) {
  if (current_world == nullptr) {
    return real_getrandom(out, bytes, flags);
  }
  current_world->draw({static_cast<std::byte*>(out), bytes});
  return static_cast<ssize_t>(bytes);
}

TimePoint world_now() { return current_world == nullptr ? real_now() : current_world->now(); }

int World::poll(std::span<pollfd> entries, int timeout_ms) {
  for (;;) {
    const int ready = real_poll(entries.data(), entries.size(), 0);
    if (ready != 0 || timeout_ms == 0) {
      require(++in_one_moment_ < kMostLooks,
              "a wait that cannot end is no wait: the engine polls without pause");
      return ready;
    }
    if (!others_act()) {
      break;
    }
  }
  const unsigned doublings = ++idle_ < kPatience ? 0 : std::min(idle_ - kPatience, kMostDoublings);
  pass(std::chrono::milliseconds(timeout_ms) * (1U << doublings));
  in_one_moment_ = 0;
  return 0;
}

}  // namespace smdp::fuzzing
