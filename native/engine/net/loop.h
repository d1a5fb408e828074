// One thread, one epoll set, and every object of an engine.
//
// Ownership rule of the whole engine: the state of groups, operations, links and shared memory is touched on
// this thread only. Other threads hand it work with post(); it hands results back through OperationHandle
// alone. So none of that state has a lock, and none of the loop's functions may block.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"

namespace smdp {

class Loop {
 public:
  using Task = std::function<void()>;
  using Ready = std::function<void(std::uint32_t events)>;

  Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;
  ~Loop();

  // Starts the thread; `pin_cpu` >= 0 binds it to that processor.
  Status start(int pin_cpu);
  // Runs what is posted already, then ends the thread. From another thread only; safe to call twice.
  void stop();

  // From any thread: `task` runs on the loop, in the order of posting.
  void post(Task task);
  [[nodiscard]] bool on_loop() const { return std::this_thread::get_id() == thread_id_.load(); }

  // On the loop (or before start()).
  void watch(int fd, std::uint32_t events, Ready ready);
  void change(int fd, std::uint32_t events);
  void forget(int fd);
  // `tick` runs about every 20 ms while there is work, as busy() says, and every 250 ms otherwise.
  void set_tick(Task tick, std::function<bool()> busy);

 private:
  void run();
  void run_posted();

  UniqueFd epoll_;
  UniqueFd wake_;
  std::thread thread_;
  std::atomic<std::thread::id> thread_id_{};
  std::mutex mutex_;
  std::vector<Task> posted_;  // guarded by mutex_
  bool stopping_ = false;     // guarded by mutex_
  std::unordered_map<int, std::shared_ptr<Ready>> watched_;
  Task tick_;
  std::function<bool()> busy_;
};

}  // namespace smdp
