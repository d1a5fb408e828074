// A collective under way, as torch sees it.
#pragma once

#include <smdp/engine.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
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

// Several calls of the engine may make up one Work (coalesced tensors). It keeps its tensors, and itself,
// until the last of them ended; from then on it belongs to the completer's task, so that nothing of torch
// dies on the engine's thread.
class EngineWork final : public c10d::Work {
 public:
  EngineWork(int rank, c10d::OpType type, const char* title, Tensors results)
      : Work(rank, type, title),
        results_(std::move(results)),
        future_(c10::make_intrusive<at::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {}
  ~EngineWork() override {
    for (smdp_operation* operation : operations_) {
      smdp_operation_release(operation);
    }
  }

  // Starts one call; several may be started before arm().
  void submit(smdp_group* group, smdp_call call) {
    call.size = sizeof(call);
    call.done = [](void* context, const smdp_error* error) {
      static_cast<EngineWork*>(context)->finish_one(*error);
    };
    call.context = this;
    hold();
    smdp_operation* operation = nullptr;
    smdp_error error{};
    if (smdp_submit(group, &call, &operation, &error) != SMDP_OK) {
      finish_one(error);
      arm(nullptr);
      raise(error);
    }
    operations_.push_back(operation);
  }

  // All calls are submitted: the last one's end completes the work. `after` runs then, before anybody sees
  // the results.
  void arm(std::function<void()> after) {
    after_ = std::move(after);
    hold();
    finish_one(smdp_error{});
    finish_one(smdp_error{});  // the count began at one, lest the first call's end be taken for the last's
  }

  // Waits in the engine, and then does what the completer would do later.
  bool wait(std::chrono::milliseconds timeout) override {
    const double limit = seconds_of(timeout);
    const auto began = std::chrono::steady_clock::now();
    for (smdp_operation* operation : operations_) {
      const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - began;
      // Without a limit of the caller's the engine's own deadline ends every operation.
      const double left = limit == 0 ? -1 : std::max(0.0, limit - spent.count());
      smdp_error error{};
      if (smdp_operation_wait(operation, left, &error) == SMDP_TIMEOUT &&
          smdp_operation_test(operation) == 0) {
        TORCH_CHECK_WITH(DistBackendError, false, "smddp: wait() gave up after ", timeout.count(),
                         " ms; the operation goes on");
      }
    }
    conclude();
    if (failure_.code != SMDP_OK) {
      raise(failure_);
    }
    return true;
  }
  bool isCompleted() override {
    const std::lock_guard lock(state_mutex_);
    return over_;
  }
  bool isSuccess() const override {
    const std::lock_guard lock(state_mutex_);
    return over_ && failure_.code == SMDP_OK;
  }
  Tensors result() override { return results_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  void abort() override { unsupported("aborting a single operation"); }

 private:
  using Self = c10::intrusive_ptr<EngineWork>;

  void hold() {
    const std::lock_guard lock(state_mutex_);
    ++pending_;
    if (!self_) {
      self_ = Self::reclaim_copy(this);
    }
  }

  // On the engine's thread, or on the one that submits.
  void finish_one(const smdp_error& error) {
    Self self;
    {
      const std::lock_guard lock(state_mutex_);
      if (error.code != SMDP_OK && failure_.code == SMDP_OK) {
        failure_ = error;
      }
      if (--pending_ > 0) {
        return;
      }
      self = std::move(self_);
    }
    Completer::of_process().post([self = std::move(self)] { self->conclude(); });
  }

  // On the completer's thread or on one that waits, whichever comes first; returns when it is done.
  void conclude() {
    {
      std::unique_lock lock(state_mutex_);
      if (std::exchange(concluding_, true)) {
        changed_.wait(lock, [this] { return over_; });
        return;
      }
    }
    if (failure_.code == SMDP_OK && after_) {
      try {
        after_();
      } catch (const std::exception& caught) {
        failure_.code = SMDP_INTERNAL;
        std::snprintf(failure_.message, sizeof(failure_.message), "%s", caught.what());
      }
    }
    after_ = nullptr;
    {
      const std::lock_guard lock(state_mutex_);
      over_ = true;
    }
    changed_.notify_all();
    complete_future();
  }

  void complete_future() {
    if (failure_.code == SMDP_OK) {
      future_->markCompleted(at::IValue(results_));
    } else {
      future_->setError(std::make_exception_ptr(c10::DistBackendError(
          {__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, std::string("smddp: ") + failure_.message)));
    }
  }

  Tensors results_;
  c10::intrusive_ptr<at::ivalue::Future> future_;
  std::vector<smdp_operation*> operations_;
  std::function<void()> after_;
  mutable std::mutex state_mutex_;
  std::condition_variable changed_;
  // Guarded by state_mutex_. `failure_` is final when nothing is pending.
  int pending_ = 1;
  Self self_;
  bool concluding_ = false;
  bool over_ = false;
  smdp_error failure_{};
};

}  // namespace smdp_torch
