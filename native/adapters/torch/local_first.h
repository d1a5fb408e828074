// all_reduce that sums within the host first, on its devices (SMDP_LOCAL_REDUCER). The ranks of a host are a
// process group of another backend, such as NCCL:
//
//   1  reduce_scatter in it: each rank gets the host's sum of its part of the tensor.
//   2  Each rank exchanges its part with the ranks of the other hosts that have the same elements. Only this
//      part is copied to the host and back.
//   3  all_gather in it: each rank gets the parts of the others.
//
// The engine adds the hosts' sums in the order of hosts. The order within a host is the backend's own.
//
// Step 1 of a call may come before or after step 3 of an earlier one. So each has a process group and a
// thread of its own, on which the calls follow each other in the order in which they were made. The ranks of
// a host agree on the order of both (step_order.h).
#pragma once

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "../common/completer.h"
#include "../common/step_order.h"
#include "collectives.h"
#include "host_parts.h"
#include "task_thread.h"
#include "work.h"

namespace smdp_torch {

using smdp_adapters::Step;
using smdp_adapters::StepOrder;

// One all_reduce that sums within the host first. Each step runs on one thread.
class LocalFirstWork final : public c10d::Work {
 public:
  LocalFirstWork(int rank, Tensors tensors)
      : Work(rank, c10d::OpType::ALLREDUCE, "smddp:all_reduce", tensors), results_(std::move(tensors)) {
    const c10::Device device = results_[0].device();
    const bool on_device = !device.is_cpu();
    if (on_device) {
      TORCH_CHECK(!DeviceRuntime(device.type())
                       .is_capturing(c10::impl::VirtualGuardImpl(device.type()).getStream(device)),
                  "smddp: a graph cannot record this call, because the exchange runs on the host: make the "
                  "call outside of the captured region");
      streams_.emplace(device.type());
      beside_ = streams_->getStreamFromGlobalPool(device, true);
      const c10::DeviceGuard guard(device);  // as in Staging::follow_caller()
      c10::Event queued(device.type());
      queued.record(streams_->getStream(device));
      queued.block(*beside_);
    }
    future_ = c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()),
                                          on_device ? std::vector{device} : std::vector<c10::Device>());
    future_->addCallback([this](Future&) {  // the first: it runs before any that may block
      const std::lock_guard lock(mutex_);
      future_known_ = true;
      changed_.notify_all();
    });
  }

  // Runs a step with the work's stream as the current one; after a failure nothing.
  template <class Step>
  void run(const Step& step) {
    if (!failure_.empty()) {
      return;
    }
    try {
      const c10::NoGradGuard no_grad;
      std::optional<c10::StreamGuard> guard;
      if (beside_) {
        guard.emplace(*beside_);
      }
      step();
    } catch (const c10::Error& caught) {
      failure_ = without_prefix(caught.what_without_backtrace());
    } catch (const std::exception& caught) {
      failure_ = without_prefix(caught.what());
    }
  }
  // Keeps memory from being used again before the device has passed the work's stream.
  void note_use(const at::Tensor& tensor) {
    if (streams_) {
      streams_->recordDataPtrOnStream(tensor.storage().data_ptr(), *beside_);
    }
  }
  // After the last step.
  void finish(const c10::intrusive_ptr<LocalFirstWork>& self) {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
      if (recordFunctionEndCallback_) {  // a profiler runs
        recordFunctionEndCallback_();
        recordFunctionEndCallback_ = nullptr;
      }
    }
    changed_.notify_all();
    if (!smdp_adapters::Completer::of_process().post([self] { self->complete_future(); })) {
      const std::lock_guard lock(mutex_);  // the interpreter ends
      future_known_ = true;
      changed_.notify_all();
    }
  }
  [[nodiscard]] const std::string& failure() const { return failure_; }

  bool wait(std::chrono::milliseconds timeout) override {
    const double limit = seconds_of(timeout);
    std::unique_lock lock(mutex_);
    const auto done = [this] { return over_ && future_known_; };
    if (limit == 0) {
      changed_.wait(lock, done);  // each step has a deadline
    } else {
      TORCH_CHECK_WITH(DistBackendError, changed_.wait_for(lock, timeout, done),
                       "smddp: wait() gave up after ", timeout.count(), " ms; the operation continues");
    }
    TORCH_CHECK_WITH(DistBackendError, failure_.empty(), "smddp: ", failure_);
    block_caller();
    return true;
  }
  void synchronize() override { wait(kNoTimeout); }
  void blockCurrentStream() { wait(kNoTimeout); }  // as in EngineWork
  // When complete, the caller's stream may use the results, as with NCCL.
  bool isCompleted() override {
    const std::lock_guard lock(mutex_);
    if (over_ && failure_.empty()) {
      block_caller();
    }
    return over_;
  }
  bool isSuccess() const override {
    const std::lock_guard lock(mutex_);
    return over_ && failure_.empty();
  }
  std::exception_ptr exception() const override {
    const std::lock_guard lock(mutex_);
    return over_ && !failure_.empty() ? exception_of("smddp: " + failure_) : nullptr;
  }
  Tensors result() override { return results_; }
  c10::intrusive_ptr<Future> getFuture() override { return future_; }

 private:
  // wait() adds it, and the other ranks' errors repeat the failure.
  static std::string_view without_prefix(std::string_view why) {
    constexpr std::string_view kPrefix = "smddp: ";
    return why.starts_with(kPrefix) ? why.substr(kPrefix.size()) : why;
  }
  void block_caller() {
    if (beside_) {
      const c10::DeviceGuard guard(beside_->device());
      c10::Event passed(beside_->device_type());
      passed.record(*beside_);
      passed.block(streams_->getStream(beside_->device()));
    }
  }
  void complete_future() {
    try {
      if (failure_.empty()) {
        if (beside_) {
          check_device(*beside_);  // as in EngineWork::complete()
        }
        std::optional<c10::StreamGuard> guard;  // the future records the stream after the results
        if (beside_) {
          guard.emplace(*beside_);
        }
        future_->markCompleted(at::IValue(results_));
      } else {
        future_->setError(exception_of("smddp: " + failure_));
      }
    } catch (const std::exception& caught) {  // the device failed
      future_->setErrorIfNeeded(std::make_exception_ptr(std::runtime_error(caught.what())));
    }
  }

  Tensors results_;
  std::optional<c10::impl::VirtualGuardImpl> streams_;  // of a tensor on a device
  std::optional<c10::Stream> beside_;
  std::string failure_;  // of the thread of the current step; final once over_
  c10::intrusive_ptr<Future> future_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;          // guarded by mutex_
  bool future_known_ = false;  // guarded by mutex_
};

