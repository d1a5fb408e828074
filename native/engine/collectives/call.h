// A call, and the handle through which its caller learns that it is complete.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "net/frame.h"

namespace smdp {

// Held by the submitting thread: the only state that two threads share.
class OperationHandle {
 public:
  using Done = std::function<void(const Status&)>;

  explicit OperationHandle(Done done) : done_(std::move(done)) {}
  // kTimeout when it is not complete within `timeout`; the operation itself continues.
  Status wait(std::chrono::nanoseconds timeout);
  [[nodiscard]] bool is_complete() const { return complete_.load(std::memory_order_acquire); }
  // The result; of a complete operation only.
  [[nodiscard]] const Status& status() const { return status_; }
  // On the loop, once.
  void complete(const Status& status);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> complete_ = false;  // set under mutex_
  Status status_;                       // final when complete
  Done done_;
};

// One message of a call that is made of messages.
struct Part {
  static constexpr int kAnyRank = -1;

  int peer = 0;  // rank within the group; of a receive also kAnyRank
  bool receive = false;
  std::span<std::byte> memory;  // not written to when sending
  int* source = nullptr;        // where the sender's rank is written, or null
};

struct Call {
  Descriptor what;
  std::span<const std::byte> input;
  std::span<std::byte> output;
  double timeout_s = 0;  // 0: the option's
  // Set for buffers named by (step, index, count) instead of by the order of calls.
  bool keyed = false;
  std::uint32_t step = 0;
  std::uint32_t index = 0;
  std::uint32_t buffers = 0;
  // The caller waits at once and so runs the loop itself: no other thread is woken.
  bool blocking = false;
  std::vector<Part> parts;
  std::uint32_t tag = 0;  // of kSend and kRecv
  std::shared_ptr<OperationHandle> handle;
};

// "all_reduce(float32[100], sum)"
std::string describe(const Descriptor& call);

}  // namespace smdp
