#include "collectives/call.h"

namespace smdp {

Status OperationHandle::wait(std::chrono::nanoseconds timeout) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, timeout, [this] { return complete_; })) {
    return {Code::kTimeout, "the operation is not complete yet"};
  }
  return status_;
}

bool OperationHandle::is_complete() const {
  const std::lock_guard lock(mutex_);
  return complete_;
}

void OperationHandle::complete(const Status& status) {
  if (const Done done = std::move(done_)) {
    done(status);  // first, so that who waits finds it done
  }
  {
    const std::lock_guard lock(mutex_);
    complete_ = true;
    status_ = status;
  }
  changed_.notify_all();
}

std::string describe(const Descriptor& call) {
  std::string text(name_of(call.collective));
  if (call.collective == Collective::kBarrier) {
    return text + "()";
  }
  text += "(" + std::string(name_of(call.dtype)) + "[" + std::to_string(call.count) + "]";
  if (call.collective == Collective::kAllReduce || call.collective == Collective::kReduce) {
    text += ", " + std::string(name_of(call.op));
  }
  if (call.collective == Collective::kBroadcast || call.collective == Collective::kReduce) {
    text += ", root " + std::to_string(call.root);
  } else if (call.root != 0) {
    text += ", one of " + std::to_string(call.root) + " buffers";
  }
  return text + ")";
}

}  // namespace smdp