class LocalFirst {
 public:
  using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Own = c10::intrusive_ptr<LocalFirstWork>;
  // Starts the exchange of a request among the ranks of a segment, by its index in `parts`.
  using Exchange = std::function<WorkPtr(std::size_t segment, Request request)>;

  // Below this many bytes shared memory takes less time than two more steps.
  static constexpr std::size_t kLeastBytes = 64U << 10U;

  // `failure`: how an error of the backend within the host begins. `scatter` and `gather`: two groups of this
  // host's ranks, in their order, whose steps begin in `order`; all null where this rank is alone. `device`:
  // the kind of tensors that they take; nullopt: any. `fail`: ends the exchanges with the other ranks, on
  // them too, with a reason.
  LocalFirst(std::string failure, HostParts parts, int rank, BackendPtr scatter, BackendPtr gather,
             std::unique_ptr<StepOrder> order, std::optional<c10::DeviceType> device,
             std::function<void(const std::string& reason)> fail)
      : local_failure_(std::move(failure)),
        parts_(std::move(parts)),
        rank_(rank),
        scatter_(std::move(scatter)),
        gather_(std::move(gather)),
        order_(std::move(order)),
        device_(device),
        fail_(std::move(fail)) {
    for (const auto& ranks : parts_.hosts) {
      const auto mine = std::find(ranks.begin(), ranks.end(), rank);
      if (mine != ranks.end()) {
        const int64_t step = parts_.lanes / static_cast<int64_t>(ranks.size());
        begin_ = (mine - ranks.begin()) * step;
        end_ = begin_ + step;
      }
    }
  }

  // All ranks of a group decide alike: by the type, the size and the operation.
  [[nodiscard]] bool takes(const at::Tensor& tensor, const c10d::ReduceOp& op) const {
    switch (static_cast<c10d::ReduceOp::RedOpType>(op)) {
      case c10d::ReduceOp::SUM:
      case c10d::ReduceOp::MIN:
      case c10d::ReduceOp::MAX:
      case c10d::ReduceOp::PRODUCT:
        break;
      default:
        return false;
    }
    switch (tensor.scalar_type()) {
      case at::kFloat:
      case at::kDouble:
      case at::kHalf:
      case at::kBFloat16:
      case at::kInt:
      case at::kLong:
        break;
      default:
        return false;
    }
    return tensor.layout() == at::kStrided && is_here(tensor.device()) && tensor.nbytes() >= kLeastBytes &&
           (!device_ || *device_ == tensor.device().type()) && !repeats_elements(tensor);
  }

  WorkPtr all_reduce(const at::Tensor& tensor, const c10d::ReduceOp& op, Exchange exchange) {
    const Own work = c10::make_intrusive<LocalFirstWork>(rank_, Tensors{tensor});
    auto job = std::make_shared<Job>(Job{work, tensor, {}, {}, {}, op, std::move(exchange)});
    if (!scatter_thread_.add([this, job] { sum_within_host(job); })) {
      TORCH_CHECK(false, "smddp: this process group was destroyed");
    }
    return work;
  }

  // The exchanges must have ended, or fail soon. The caller may hold Python's lock.
  void close() {
    scatter_thread_.close();
    gather_thread_.close();
  }
  // The process groups within the host.
  [[nodiscard]] std::vector<BackendPtr> groups() const { return {scatter_, gather_}; }

 private:
  struct Job {
    Own work;
    at::Tensor tensor;
    at::Tensor flat;  // the lanes of the tensor, with some elements more where they would be unequal
    at::Tensor mine;  // this rank's part
    std::vector<WorkPtr> exchanges;
    c10d::ReduceOp op;
    Exchange exchange;
  };

