// The one thread that completes torch futures, which may run Python (DDP's hooks) and let go of tensors that
// Python owns. The engine's thread does neither.
//
// It must be at rest when the interpreter ends: a thread that asks for Python's lock after that is thrown out
// in the middle of a destructor, and the process aborts. A script may end with its groups alive (DDP keeps
// them for ever) and with operations under way, so Python's atexit calls retire(): what was posted runs,
// whatever comes later is kept and never touched again. The memory of a process that ends needs no owner.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace smdp_torch {

class Completer {
 public:
  using Task = std::function<void()>;

  // The process's own; a forked child gets another. Never destroyed.
  static Completer& of_process();

  // From any thread. The task runs, and dies, on the completer's thread.
  void post(Task task);
  // Runs what was posted and ends the thread; tasks posted later neither run nor die. The caller does not
  // hold Python's lock.
  static void retire();

 private:
  Completer();
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;  // guarded by mutex_, as is retired_
  bool retired_ = false;
  std::thread thread_;
};

}  // namespace smdp_torch
