// The event loop of an engine: one epoll set, and one thread at a time that uses the engine's objects.
//
// Ownership rule of the whole engine: the state of groups, operations, links and shared memory is used on the
// loop only. Other threads give it work with post(); it returns results through OperationHandle only. So none
// of that state has a lock, and no function on the loop may block. Large copies and sums run on copy threads
// (shm/offload.h), which use bytes and no state.
//
// The thread that holds the baton runs the loop. That is the loop's own thread, unless a thread waits for an
// operation: then the waiting thread runs the loop (drive()), and a small message costs no thread switch. The
// loop's thread takes the baton back when no thread has waited for a moment. A lock protects posted work and
// another one the baton, so the ownership rule holds as if there were one thread.
//
// While there is swift work, the holder of the baton polls for a moment, and yields the processor each time,
// before it sleeps in the kernel. While work is seldom, it sleeps for a millisecond first, during which the
// other ranks of the host need not wake it: that would cost both sides more than the frame itself. While copy
// threads work, it polls as with swift work. Where a fabric has no descriptor that wakes the loop, the holder
// polls while there is work, and sleeps for moments of at most a millisecond.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/copy_threads.h"
#include "base/executor.h"
#include "base/fd.h"
#include "base/status.h"

namespace smdp {

class Loop final : public Executor {
 public:
  using Ready = std::function<void(std::uint32_t events)>;

  // Work on fewer bytes is done before another thread has taken it.
  static constexpr std::uint64_t kLeastOffload = 16U << 10U;  // bytes

  // What the loop polls in every turn beside the descriptors: mailboxes in shared memory, the completions of
  // a fabric.
  class Poller {
   public:
    virtual ~Poller() = default;
    // True when there was something to do.
    virtual bool poll() = 0;
    // Before the loop sleeps: asks the other ranks to wake it. False: something arrived meanwhile, do not
    // sleep.
    virtual bool fall_asleep() = 0;
    virtual void wake_up() = 0;
    // Nothing wakes the loop for what arrives here, so it sleeps for moments only. `is_work`: of the engine.
    [[nodiscard]] virtual bool needs_polling(bool is_work) const {
      (void)is_work;
      return false;
    }
  };

  Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;
  ~Loop() override;

  // Executor
  Status start(const Threads& threads) override;
  void stop() override;
  void post(Task task) override;
  void post_before_drive(Task task) override;
  void drive(const std::function<bool()>& done, TimePoint deadline) override;
  [[nodiscard]] bool offloads(std::uint64_t bytes) const override;
  void offload(Task work, Task done) override;
  void set_tick(Task tick, std::function<Work()> work) override;
  void set_exhausted(Task exhausted) override { exhausted_ = std::move(exhausted); }

  // On the loop (or before start()).
  void watch(int fd, std::uint32_t events, Ready ready);
  void change(int fd, std::uint32_t events);
  void forget(int fd);
  void add_poller(Poller* poller) { pollers_.push_back(poller); }
  // A buffer for one read, valid until the reader returns to the loop. One for all streams: a rank of a large
  // job has a thousand.
  [[nodiscard]] std::span<std::byte> scratch() { return *scratch_; }

 private:
  void run();
  void wait_for_baton(std::unique_lock<std::mutex>& lock);
  // One turn: descriptors, mailboxes, posted tasks, the tick. Sleeps at most until `until` when there is
  // nothing to do.
  void turn(TimePoint until);
  void turn_with_memory(TimePoint until);
  void idle(TimePoint now, TimePoint until);
  bool take_events(int timeout_ms);
  bool run_posted();
  bool run_finished();
  void poll_sources();
  bool poll_all();
  bool fall_asleep();
  // Sleeps for a moment that grows with the time since the last work, and is not announced to other ranks.
  void nap(TimePoint now, TimePoint until);
  // True when something arrived. `wakeable`: the other ranks wake the loop when they have something for the
  // poller.
  bool sleep(TimePoint until, bool wakeable);
  void run_here(const Task& task);
  void on_posted();
  void wake();
  [[nodiscard]] bool has_posted();
  [[nodiscard]] Work work() const { return work_ ? work_() : Work::kNone; }
  [[nodiscard]] std::chrono::milliseconds tick_period() const { return Executor::tick_period(work()); }

  UniqueFd epoll_;
  UniqueFd bell_;
  Status created_;
  std::thread thread_;
  std::mutex mutex_;
  std::vector<Task> posted_;     // guarded by mutex_
  CopyThreads::Queue finished_;  // guarded by mutex_: offloaded work that has run
  std::atomic<bool> has_finished_ = false;

  std::mutex baton_mutex_;
  std::condition_variable baton_;  // the baton is free, or the operation of a waiting thread may be complete
  bool taken_ = false;             // guarded by baton_mutex_, as are the four below
  bool by_thread_ = false;         // ... by the loop's own thread
  bool stopping_ = false;
  bool work_posted_ = false;  // by a thread that does not wait: the loop's thread need not hold back
  int waiting_ = 0;
  std::atomic<bool> wanted_ = false;  // a thread waits for the baton that the loop's thread holds
  std::atomic<bool> asleep_ = false;  // the holder sleeps in the kernel: wake it with the bell

  // On the loop.
  std::unique_ptr<std::array<std::byte, 32768>> scratch_ = std::make_unique<std::array<std::byte, 32768>>();
  std::unordered_map<int, std::shared_ptr<Ready>> watched_;
  std::vector<Poller*> pollers_;
  Task tick_;
  std::function<Work()> work_;
  Task exhausted_;
  std::chrono::microseconds spin_{0};
  TimePoint last_tick_{};
  TimePoint last_work_{};
  bool dozed_ = false;  // since the last work
  int offloaded_ = 0;   // pieces of work that are not done

  CopyThreads copy_threads_;  // destroyed first
};

}  // namespace smdp
