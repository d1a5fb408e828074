// A collective under way, as torch sees it.
#pragma once

#include <smdp/engine.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "../common/completer.h"
#include "request.h"

namespace smdp_torch {

using at::ivalue::Future;

// As torch raises it for a failed collective.
inline std::exception_ptr exception_of(const std::string& message) {
  return std::make_exception_ptr(
      c10::DistBackendError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, message));
}

// The first failure of a backend's calls: an smdp_code. Errors of the caller, and of a closed group, do not
// count.
using FirstFailure = std::atomic<int>;

// Several calls of the engine may make up one Work (coalesced tensors, or the pieces of a tensor on a
// device). It owns itself, and in the request its tensors, until the last call has ended; then the
// completer's task owns it, so that no object of torch is destroyed on the engine's thread.
//
// Three steps follow the end of a call, and none waits for Python. The engine's thread counts it. The first
// thread that needs the results (a waiter or the completer) puts them in place. The completer completes the
// future, whose callbacks may wait for other works.
//
// Results on a device are "in place" when their copies are queued there: later work on the caller's stream,
// or on the stream of a future's callback, comes after the copies, and no host thread waits for them.
class EngineWork final : public c10d::Work {
 public:
  EngineWork(int rank, Request request, std::shared_ptr<FirstFailure> first_failure)
      : Work(rank, request.type, request.title, request.inputs),
        results_(request.results),
        source_(request.source),
        staging_(request.staging),
        first_failure_(std::move(first_failure)),
        request_(std::move(request)) {
    for (std::size_t i = 0; i < request_->calls.size(); ++i) {
      calls_.push_back({this, i});
    }
    pending_ = calls_.size() + 1;  // one more for start(): the first call may end before the last begins
  }
  ~EngineWork() override {
    for (smdp_operation* operation : operations_) {
      smdp_operation_release(operation);
    }
  }

  // Whether values are copied from a device first.
  [[nodiscard]] bool is_staged() const { return staging_ != nullptr; }

  // Waits for a call's turn; an error: the call must not begin.
  using Turn = std::function<smdp_error(Staging* staging, std::size_t call)>;

  // Starts the calls, once. The request owns their memory; it is finished when the last call has succeeded,
  // before any thread sees the results. When a call is refused, the earlier ones continue.
  void start(smdp_group* group, double timeout_s, bool blocking, const Turn& turn = {}) {
    self_ = Self::reclaim_copy(this);
    smdp_error refusal{};
    for (Call& call : calls_) {
      if (refusal.code == SMDP_OK && turn) {
        refusal = turn(staging_.get(), call.index);
      }
      if (refusal.code != SMDP_OK || !submit(call, group, timeout_s, blocking, refusal)) {
        end_one(refusal);
      }
    }
    {
      const std::lock_guard lock(state_mutex_);
      started_ = true;
    }
    changed_.notify_all();
    end_one(refusal);
    if (refusal.code != SMDP_OK) {
      raise(refusal);
    }
  }

