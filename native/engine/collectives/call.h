// What a caller asks for, and what it holds while the engine works on it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "base/status.h"
#include "net/frame.h"

namespace smdp {

// What the submitting thread holds: the only state that two threads share.
class OperationHandle {
 public:
  using Done = std::function<void(const Status&)>;

  explicit OperationHandle(Done done) : done_(std::move(done)) {}
  // kTimeout when it is not complete within `timeout`; the operation itself goes on.
  Status wait(std::chrono::nanoseconds timeout);
  [[nodiscard]] bool is_complete() const;
  // On the loop, once.
  void complete(const Status& status);

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool complete_ = false;  // guarded by mutex_, as is status_
  Status status_;
  Done done_;
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
  std::shared_ptr<OperationHandle> handle;
};

// "all_reduce(float32[100], sum)"
std::string describe(const Descriptor& call);

}  // namespace smdp
