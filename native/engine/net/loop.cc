#include "net/loop.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>

#include "base/arithmetic.h"
#include "base/out_of_memory.h"
#include "base/signals_blocked.h"

namespace smdp {
namespace {

// The loop's own thread holds back for this long after the last waiting thread: the next call is likely near.
constexpr std::chrono::milliseconds kHoldBack{2};
// How often a thread that waits for the baton looks at it.
constexpr std::chrono::milliseconds kLook{20};
constexpr std::chrono::milliseconds kDoze{1};
constexpr std::chrono::microseconds kLeastNap{50};

}  // namespace

Loop::Loop() : epoll_(::epoll_create1(EPOLL_CLOEXEC)), bell_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (!epoll_.valid() || !bell_.valid()) {
    created_ = system_error("creating the engine's loop", errno);
    return;
  }
  watch(bell_.get(), EPOLLIN, [this](std::uint32_t) {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto got = ::read(bell_.get(), &count, sizeof(count));
  });
}

Loop::~Loop() { stop(); }

Status Loop::start(const Threads& threads) {
  if (!created_.ok()) {
    return created_;
  }
  spin_ = threads.spin;
  last_tick_ = last_work_ = Clock::now();
  {
    const SignalsBlocked of_the_program;
    thread_ = std::thread([this] { run(); });
  }
  ::pthread_setname_np(thread_.native_handle(), "smdp-loop");
  if (threads.pin_cpu >= 0) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<unsigned>(threads.pin_cpu), &set);
    if (const int error = ::pthread_setaffinity_np(thread_.native_handle(), sizeof(set), &set); error != 0) {
      return system_error("SMDP_PIN_CPU=" + std::to_string(threads.pin_cpu), error);
    }
  }
  return copy_threads_.start(threads.copy_threads, spin_, [this](std::unique_ptr<CopyThreads::Job> job) {
    {
      const std::lock_guard lock(mutex_);
      finished_.push(std::move(job));
      has_finished_ = true;
    }
    on_posted();
  });
}

void Loop::stop() {
  if (!thread_.joinable()) {
    return;
  }
  {
    const std::lock_guard lock(baton_mutex_);
    stopping_ = true;
  }
  baton_.notify_all();
  wake();
  thread_.join();
  copy_threads_.stop();
}

// --- From any thread ---

void Loop::wake() {
  if (asleep_) {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto put = ::write(bell_.get(), &one, sizeof(one));
  }
}

bool Loop::has_posted() {
  const std::lock_guard lock(mutex_);
  return !posted_.empty() || !finished_.empty();
}

void Loop::post_before_drive(Task task) {
  const std::lock_guard lock(mutex_);
  posted_.push_back(std::move(task));
}

void Loop::post(Task task) {
  post_before_drive(std::move(task));
  on_posted();
}

void Loop::on_posted() {
  bool idle = false;
  {
    const std::lock_guard lock(baton_mutex_);
    idle = !taken_ && !std::exchange(work_posted_, true);
  }
  if (idle) {
    baton_.notify_all();
  }
  wake();
}

void Loop::drive(const std::function<bool()>& done, TimePoint deadline) {
  std::unique_lock lock(baton_mutex_);
  ++waiting_;
  while (taken_ && !done() && Clock::now() < deadline) {
    if (by_thread_) {
      wanted_ = true;
      wake();
    }
    baton_.wait_until(lock, std::min(deadline, Clock::now() + kLook));
  }
  if (!taken_ && !done()) {  // once done, the engine may be closing: its state must not be read
    taken_ = true;
    lock.unlock();
    {
      const Arithmetic modes;
      while (!done() && Clock::now() < deadline) {
        turn(deadline);
        lock.lock();
        const bool others = waiting_ > 1;
        lock.unlock();
        if (others) {
          baton_.notify_all();  // their operation may be complete
        }
      }
    }
    lock.lock();
    taken_ = false;
    work_posted_ =
        work_posted_ || work() != Work::kNone;  // of other threads: the loop's thread continues with it
  }
  --waiting_;
  const bool others = waiting_ > 0 || work_posted_;
  lock.unlock();
  if (others) {
    baton_.notify_all();
  }
}

// --- On the loop ---

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

void Loop::set_tick(Task tick, std::function<Work()> work) {
  tick_ = std::move(tick);
  work_ = std::move(work);
}

bool Loop::offloads(std::uint64_t bytes) const { return bytes >= kLeastOffload && copy_threads_.any(); }

void Loop::offload(Task work, Task done) {
  auto job = std::make_unique<CopyThreads::Job>();
  job->work = std::move(work);
  job->done = std::move(done);
  ++offloaded_;
  copy_threads_.add(std::move(job));
}

// The tasks behind one that ran out of memory are calls, which must complete.
void Loop::run_here(const Task& task) {
  try {
    task();
  } catch (const std::bad_alloc&) {
    exhausted_();
  }
}

bool Loop::run_finished() {
  if (!has_finished_) {
    return false;
  }
  CopyThreads::Queue finished;
  {
    const std::lock_guard lock(mutex_);
    finished.swap(finished_);
    has_finished_ = false;
  }
  while (const std::unique_ptr<CopyThreads::Job> job = finished.pop()) {
    --offloaded_;
    run_here(job->done);
  }
  return true;
}

