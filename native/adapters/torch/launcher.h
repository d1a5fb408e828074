// Starts works in the order in which they were created.
//
// The ranks of a group make its calls in one order, which numbers them. Copying values from a device to the
// host takes time, so a work that needs that, and every work after it, waits in a queue for its turn, instead
// of the thread that created it.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "../common/completer.h"
#include "work.h"

namespace smdp_torch {

// Destroyed when the last thread that makes a call on it releases it.
using GroupPtr = std::shared_ptr<smdp_group>;

class Launcher {
 public:
  using WorkPtr = c10::intrusive_ptr<EngineWork>;

  Launcher() {
    const std::lock_guard lock(all_mutex_);
    all_.insert(this);
  }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;
  ~Launcher() {
    close();
    const std::lock_guard lock(all_mutex_);
    all_.erase(this);
  }

  // Starts the work on this thread if no other must start first, and raises the engine's error then.
  // `at_once`: this thread waits for the work.
  //
  // A call that does not reach the engine leaves a gap in the numbers of its group's calls. The next call
  // would get its number and match the wrong call of the other ranks. So no call of the group follows it.
  void launch(const WorkPtr& work, const GroupPtr& group, double timeout_s, bool at_once) {
    if (!must_queue(work, group.get())) {
      work->start(group.get(), timeout_s, at_once);
      return;
    }
    const std::lock_guard lock(mutex_);
    queue_.push_back({work, group, timeout_s, std::chrono::steady_clock::now()});
    if (!thread_.joinable()) {
      thread_ = std::thread([this] { run(); });
    }
    changed_.notify_one();
  }

  // Fails the works that have not started. No work is launched afterwards. The caller may hold Python's lock.
  void close() {
    const std::lock_guard one_at_a_time(close_mutex_);
    closing_ = true;
    {
      const std::lock_guard lock(mutex_);
      changed_.notify_one();
    }
    if (thread_.joinable()) {
      owner_ == getpid() ? thread_.join() : thread_.detach();  // a forked child does not have it
    }
  }
  static void close_all() {
    const std::lock_guard lock(all_mutex_);
    for (Launcher* launcher : all_) {
      launcher->close();
    }
  }

 private:
  struct Queued {
    WorkPtr work;
    GroupPtr group;
    double timeout_s;
    std::chrono::steady_clock::time_point created;
  };

  bool must_queue(const WorkPtr& work, const smdp_group* group) {
    const std::lock_guard lock(mutex_);
    const auto broken = broken_.find(group);
    if (broken != broken_.end()) {
      raise(broken->second);
    }
    return work->is_staged() || !queue_.empty();
  }

  // The first work stays in the queue until it has started, so that others do not overtake it.
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return closing_ || !queue_.empty(); });
      if (queue_.empty()) {
        return;
      }
      Queued& first = queue_.front();
      lock.unlock();
      start(first);
      lock.lock();
      // Destroyed on the completer: its tensors may need Python's lock, which the thread in close() may hold.
      smdp_adapters::Completer::of_process().post([work = std::move(first.work)] {});
      queue_.pop_front();
    }
  }

  void start(const Queued& queued) {
    try {
      queued.work->start(queued.group.get(), queued.timeout_s, false,
                         [&](Staging* staging, std::size_t call) {
                           const smdp_error error = await_turn(queued, staging, call);
                           if (error.code != SMDP_OK) {
                             const std::lock_guard lock(mutex_);
                             broken_.emplace(queued.group.get(), error);
                           }
                           return error;
                         });
    } catch (const std::exception&) {
      // The work reports the error to the thread that waits for it.
    }
  }

  // Waits until a call of the work may begin; an error: it never may.
  smdp_error await_turn(const Queued& queued, Staging* staging, std::size_t call) {
    const auto late = [&] { return too_late(queued); };
    const smdp_error error = late();
    if (error.code != SMDP_OK || staging == nullptr) {
      return error;
    }
    try {
      return staging->await(call, late);
    } catch (const std::exception& caught) {  // the device failed
      return failed(SMDP_SYSTEM, caught.what());
    }
  }

  [[nodiscard]] smdp_error too_late(const Queued& queued) {
    if (closing_) {
      return failed(SMDP_CLOSED, "the process group was destroyed before the call began");
    }
    {
      const std::lock_guard lock(mutex_);
      const auto broken = broken_.find(queued.group.get());
      if (broken != broken_.end()) {
        return broken->second;
      }
    }
    if (std::chrono::steady_clock::now() - queued.created > std::chrono::duration<double>(queued.timeout_s)) {
      std::array<char, 200> why{};
      std::snprintf(
          why.data(), why.size(),
          "the call could not begin within %.1f s: the device has not finished what its tensors, or "
          "those of a call before it, depend on",
          queued.timeout_s);
      return failed(SMDP_TIMEOUT, why.data());
    }
    return {};
  }

  // Of the process; never destroyed, since a script may leave groups alive.
  inline static std::mutex& all_mutex_ = *new std::mutex;
  inline static std::set<Launcher*>& all_ = *new std::set<Launcher*>;

  const pid_t owner_ = getpid();
  std::mutex close_mutex_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Queued> queue_;  // guarded by mutex_, except the first one while it starts
  std::map<const smdp_group*, smdp_error>
      broken_;  // guarded by mutex_: groups with a call that did not begin
  std::atomic<bool> closing_ = false;
  std::thread thread_;
};

}  // namespace smdp_torch
