// Starts works in the order in which they were made.
//
// The ranks of a group make its calls in one order, which numbers them. Values on a device take their time to
// come to the host, so a work that needs such, and every work after it, waits here for its turn, and not the
// thread that made it.
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

// Destroyed when the last thread that makes a call on it has let go.
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

  // Starts the work here if nothing is in its way; raises what the engine says against it then.
  // `at_once`: this thread will wait for it.
  //
  // A call that does not reach the engine would leave a hole in the numbers of its group's calls, which the
  // next one would take for its own and meet other ranks' in. So none follows it.
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

  // What has not started fails. No work is launched from then on. The caller may hold Python's lock.
  void close() {
    const std::lock_guard one_at_a_time(close_mutex_);
    closing_ = true;
    {
      const std::lock_guard lock(mutex_);
      changed_.notify_one();
    }
    if (thread_.joinable()) {
      owner_ == getpid() ? thread_.join() : thread_.detach();  // a forked child has not got it
    }
  }
  static void close_all() {
    const std::lock_guard lock(all_mutex_);
    for (Launcher* launcher : all_) {
      launcher->close();
    }
  }

 private:
  struct Departure {
    WorkPtr work;
    GroupPtr group;
    double timeout_s;
    std::chrono::steady_clock::time_point made;
  };

  bool must_queue(const WorkPtr& work, const smdp_group* group) {
    const std::lock_guard lock(mutex_);
    const auto broken = broken_.find(group);
    if (broken != broken_.end()) {
      raise(broken->second);
    }
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
      smdp_adapters::Completer::of_process().post([work = std::move(first.work)] {});
      queue_.pop_front();
    }
  }

  void start(const Departure& departure) {
    try {
      departure.work->start(departure.group.get(), departure.timeout_s, false,
                            [&](const Staging* staging, std::size_t call) {
                              const smdp_error error = await_turn(departure, staging, call);
                              if (error.code != SMDP_OK) {
                                const std::lock_guard lock(mutex_);
                                broken_.emplace(departure.group.get(), error);
                              }
                              return error;
                            });
    } catch (const std::exception&) {
      // The work tells it to who waits.
    }
  }

  // Until a call of the work may begin, or never shall.
  smdp_error await_turn(const Departure& departure, const Staging* staging, std::size_t call) {
    const auto late = [&] { return too_late(departure); };
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

  [[nodiscard]] smdp_error too_late(const Departure& departure) {
    if (closing_) {
      return failed(SMDP_CLOSED, "the process group was destroyed before the call began");
    }
    {
      const std::lock_guard lock(mutex_);
      const auto broken = broken_.find(departure.group.get());
      if (broken != broken_.end()) {
        return broken->second;
      }
    }
    if (std::chrono::steady_clock::now() - departure.made >
        std::chrono::duration<double>(departure.timeout_s)) {
      std::array<char, 200> why{};
      std::snprintf(
          why.data(), why.size(),
          "the call could not begin within %.1f s: the device has not finished what its tensors, or "
          "those of a call before it, depend on",
          departure.timeout_s);
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
  std::deque<Departure> queue_;  // guarded by mutex_; but for its first, once that is being started
  std::map<const smdp_group*, smdp_error>
      broken_;  // guarded by mutex_: the groups of calls that did not begin
  std::atomic<bool> closing_ = false;
  std::thread thread_;
};

}  // namespace smdp_torch
