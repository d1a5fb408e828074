// Runs tasks one after the other, on a thread of its own that the first task starts.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "python_lock.h"

namespace smdp_torch {

class TaskThread {
 public:
  using Task = std::function<void()>;  // throws nothing

  TaskThread() {
    const std::lock_guard lock(all_mutex_);
    all_.insert(this);
  }
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;
  ~TaskThread() {
    close();
    const std::lock_guard lock(all_mutex_);
    all_.erase(this);
  }

  // False after close(): the task does not run.
  bool add(Task task) {
    const std::lock_guard lock(mutex_);
    if (closing_) {
      return false;
    }
    tasks_.push_back(std::move(task));
    if (!thread_.joinable()) {
      thread_ = std::thread([this] { run(); });
    }
    changed_.notify_one();
    return true;
  }

  // Runs the tasks that were added, then ends the thread. The caller may hold Python's lock.
  void close() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
      changed_.notify_one();
    }
    const std::lock_guard one_at_a_time(close_mutex_);
    if (thread_.joinable()) {
      const WithoutPythonLock unlocked;                        // the tasks may need it
      owner_ == getpid() ? thread_.join() : thread_.detach();  // a forked child does not have it
    }
  }
  static void close_all() {
    const std::lock_guard lock(all_mutex_);
    for (TaskThread* thread : all_) {
      thread->close();
    }
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return closing_ || !tasks_.empty(); });
      if (tasks_.empty()) {
        return;
      }
      Task task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      task = nullptr;
      lock.lock();
    }
  }

  // Of the process; never destroyed, since a script may leave groups alive.
  inline static std::mutex& all_mutex_ = *new std::mutex;
  inline static std::set<TaskThread*>& all_ = *new std::set<TaskThread*>;

  const pid_t owner_ = getpid();
  std::mutex close_mutex_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;  // guarded by mutex_
  bool closing_ = false;    // guarded by mutex_
  std::thread thread_;
};

}  // namespace smdp_torch
