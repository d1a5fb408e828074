#include "completer.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <system_error>
#include <utility>

namespace smdp_adapters {
namespace {

using std::chrono::steady_clock;

constexpr auto kTaskTime = std::chrono::milliseconds(10);
constexpr auto kPause = std::chrono::milliseconds(2);  // between two calls of a condition

// No lock: a fork may happen while another thread holds it, and the child would wait for ever.
std::atomic<Completer*> instance{nullptr};
thread_local bool in_task = false;

}  // namespace

Completer& Completer::of_process() {
  Completer* current = instance.load();
  while (current == nullptr || current->owner_ != ::getpid()) {
    auto* fresh = new Completer();
    if (instance.compare_exchange_strong(current, fresh)) {
      return *fresh;
    }
    delete fresh;
  }
  return *current;
}

Completer::Completer() : owner_(::getpid()) {}

bool Completer::post(Task task) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  if (retired_) {
    return false;
  }
  if (alive_ == 0) {
    add_thread();
  }
  changed_.notify_one();
  return true;
}

void Completer::await(const std::function<bool()>& done, std::chrono::milliseconds timeout) {
  const auto ends = steady_clock::now() + timeout;
  std::unique_lock lock(mutex_);
  while (!retiring_ && steady_clock::now() < ends) {
    lock.unlock();
    if (done()) {
      return;
    }
    lock.lock();
    changed_.wait_for(lock, kPause);
  }
}

void Completer::retire() {
  Completer* completer = instance.load();
  if (completer != nullptr && completer->owner_ == ::getpid() && !in_task) {
    completer->drain();
  }
}

void Completer::drain() {
  std::unique_lock lock(mutex_);
  retiring_ = true;
  changed_.notify_all();
  while (!threads_.empty()) {
    std::thread last = std::move(threads_.back());
    threads_.pop_back();
    lock.unlock();
    last.join();
    lock.lock();
  }
  retired_ = true;
}

// With the lock held.
void Completer::add_thread() {
  try {
    threads_.emplace_back([this] { run(); });
    ++alive_;
  } catch (const std::system_error&) {
    // The system has no thread left: the running ones continue, and the next task retries.
  }
}

void Completer::run() {
  ::pthread_setname_np(::pthread_self(), "smdp-futures");
  in_task = true;
  std::unique_lock lock(mutex_);
  for (;;) {
    if (tasks_.empty()) {
      if (retiring_ && running_ == 0) {
        return;
      }
      changed_.wait(lock);
    } else if (running_ > 0 && steady_clock::now() < task_time_ends_) {
      changed_.wait_until(lock, task_time_ends_);
    } else {
      run_first(lock);
    }
  }
}

void Completer::run_first(std::unique_lock<std::mutex>& lock) {
  Task task = std::move(tasks_.front());
  tasks_.pop_front();
  task_time_ends_ = steady_clock::now() + kTaskTime;
  if (++running_ == alive_) {
    add_thread();
  }
  lock.unlock();
  task();
  task = nullptr;
  lock.lock();
  --running_;
  if (retiring_) {
    changed_.notify_all();
  }
}

}  // namespace smdp_adapters
