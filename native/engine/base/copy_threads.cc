#include "base/copy_threads.h"

#include <pthread.h>
#include <sched.h>

#include <system_error>

#include "base/arithmetic.h"
#include "base/signals_blocked.h"

namespace smdp {

Status CopyThreads::start(int threads, std::chrono::microseconds spin, Finished finished) {
  spin_ = spin;
  finished_ = std::move(finished);
  const SignalsBlocked of_the_program;
  for (int thread = 0; thread < threads; ++thread) {
    try {
      threads_.emplace_back([this] { run(); });
    } catch (const std::system_error& error) {
      return system_error("starting SMDP_COPY_THREADS=" + std::to_string(threads), error.code().value());
    }
    ::pthread_setname_np(threads_.back().native_handle(), "smdp-copy");
  }
  return {};
}

void CopyThreads::stop() {
  stopping_ = true;
  {
    const std::lock_guard lock(mutex_);
  }
  added_.notify_all();
  for (std::thread& thread : threads_) {
    thread.join();
  }
  threads_.clear();
}

void CopyThreads::add(std::unique_ptr<Job> job) {
  bool wakes = false;
  {
    const std::lock_guard lock(mutex_);
    queue_.push(std::move(job));
    ++waiting_;
    wakes = sleeping_ > 0;
  }
  if (wakes) {
    added_.notify_one();
  }
}

// Null: the threads stop.
std::unique_ptr<CopyThreads::Job> CopyThreads::next_job() {
  const TimePoint spin_until = Clock::now() + spin_;
  while (waiting_ == 0 && !stopping_ && Clock::now() < spin_until) {
    ::sched_yield();
  }
  std::unique_lock lock(mutex_);
  ++sleeping_;
  added_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
  --sleeping_;
  if (stopping_) {
    return nullptr;
  }
  --waiting_;
  return queue_.pop();
}

void CopyThreads::run() {
  const Arithmetic modes;
  while (std::unique_ptr<Job> job = next_job()) {
    job->work();
    finished_(std::move(job));
  }
}

}  // namespace smdp
