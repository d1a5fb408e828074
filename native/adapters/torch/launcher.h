// Starts works in the order in which they were made.
//
// The ranks of a group make its calls in one order, which numbers them. Values on a device take their time to
// come to the host, so a work that needs such, and every work after it, waits here for its turn, and not the
// thread that made it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "completer.h"
#include "work.h"

namespace smdp_torch {

class Launcher {
 public:
  using WorkPtr = c10::intrusive_ptr<EngineWork>;

  Launcher() = default;
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;
  ~Launcher() { close(); }

  // Starts the work here if nothing is in its way; raises what the engine says against it then.
  // `at_once`: this thread will wait for it.
  void launch(const WorkPtr& work, smdp_group* group, double timeout_s, bool at_once) {
    if (!must_queue(work)) {
      work->start(group, timeout_s, at_once);
      return;
    }
    const std::lock_guard lock(mutex_);
    queue_.push_back({work, group, timeout_s, std::chrono::steady_clock::now()});
    if (!thread_.joinable()) {
      thread_ = std::thread([this] { run(); });
    }
    changed_.notify_one();
  }

  // What has not started fails. No work is launched from then on.
  void close() {
    closing_ = true;
    {
      const std::lock_guard lock(mutex_);
      changed_.notify_one();
    }
    if (thread_.joinable()) {
      thread_.join();
    }
  }

 private:
  struct Departure {
    WorkPtr work;
    smdp_group* group;
    double timeout_s;
    std::chrono::steady_clock::time_point made;
  };

  bool must_queue(const WorkPtr& work) {
    const std::lock_guard lock(mutex_);
    return work->is_staged() || !queue_.empty();
  }

  // The first of the queue stays there until it has started: others must not overtake it.
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return closing_ || !queue_.empty(); });
      if (queue_.empty()) {
        return;
      }
      Departure& first = queue_.front();
      lock.unlock();
      start(first);
      lock.lock();
      // Not here: its tensors may need Python's lock to die, which whoever closes may hold.
      Completer::of_process().post([work = std::move(first.work)] {});
      queue_.pop_front();
    }
  }

  void start(const Departure& departure) const {
    const auto late = [&] { return too_late(departure); };
    try {
      departure.work->start(departure.group, departure.timeout_s, false, late);
    } catch (const std::exception&) {
      // The work tells it to who waits.
    }
  }

  [[nodiscard]] smdp_error too_late(const Departure& departure) const {
    smdp_error error{};
    if (closing_) {
      error.code = SMDP_CLOSED;
      std::snprintf(error.message, sizeof(error.message),
                    "the process group was destroyed before the call began");
    } else if (std::chrono::steady_clock::now() - departure.made >
               std::chrono::duration<double>(departure.timeout_s)) {
      error.code = SMDP_TIMEOUT;
      std::snprintf(
          error.message, sizeof(error.message),
          "the call could not begin within %.1f s: the device has not finished what its tensors depend on",
          departure.timeout_s);
    }
    return error;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Departure> queue_;  // guarded by mutex_; but for its first, once that is being started
  std::atomic<bool> closing_ = false;
  std::thread thread_;
};

}  // namespace smdp_torch
