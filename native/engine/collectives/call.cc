#include "collectives/call.h"

namespace smdp {

Status OperationHandle::wait(std::chrono::nanoseconds timeout) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, timeout, [this] { return is_complete(); })) {
    return {Code::kTimeout, "the operation is not complete yet"};
  }
  return status_;
}

void OperationHandle::complete(const Status& status) {
  if (const Done done = std::move(done_)) {
    done(status);  // first, so that a waiting thread finds it done
  }
  {
    const std::lock_guard lock(mutex_);
    status_ = status;
    complete_.store(true, std::memory_order_release);
  }
  changed_.notify_all();
}

std::string describe(const Descriptor& call) {
  std::string text(name_of(call.collective));
  if (call.collective == Collective::kBarrier) {
    return text + "()";
  }
  text += "(" + std::string(name_of(call.dtype)) + "[" + std::to_string(call.count) + "]";
  if (reduces(call.collective)) {
    text += ", " + std::string(name_of(call.op));
  }
  if (has_root(call.collective)) {
    text += ", root " + std::to_string(call.root);
  } else if (call.root != 0) {
    text += ", one of " + std::to_string(call.root) + " buffers";
  }
  return text + ")";
}

}  // namespace smdp
