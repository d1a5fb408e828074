#include "net/loop.h"

#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <array>
#include <cerrno>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace smdp {
namespace {

// The creating thread's floating-point modes are inherited; a script that flushes subnormals must not change
// sums.
void reset_arithmetic() {
  ::fesetenv(FE_DFL_ENV);
#if defined(__x86_64__)
  _mm_setcsr(0x1f80);
#endif
}

}  // namespace

Loop::Loop() : epoll_(::epoll_create1(EPOLL_CLOEXEC)), wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  watch(wake_.get(), EPOLLIN, [this](std::uint32_t) {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto got = ::read(wake_.get(), &count, sizeof(count));
  });
}

Loop::~Loop() { stop(); }

Status Loop::start(int pin_cpu) {
  if (!epoll_.valid() || !wake_.valid()) {
    return system_error("epoll", errno);
  }
  // Signals belong to the program, not to this thread.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::pthread_setname_np(thread_.native_handle(), "smdp-loop");
  if (pin_cpu >= 0) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<unsigned>(pin_cpu), &set);
    if (const int error = ::pthread_setaffinity_np(thread_.native_handle(), sizeof(set), &set); error != 0) {
      return system_error("SMDP_PIN_CPU=" + std::to_string(pin_cpu), error);
    }
  }
  return {};
}

void Loop::stop() {
  if (!thread_.joinable()) {
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto put = ::write(wake_.get(), &one, sizeof(one));
  thread_.join();
}

void Loop::post(Task task) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    first = posted_.empty();
    posted_.push_back(std::move(task));
  }
  if (first) {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto put = ::write(wake_.get(), &one, sizeof(one));
  }
}

void Loop::watch(int fd, std::uint32_t events, Ready ready) {
  watched_[fd] = std::make_shared<Ready>(std::move(ready));
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
}

void Loop::change(int fd, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void Loop::forget(int fd) {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  watched_.erase(fd);
}

void Loop::set_tick(Task tick, std::function<bool()> busy) {
  tick_ = std::move(tick);
  busy_ = std::move(busy);
}

void Loop::run_posted() {
  std::vector<Task> tasks;
  {
    const std::lock_guard lock(mutex_);
    tasks.swap(posted_);
  }
  for (Task& task : tasks) {
    task();
    task = nullptr;
  }
}

void Loop::run() {
  thread_id_ = std::this_thread::get_id();
  reset_arithmetic();
  std::array<epoll_event, 64> events{};
  TimePoint last_tick = Clock::now();
  for (;;) {
    const int wait = busy_ && busy_() ? 20 : 250;
    const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), wait);
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      const auto found = watched_.find(event.data.fd);
      if (found == watched_.end()) {
        continue;  // forgotten by an earlier event of this round
      }
      const auto ready = found->second;  // stays alive if it forgets itself
      (*ready)(event.events);
    }
    run_posted();
    if (const TimePoint now = Clock::now(); tick_ && now - last_tick >= std::chrono::milliseconds(wait)) {
      last_tick = now;
      tick_();
    }
    const std::lock_guard lock(mutex_);
    if (stopping_ && posted_.empty()) {
      return;
    }
  }
}

}  // namespace smdp
