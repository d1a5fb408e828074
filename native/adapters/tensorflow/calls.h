// The engine of this process as TensorFlow's operations use it: calls whose end is told on the completer's
// threads (common/completer.h), where it may take its time and call the engine again.
#pragma once

#include <smdp/engine.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace smdp_tensorflow {

// How an operation ended; code SMDP_OK: well. From any thread, once.
using Ended = std::function<void(const smdp_error&)>;

smdp_error failure(smdp_code code, const std::string& why);

// Tells the end of several parts as one: that of the first that failed, or a good one.
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

  // Whatever happens, `ended` is called, later and on another thread.
  void submit(smdp_call call, Ended ended);
  // The other ranks hear of it in what they wait for. Not from inside a callback of the engine.
  void close();

 private:
  std::mutex mutex_;
  smdp_group* group_ = nullptr;  // guarded by mutex_; null once it is closed
};

// Runs it on a thread of the completer.
void later(std::function<void()> task);

}  // namespace smdp_tensorflow
