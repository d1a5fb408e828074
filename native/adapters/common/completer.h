// The threads that tell a framework that an operation is over: they complete torch's futures, which may run
// Python (DDP's hooks) and let go of tensors that Python owns, and go on with TensorFlow's graphs, which may
// run whatever comes next there. The engine's thread does neither.
//
// One thread works and one stands by. A callback may itself wait for another future (DDP's PowerSGD hook
// does), so when a task has run for kPatience and others are waiting, the one that stands by goes on with
// them and a new one takes its place. As long as callbacks do not block they run one after the other, in the
// order in which operations ended: those that start operations themselves do so in the same order on every
// rank.
//
// All must be at rest when the interpreter ends: a thread that asks for Python's lock after that is thrown
// out in the middle of a destructor, and the process aborts. A script may end with its groups alive (DDP
// keeps them for ever) and with operations under way, so Python's atexit calls retire(): what was posted
// runs, whatever comes later is kept and never touched again. The memory of a process that ends needs no
// owner.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace smdp_adapters {

class Completer {
 public:
  using Task = std::function<void()>;

  // The process's own; a forked child gets another. Never destroyed.
  static Completer& of_process();

  // From any thread. The task runs, and dies, on a thread of the completer. False after retire(): it is kept,
  // and neither runs nor dies.
  bool post(Task task);
  // Waits until `over` says true or retire() was called, at most `timeout`: for tasks that wait.
  void await(const std::function<bool()>& over, std::chrono::milliseconds timeout);
  // Runs what was posted, and what that posts, and ends the threads. Nothing, when called from a task. The
  // caller does not hold Python's lock.
  static void retire();

 private:
  Completer();
  void run();
  void run_first(std::unique_lock<std::mutex>& lock);
  void add_thread();
  void drain();

  const pid_t owner_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // All guarded by mutex_.
  std::deque<Task> tasks_;
  std::vector<std::thread> threads_;
  std::size_t alive_ = 0;    // threads
  std::size_t running_ = 0;  // of them, in a task
  std::chrono::steady_clock::time_point patience_ends_;
  bool retiring_ = false;
  bool retired_ = false;
};

}  // namespace smdp_adapters
