// The engine of this process as TensorFlow's operations use it: calls that complete on the completer's
// threads (common/completer.h), where code may block and call the engine.
#pragma once

#include <smdp/engine.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace smdp_tensorflow {

// Called with the result of an operation, from any thread, once; code SMDP_OK: success.
using Ended = std::function<void(const smdp_error&)>;

smdp_error failure(smdp_code code, const std::string& why);

// Reports the end of several parts as one: the error of the first part that failed, or success.
class Together : public std::enable_shared_from_this<Together> {
 public:
  Together(int parts, Ended ended) : left_(parts), ended_(std::move(ended)) {}
  Ended part();

 private:
  std::atomic<int> left_;
  std::atomic<bool> failed_ = false;
  smdp_error error_{};  // written by the part that failed first
  const Ended ended_;
};

// A group of all ranks with a sequence of operations of its own.
class Group {
 public:
  Group(smdp_engine* engine, int world_size, const std::string& name, smdp_error* error);
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group();

  // Calls `ended` in every case, later and on another thread.
  void submit(smdp_call call, Ended ended);
  // The calls of the other ranks fail. Not from inside a callback of the engine.
  void close();

 private:
  std::mutex mutex_;
  smdp_group* group_ = nullptr;  // guarded by mutex_; null once it is closed
};

// Runs a task on a thread of the completer.
void later(std::function<void()> task);

}  // namespace smdp_tensorflow
