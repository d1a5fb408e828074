// A collective under way, as torch sees it.
#pragma once

#include <smdp/engine.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "completer.h"
#include "translate.h"

namespace smdp_torch {

using at::ivalue::Future;

// Several calls of the engine may make up one Work (coalesced tensors). It keeps itself, and by `after` its
// tensors, until the last of them ended; from then on it belongs to the completer's task, so that nothing of
// torch dies on the engine's thread.
//
// Three things follow the end, and none waits for Python. The engine's thread counts it; the first who asks
// (a waiter or the completer) puts the results in place; the completer completes the future, whose callbacks
// may wait for other works.
class EngineWork final : public c10d::Work {
 public:
  EngineWork(int rank, c10d::OpType type, const char* title, const Tensors& inputs, Tensors results)
      : Work(rank, type, title, inputs), results_(std::move(results)) {}
  ~EngineWork() override {
    for (smdp_operation* operation : operations_) {
      smdp_operation_release(operation);
    }
  }

  // Starts the calls, once. `after` owns their memory; it runs when the last has ended well, before anybody
  // sees the results. When the engine refuses a call, those before it go on.
  void start(smdp_group* group, std::vector<smdp_call> calls, std::function<void()> after) {
    after_ = std::move(after);
    pending_ = calls.size() + 1;  // one for this function: the first call may end before the last begins
    self_ = Self::reclaim_copy(this);
    smdp_error refusal{};
    for (smdp_call& call : calls) {
      call.size = sizeof(call);
      call.done = [](void* context, const smdp_error* error) {
        static_cast<EngineWork*>(context)->end_one(*error);
      };
      call.context = this;
      smdp_operation* operation = nullptr;
      if (refusal.code == SMDP_OK && smdp_submit(group, &call, &operation, &refusal) == SMDP_OK) {
        operations_.push_back(operation);
      } else {
        end_one(refusal);
      }
    }
    end_one(refusal);
    if (refusal.code != SMDP_OK) {
      raise(refusal);
    }
  }

  // As with Gloo, who has waited finds the future complete.
  bool wait(std::chrono::milliseconds timeout) override {
    const Waiter waiter(*this);
    const double limit = seconds_of(timeout);
    const auto began = std::chrono::steady_clock::now();
    // Without a limit of the caller's the engine's own deadline ends every operation.
    const auto left = [&] {
      const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - began;
      return limit == 0 ? -1 : std::max(0.0, limit - spent.count());
    };
    for (smdp_operation* operation : operations_) {
      smdp_error error{};
      if (smdp_operation_wait(operation, left(), &error) == SMDP_TIMEOUT &&
          smdp_operation_test(operation) == 0) {
        TORCH_CHECK_WITH(DistBackendError, false, "smddp: wait() gave up after ", timeout.count(),
                         " ms; the operation goes on");
      }
    }
    settle();
    std::unique_lock lock(state_mutex_);
    const auto known = [this] { return !future_ || future_known_; };
    if (limit == 0) {
      changed_.wait(lock, known);
    } else {
      changed_.wait_for(lock, std::chrono::duration<double>(left()), known);
    }
    if (failure_.code != SMDP_OK) {
      raise(failure_);
    }
    return true;
  }
  bool isCompleted() override {
    {
      const std::lock_guard lock(state_mutex_);
      if (over_ || pending_ > 0) {
        return over_;
      }
    }
    settle();
    return true;
  }
  bool isSuccess() const override {
    const std::lock_guard lock(state_mutex_);
    return over_ && failure_.code == SMDP_OK;
  }
  Tensors result() override { return results_; }
  c10::intrusive_ptr<Future> getFuture() override {
    std::unique_lock lock(state_mutex_);
    if (!future_ && pending_ == 0 && !over_) {
      lock.unlock();
      settle();
      lock.lock();
    }
    if (!future_) {
      future_ = c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()));
      if (over_) {
        complete(*future_);  // nobody's callback is on it yet
        future_known_ = true;
      } else {
        // The first callback: it runs before any that may block. The work outlives it in the completer's
        // task.
        future_->addCallback([this](Future&) { make_known(); });
      }
    }
    return future_;
  }
  void abort() override { unsupported("aborting a single operation"); }

 private:
  using Self = c10::intrusive_ptr<EngineWork>;

  // While somebody waits, who holds the work, and nobody has asked for a future, the completer has nothing to
  // do, and small operations do without its thread.
  class Waiter {
   public:
    explicit Waiter(EngineWork& work) : work_(work) {
      const std::lock_guard lock(work_.state_mutex_);
      ++work_.waiting_;
    }
    ~Waiter() {
      Self last;
      const std::lock_guard lock(work_.state_mutex_);
      if (--work_.waiting_ == 0 && work_.pending_ == 0) {
        last = std::move(work_.self_);
      }
    }
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;

   private:
    EngineWork& work_;
  };

  // On the engine's thread, or on the one that starts.
  void end_one(const smdp_error& error) {
    Self self;
    {
      const std::lock_guard lock(state_mutex_);
      if (error.code != SMDP_OK && failure_.code == SMDP_OK) {
        failure_ = error;
      }
      if (--pending_ > 0 || (waiting_ > 0 && !future_)) {
        return;
      }
      self = std::move(self_);
    }
    EngineWork& work = *self;
    if (!Completer::of_process().post([self = std::move(self)] { self->complete_future(); })) {
      work.make_known();  // the interpreter ends: nobody will complete the future
    }
  }

  // Nothing is pending: puts the results in place, once, and returns when they are.
  void settle() {
    std::function<void()> used;  // dies after the others may go on: its tensors may need Python's lock
    std::call_once(settled_, [&] {
      used = std::move(after_);
      smdp_error error = failure_;
      if (error.code == SMDP_OK && used) {
        try {
          used();
        } catch (const std::exception& caught) {
          error.code = SMDP_INTERNAL;
          std::snprintf(error.message, sizeof(error.message), "%s", caught.what());
        }
      }
      if (recordFunctionEndCallback_) {  // a profiler watches
        recordFunctionEndCallback_();
        recordFunctionEndCallback_ = nullptr;
      }
      const std::lock_guard lock(state_mutex_);
      failure_ = error;
      over_ = true;
    });
  }

  // On the completer's thread; runs callbacks.
  void complete_future() {
    settle();
    c10::intrusive_ptr<Future> future;
    {
      const std::lock_guard lock(state_mutex_);
      if (!future_ || future_known_) {
        return;
      }
      future = future_;
    }
    complete(*future);
  }

  void complete(Future& future) const {
    if (failure_.code == SMDP_OK) {
      future.markCompleted(at::IValue(results_));
    } else {
      future.setError(std::make_exception_ptr(
          c10::DistBackendError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, told(failure_))));
    }
  }

  void make_known() {
    {
      const std::lock_guard lock(state_mutex_);
      future_known_ = true;
    }
    changed_.notify_all();
  }

  Tensors results_;
  std::vector<smdp_operation*> operations_;
  std::function<void()> after_;
  std::once_flag settled_;
  mutable std::mutex state_mutex_;
  std::condition_variable changed_;
  // Guarded by state_mutex_. `failure_` is final once `over_`.
  std::size_t pending_ = 0;
  std::size_t waiting_ = 0;  // threads in wait()
  Self self_;
  smdp_error failure_{};
  bool over_ = false;
  c10::intrusive_ptr<Future> future_;  // made when somebody asks for it
  bool future_known_ = false;          // complete, or never to be
};

}  // namespace smdp_torch
