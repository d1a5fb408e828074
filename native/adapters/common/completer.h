// The threads that report to a framework that an operation is complete. They complete torch's futures, which
// may run Python (DDP's hooks) and release tensors that Python owns, and resume TensorFlow's graphs, which
// may run any operation. The engine's thread does neither.
//
// One thread works and one is spare. A callback may itself wait for another future (DDP's PowerSGD hook
// does), so when a task has run for kTaskTime and others wait, the spare thread runs them and a new thread
// becomes the spare. As long as callbacks do not block, they run one after the other, in the order in which
// operations ended: callbacks that start operations start them in the same order on every rank.
//
// All threads must be idle when the interpreter ends: a thread that requests Python's lock after that is
// terminated in the middle of a destructor, and the process aborts. A script may end while its groups live
// (DDP keeps them for ever) and operations run, so Python's atexit calls retire(): posted tasks run, and
// later ones are stored and never used. The memory of a process that ends needs no owner.
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

  // The completer of this process; a forked child gets another. Never destroyed.
  static Completer& of_process();

  // From any thread. The task runs, and is destroyed, on a thread of the completer. False after retire(): the
  // task is stored, and neither runs nor is destroyed.
  bool post(Task task);
  // For tasks: waits until `done` returns true or retire() is called, at most `timeout`.
  void await(const std::function<bool()>& done, std::chrono::milliseconds timeout);
  // Runs the posted tasks, and the tasks that these post, then ends the threads. Does nothing when called
  // from a task. The caller must not hold Python's lock.
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
  std::chrono::steady_clock::time_point task_time_ends_;
  bool retiring_ = false;
  bool retired_ = false;
};

}  // namespace smdp_adapters