  // Step 1, and the start of step 2.
  void sum_within_host(const std::shared_ptr<Job>& job) {
    job->work->run([&] {
      const std::string why = broken();
      TORCH_CHECK(why.empty(), why);
      divide(*job);
    });
    job->work->run([&] { scatter(*job); });
    job->work->run([&] { start_exchange(*job); });
    note_failure(*job);
    if (!gather_thread_.add([this, job] { gather_within_host(job); })) {
      job->work->run([] { TORCH_CHECK(false, "the process group was destroyed"); });
      job->work->finish(job->work);
    }
  }
  // The end of step 2, and step 3.
  void gather_within_host(const std::shared_ptr<Job>& job) {
    job->work->run([&] { end_exchange(*job); });
    job->work->run([&] { gather(*job); });
    note_failure(*job);
    job->work->finish(job->work);
    // Destroyed on the completer: its tensors may need Python's lock.
    smdp_adapters::Completer::of_process().post([job = std::move(*job)] {});
  }

  // After a failure every call fails: other ranks would take a later call for this one.
  void note_failure(const Job& job) {
    if (job.work->failure().empty() || !broken().empty()) {
      return;
    }
    {
      const std::lock_guard lock(broken_mutex_);
      broken_ = job.work->failure();
    }
    // First: it ends a step of this rank that waits for other ranks while it holds the order's mutex.
    fail_(job.work->failure());
    if (order_) {
      order_->end(job.work->failure());
    }
  }
  [[nodiscard]] std::string broken() {
    const std::lock_guard lock(broken_mutex_);
    return broken_;
  }
  // Runs a call of the backend within the host. Only its errors begin with local_failure_.
  template <class Call>
  auto within_host(const Call& call) const {
    try {
      return call();
    } catch (const c10::Error& caught) {
      throw std::runtime_error(local_failure_ + caught.what_without_backtrace());
    } catch (const std::exception& caught) {
      throw std::runtime_error(local_failure_ + caught.what());
    }
  }

  void divide(Job& job) const {
    const int64_t elements = job.tensor.numel();
    const int64_t padded = (elements + parts_.lanes - 1) / parts_.lanes * parts_.lanes;
    job.work->note_use(job.tensor);
    if (padded == elements && !has_gaps(job.tensor)) {
      job.flat = job.tensor.view({-1});
    } else {
      job.flat = at::zeros({padded}, job.tensor.options());
      job.flat.narrow(0, 0, elements).copy_(job.tensor.reshape({-1}));
    }
    const int64_t lane = padded / parts_.lanes;
    job.mine = scatter_ ? at::empty({(end_ - begin_) * lane}, job.tensor.options()) : job.flat;
  }

  void scatter(Job& job) const {
    if (scatter_) {
      c10d::ReduceScatterOptions options;
      options.reduceOp = job.op;
      const WorkPtr step = order_->run(Step::kScatter, [&] {
        return within_host([&] { return scatter_->_reduce_scatter_base(job.mine, job.flat, options); });
      });
      within_host([&] { step->wait(); });
    }
  }

  void start_exchange(Job& job) const {
    const int64_t lane = job.flat.numel() / parts_.lanes;
    for (std::size_t i = 0; parts_.hosts.size() > 1 && i < parts_.segments.size(); ++i) {
      const Segment& segment = parts_.segments[i];
      if (segment.begin >= begin_ && segment.end <= end_) {
        const at::Tensor part =
            job.mine.narrow(0, (segment.begin - begin_) * lane, (segment.end - segment.begin) * lane);
        job.exchanges.push_back(job.exchange(
            i, smdp_torch::all_reduce({part}, job.op, c10d::OpType::ALLREDUCE, "smddp:all_reduce")));
      }
    }
  }
  static void end_exchange(Job& job) {
    for (const WorkPtr& work : job.exchanges) {
      work->wait(kNoTimeout);
    }
  }

  void gather(Job& job) const {
    if (gather_) {
      const WorkPtr step = order_->run(Step::kGather, [&] {
        return within_host([&] { return gather_->_allgather_base(job.flat, job.mine); });
      });
      within_host([&] { step->wait(); });
    }
    if (job.flat.data_ptr() != job.tensor.data_ptr()) {
      const c10::InferenceMode no_versions;  // which inference tensors need, and others allow
      job.tensor.copy_(job.flat.narrow(0, 0, job.tensor.numel()).view_as(job.tensor));
    }
  }

  std::string local_failure_;
  HostParts parts_;
  int rank_;
  BackendPtr scatter_;
  BackendPtr gather_;
  std::unique_ptr<StepOrder> order_;
  std::optional<c10::DeviceType> device_;
  std::function<void(const std::string& reason)> fail_;
  int64_t begin_ = 0;  // of this rank's lanes
  int64_t end_ = 0;
  std::mutex broken_mutex_;
  std::string broken_;  // guarded by broken_mutex_: why every call fails
  TaskThread scatter_thread_;
  TaskThread gather_thread_;
};

}  // namespace smdp_torch