  // As with Gloo, the future is complete after a wait.
  bool wait(std::chrono::milliseconds timeout) override {
    const Waiter waiter(*this);
    const double limit = seconds_of(timeout);
    const auto began = std::chrono::steady_clock::now();
    // Without a limit of the caller, the engine's deadline ends every operation.
    const auto left = [&] {
      const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - began;
      return limit == 0 ? -1 : std::max(0.0, limit - spent.count());
    };
    const auto require_in_time = [&](bool in_time) {
      TORCH_CHECK_WITH(DistBackendError, in_time, "smddp: wait() gave up after ", timeout.count(),
                       " ms; the operation continues");
    };
    require_in_time(await_change(left(), [this] { return started_; }));
    for (std::size_t i = 0; i < operations_.size(); ++i) {
      smdp_error error{};
      const int code = smdp_operation_wait(operations_[i], left(), &error);
      require_in_time(code != SMDP_TIMEOUT || smdp_operation_test(operations_[i]) != 0);
      if (code == SMDP_OK) {
        put_back(i);
      }
    }
    settle();
    await_change(left(), [this] { return !future_ || future_known_; });
    if (failure_.code != SMDP_OK) {
      raise(failure_);
    }
    if (staging_) {
      staging_->block_caller();
    }
    return true;
  }
  void synchronize() override { wait(kNoTimeout); }
  // Not `override`: torch 2.0 has no such call. That of newer versions ends too early for results on a
  // device.
  void blockCurrentStream() { wait(kNoTimeout); }
  // When complete, the caller's stream may use the results, as with NCCL.
  bool isCompleted() override {
    {
      const std::lock_guard lock(state_mutex_);
      if (pending_ > 0) {
        return false;
      }
    }
    settle();
    if (staging_ && isSuccess()) {
      staging_->block_caller();
    }
    return true;
  }
  bool isSuccess() const override {
    const std::lock_guard lock(state_mutex_);
    return over_ && failure_.code == SMDP_OK;
  }
  std::exception_ptr exception() const override {
    const std::lock_guard lock(state_mutex_);
    return over_ && failure_.code != SMDP_OK ? exception_of(message_of(failure_)) : nullptr;
  }
  // Of a complete receive from any rank.
  int sourceRank() const override {
    TORCH_CHECK(source_, "smddp: only a receive has a source");
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
      const auto devices = staging_ ? std::vector{staging_->device()} : std::vector<c10::Device>();
      future_ = c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()), devices);
      if (over_) {
        complete(*future_);  // it has no callback yet
        future_known_ = true;
      } else {
        // The first callback: it runs before any that may block. The completer's task keeps the work alive
        // for it.
        future_->addCallback([this](Future&) { make_known(); });
      }
    }
    return future_;
  }
  void abort() override { unsupported("aborting a single operation"); }

 private:
  using Self = c10::intrusive_ptr<EngineWork>;

  // The context that the engine passes back when a call ends.
  struct Call {
    EngineWork* work;
    std::size_t index;
  };

  // While a thread waits, it owns the work. Without a future the completer has nothing to do then, and small
  // operations need no other thread.
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

  // False: `done` did not become true in time. Negative timeout: no limit.
  template <class Done>
  bool await_change(double timeout_s, const Done& done) {
    std::unique_lock lock(state_mutex_);
    if (timeout_s < 0) {
      changed_.wait(lock, done);
      return true;
    }
    return changed_.wait_for(lock, std::chrono::duration<double>(timeout_s), done);
  }

  bool submit(Call& own, smdp_group* group, double timeout_s, bool blocking, smdp_error& refusal) {
    smdp_call& call = request_->calls[own.index];
    call.size = sizeof(call);
    call.timeout_s = timeout_s;
    call.blocking = blocking ? 1 : 0;
    call.done = [](void* context, const smdp_error* error) {
      const auto* ended = static_cast<Call*>(context);
      ended->work->end_one(*error, ended);
    };
    call.context = &own;
    smdp_operation* operation = nullptr;
    const bool accepted = smdp_submit(group, &call, &operation, &refusal) == SMDP_OK;
    if (accepted) {
      operations_.push_back(operation);
    } else if (refusal.code == SMDP_UNSUPPORTED) {
      refusal.code = SMDP_INVALID;  // the caller chose the combination: a ValueError, as with Gloo
    }
    return accepted;
  }

  // On the engine's thread, or on the one that starts. `piece`: a call that the engine accepted.
  void end_one(const smdp_error& error, const Call* piece = nullptr) {
    Self self;
    bool last = false;
    {
      const std::lock_guard lock(state_mutex_);
      if (error.code != SMDP_OK && failure_.code == SMDP_OK) {
        failure_ = error;
        note_first_failure(error.code);
        if (staging_) {
          staging_->fail();
        }
      }
      last = --pending_ == 0;
      const bool needs_copy = staging_ && piece != nullptr && error.code == SMDP_OK;
      const bool has_waiter = waiting_ > 0 && !future_ && (last || started_);  // which handles the end
      if ((!last && !needs_copy) || has_waiter) {
        return;
      }
      self = last ? std::move(self_) : self_;
    }
    EngineWork& work = *self;
    const bool posted = smdp_adapters::Completer::of_process().post([self = std::move(self), last, piece] {
      if (last) {
        self->complete_future();
      } else {
        self->put_back(piece->index);
      }
    });
    if (last && !posted) {
      work.make_known();  // the interpreter ends: no thread will complete the future
    }
  }

  // Puts the results of one call on a device in place, while others run.
  void put_back(std::size_t call) {
    const std::lock_guard lock(results_mutex_);
    if (request_ && staging_) {
      note_failure([&] { request_->finish(call); });
    }
  }

  // When nothing is pending: puts the results in place, once, and returns when they are.
  void settle() {
    std::optional<Request>
        used;  // destroyed after other threads may continue: its tensors may need Python's lock
    std::call_once(settled_, [&] {
      {
        const std::lock_guard lock(results_mutex_);
        used = std::exchange(request_, std::nullopt);
      }
      if (failure_.code == SMDP_OK) {
        note_failure([&] { used->finish(); });
      }
      if (recordFunctionEndCallback_) {  // a profiler runs
        recordFunctionEndCallback_();
        recordFunctionEndCallback_ = nullptr;
      }
      const std::lock_guard lock(state_mutex_);
      over_ = true;
    });
  }

  void note_first_failure(int code) {
    const bool is_callers = code == SMDP_INVALID || code == SMDP_UNSUPPORTED || code == SMDP_CLOSED;
    int none = SMDP_OK;
    if (!is_callers) {
      first_failure_->compare_exchange_strong(none, code);
    }
  }

  template <class Step>
  void note_failure(const Step& step) {
    try {
      step();
    } catch (const std::exception& caught) {
      const std::lock_guard lock(state_mutex_);
      if (failure_.code == SMDP_OK) {
        failure_ = failed(SMDP_INTERNAL, caught.what());
        note_first_failure(SMDP_INTERNAL);
      }
    }
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
    try {
      complete(*future);
    } catch (const std::exception& caught) {  // the device failed
      future->setErrorIfNeeded(std::make_exception_ptr(std::runtime_error(caught.what())));
      make_known();
    }
  }

  void complete(Future& future) const {
    if (failure_.code == SMDP_OK) {
      std::optional<c10::StreamGuard> copies;  // the future records the stream after them
      if (staging_) {
        // markCompleted() records events. If that throws, the future is complete, and no thread that waits is
        // notified.
        check_device(staging_->returning());
        copies.emplace(staging_->returning());
      }
      future.markCompleted(at::IValue(results_));
    } else {
      future.setError(exception_of(message_of(failure_)));
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
  std::shared_ptr<int> source_;
  std::shared_ptr<Staging> staging_;             // for tensors on a device
  std::shared_ptr<FirstFailure> first_failure_;  // of the backend
  std::mutex results_mutex_;
  std::optional<Request> request_;  // guarded by results_mutex_ once started
  std::vector<Call> calls_;
  std::vector<smdp_operation*> operations_;  // complete once started
  std::once_flag settled_;
  mutable std::mutex state_mutex_;
  std::condition_variable changed_;
  // Guarded by state_mutex_. `failure_` is final once `over_`.
  std::size_t pending_ = 0;
  std::size_t waiting_ = 0;  // threads in wait()
  bool started_ = false;
  Self self_;
  smdp_error failure_{};
  bool over_ = false;
  c10::intrusive_ptr<Future> future_;  // created on request
  bool future_known_ = false;          // complete, or never completed
};

#if SMDP_TORCH_FROM(2, 1)
constexpr auto kCoalesced = c10d::OpType::COALESCED;
#else
constexpr auto kCoalesced = c10d::OpType::UNKNOWN;
#endif

// Several works as one.
class WorkOfMany final : public c10d::Work {
 public:
  WorkOfMany(int rank, std::vector<c10::intrusive_ptr<c10d::Work>> works)
      : Work(rank, kCoalesced), works_(std::move(works)) {}

  bool wait(std::chrono::milliseconds timeout) override {
    const auto began = std::chrono::steady_clock::now();
    for (const auto& work : works_) {
      const auto spent =
          std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - began);
      const bool has_limit = seconds_of(timeout) > 0;
      const auto timeout_left = has_limit ? std::max(timeout - spent, std::chrono::milliseconds(1)) : timeout;
      try {
        work->wait(timeout_left);
      } catch (const c10::Error&) {
        TORCH_CHECK_WITH(DistBackendError, work->isCompleted(), "smddp: wait() gave up after ",
                         timeout.count(), " ms; the operations continue");
        throw;
      }
    }
    return true;
  }
  void synchronize() override { wait(kNoTimeout); }
  void blockCurrentStream() { wait(kNoTimeout); }
  bool isCompleted() override {
    return std::all_of(works_.begin(), works_.end(), [](const auto& work) { return work->isCompleted(); });
  }
  bool isSuccess() const override {
    return std::all_of(works_.begin(), works_.end(), [](const auto& work) { return work->isSuccess(); });
  }
  // Of the first that failed.
  std::exception_ptr exception() const override {
    for (const auto& work : works_) {
      if (const std::exception_ptr caught = work->exception()) {
        return caught;
      }
    }
    return nullptr;
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
