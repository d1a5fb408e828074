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
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "completer.h"
#include "request.h"

namespace smdp_torch {

using at::ivalue::Future;

// Several calls of the engine may make up one Work (coalesced tensors). It keeps itself, and in the request
// its tensors, until the last of them ended; from then on it belongs to the completer's task, so that nothing
// of torch dies on the engine's thread.
//
// Three things follow the end, and none waits for Python. The engine's thread counts it; the first who asks
// (a waiter or the completer) puts the results in place; the completer completes the future, whose callbacks
// may wait for other works.
class EngineWork final : public c10d::Work {
 public:
  EngineWork(int rank, Request request)
      : Work(rank, request.type, request.title, request.inputs),
        results_(request.results),
        source_(request.source),
        request_(std::move(request)) {}
  ~EngineWork() override {
    for (smdp_operation* operation : operations_) {
      smdp_operation_release(operation);
    }
  }

  // Starts the calls, once. The request keeps their memory; it is finished when the last has ended well,
  // before anybody sees the results. When the engine refuses a call, those before it go on.
  void start(smdp_group* group, double timeout_s, bool blocking) {
    pending_ =
        request_->calls.size() + 1;  // one for this function: the first call may end before the last begins
    self_ = Self::reclaim_copy(this);
    smdp_error refusal{};
    for (smdp_call& call : request_->calls) {
      call.size = sizeof(call);
      call.timeout_s = timeout_s;
      call.blocking = blocking ? 1 : 0;
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
  // Of a receipt from any rank, once it is over.
  int sourceRank() const override {
    TORCH_CHECK(source_, "smddp: only what was received has a source");
    return *source_;
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
    std::optional<Request> used;  // dies after the others may go on: its tensors may need Python's lock
    std::call_once(settled_, [&] {
      used = std::exchange(request_, std::nullopt);
      smdp_error error = failure_;
      if (error.code == SMDP_OK) {
        try {
          used->finish();
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
  std::shared_ptr<int> source_;
  std::optional<Request> request_;
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

// Many works as one.
class WorkOfMany final : public c10d::Work {
 public:
  WorkOfMany(int rank, std::vector<c10::intrusive_ptr<c10d::Work>> works)
      : Work(rank, c10d::OpType::COALESCED), works_(std::move(works)) {}

  bool wait(std::chrono::milliseconds timeout) override {
    for (const auto& work : works_) {
      work->wait(timeout);
    }
    return true;
  }
  bool isCompleted() override {
    return std::all_of(works_.begin(), works_.end(), [](const auto& work) { return work->isCompleted(); });
  }
  bool isSuccess() const override {
    return std::all_of(works_.begin(), works_.end(), [](const auto& work) { return work->isSuccess(); });
  }
  // Complete when all are.
  c10::intrusive_ptr<Future> getFuture() override {
    c10::List<c10::intrusive_ptr<Future>> futures(
        c10::FutureType::create(c10::ListType::create(c10::TensorType::get())));
    for (const auto& work : works_) {
      futures.push_back(work->getFuture());
    }
    return c10::collectAll(futures);
  }

 private:
  std::vector<c10::intrusive_ptr<c10d::Work>> works_;
};

}  // namespace smdp_torch
