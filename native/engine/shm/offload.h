// The copies and sums of one operation, on the executor's copy threads where they are large enough for that.
//
// They read and write memory of the operation and of its caller, who may use it again when the operation
// ends. An operation that ends early therefore calls cancel() first, which waits for the work that runs at
// this moment, one piece per thread, and drops the rest.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>

#include "base/executor.h"
#include "record/marks.h"

namespace smdp {

// On the loop.
class Offload {
 public:
  using Task = Executor::Task;

  // `resume`: runs the `done` of work that ran on another thread.
  Offload(Executor& executor, Marks marks, std::function<void(const Task& done)> resume)
      : executor_(executor), marks_(marks), resume_(std::move(resume)) {}
  Offload(const Offload&) = delete;
  Offload& operator=(const Offload&) = delete;
  ~Offload() { cancel(); }

  // Runs `work`, then `done`: both before this returns, or both later, `work` on another thread. `bytes`: the
  // number that `work` reads.
  template <class Work, class Done>
  void run(Phase phase, std::uint64_t bytes, Work work, Done done) {
    if (!executor_.offloads(bytes)) {
      marks_.work_on(phase);
      work();
      rest();
      done();
      return;
    }
    hand_over(phase, std::move(work), std::move(done));
  }
  void cancel();
  [[nodiscard]] bool has_threads() const { return executor_.offloads(UINT64_MAX); }

 private:
  // Outlives the operation: work may begin after its end.
  struct Gate {
    std::mutex mutex;
    std::condition_variable left;
    int inside = 0;  // threads; guarded by mutex, as is closed
    bool closed = false;

    void enter_and_run(const Task& work);
  };

  void hand_over(Phase phase, Task work, Task done);
  void rest() const {
    if (under_way_ == 0) {
      marks_.rest();
    }
  }

  Executor& executor_;
  Marks marks_;
  std::function<void(const Task& done)> resume_;
  std::shared_ptr<Gate> gate_;  // null until work is offloaded
  int under_way_ = 0;
};

}  // namespace smdp