bool Loop::run_posted() {
  std::vector<Task> tasks;
  {
    const std::lock_guard lock(mutex_);
    tasks.swap(posted_);
  }
  const bool ran = run_finished() || !tasks.empty();
  for (Task& task : tasks) {
    run_here(task);
    task = nullptr;
  }
  return ran;
}

// Called between two connections: other ranks of the host wait for frames of this one, and the network for
// their results, while received bytes can wait for a moment.
void Loop::poll_sources() {
  run_finished();
  poll_all();
}

bool Loop::poll_all() {
  bool any = false;
  for (Poller* const poller : pollers_) {
    any = poller->poll() || any;
  }
  return any;
}

// False: something has arrived.
bool Loop::fall_asleep() {
  for (std::size_t i = 0; i < pollers_.size(); ++i) {
    if (!pollers_[i]->fall_asleep()) {
      while (i-- > 0) {
        pollers_[i]->wake_up();
      }
      return false;
    }
  }
  return true;
}

bool Loop::take_events(int timeout_ms) {
  std::array<epoll_event, 64> events{};
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    const auto found = watched_.find(event.data.fd);
    if (found == watched_.end()) {
      continue;  // removed by an earlier event of this turn
    }
    const auto ready = found->second;  // keeps it alive if it removes itself
    (*ready)(event.events);
    poll_sources();
  }
  return count > 0;
}

bool Loop::sleep(TimePoint until, bool wakeable) {
  asleep_ = true;
  const bool announced = wakeable && fall_asleep();
  const bool has_frames = wakeable && !announced;
  const bool may_sleep = !has_frames && !wanted_ && !has_posted();
  const bool arrived =
      take_events(may_sleep ? milliseconds_until(until, static_cast<int>(tick_period().count())) : 0);
  asleep_ = false;
  if (announced) {
    std::ranges::for_each(pollers_, &Poller::wake_up);
  }
  return arrived;
}

void Loop::nap(TimePoint now, TimePoint until) {
  const auto moment = std::clamp<Clock::duration>((now - last_work_) / 8, kLeastNap, kDoze);
  asleep_ = true;
  if (!wanted_ && !has_posted() && until > now) {
    const auto nanoseconds = std::chrono::nanoseconds(std::min<Clock::duration>(moment, until - now)).count();
    const timespec time{0, nanoseconds};
    pollfd any{epoll_.get(), POLLIN, 0};
    ::ppoll(&any, 1, &time, nullptr);
  }
  asleep_ = false;
}

void Loop::idle(TimePoint now, TimePoint until) {
  const Work under_way = work();
  const bool naps = std::ranges::any_of(pollers_, [under_way](const Poller* poller) {
    return poller->needs_polling(under_way != Work::kNone);
  });
  if ((under_way == Work::kSwift || offloaded_ > 0 || naps) && now - last_work_ < spin_) {
    ::sched_yield();
  } else if (naps) {
    nap(now, until);
  } else if (under_way == Work::kSeldom && !std::exchange(dozed_, true)) {
    sleep(std::min(until, now + kDoze), false);
  } else if (sleep(until, true)) {  // woken by the clock only: no answer is near, so do not poll
    last_work_ = Clock::now();
  }
}

void Loop::turn(TimePoint until) {
  try {
    turn_with_memory(until);
  } catch (const std::bad_alloc&) {
    exhausted_();
  }
}

void Loop::turn_with_memory(TimePoint until) {
  bool worked = run_posted();
  worked = poll_all() || worked;
  worked = take_events(0) || worked;
  const TimePoint now = Clock::now();
  if (worked) {
    last_work_ = now;
    dozed_ = false;
  } else {
    idle(now, until);
  }
  if (tick_ && now - last_tick_ >= tick_period()) {
    last_tick_ = now;
    tick_();
  }
}

// A thread that waits for an operation runs the loop; the loop's own thread does the work that no thread
// waits for.
void Loop::wait_for_baton(std::unique_lock<std::mutex>& lock) {
  TimePoint idle_since = Clock::now();
  while (taken_ ||
         (!stopping_ && (waiting_ > 0 || (!work_posted_ && Clock::now() - idle_since < kHoldBack)))) {
    if (taken_ || waiting_ > 0) {
      idle_since = Clock::now();
    }
    baton_.wait_for(lock, taken_ || waiting_ > 0 ? kLook : kHoldBack);
  }
  taken_ = by_thread_ = true;
  work_posted_ = false;
}

void Loop::run() {
  be_ready_to_throw();
  const Arithmetic modes;
  std::unique_lock lock(baton_mutex_);
  for (;;) {
    wait_for_baton(lock);
    while (!wanted_ && !stopping_) {
      lock.unlock();
      turn(TimePoint::max());
      lock.lock();
    }
    const bool last = stopping_;
    if (last) {
      lock.unlock();
      while (run_posted()) {
      }
      lock.lock();
    }
    taken_ = by_thread_ = wanted_ = false;
    baton_.notify_all();
    if (last) {
      return;
    }
  }
}

}  // namespace smdp
