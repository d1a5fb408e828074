// A torch process group's backend: each collective becomes calls of the engine and a Work.
#pragma once

#include <ATen/ATen.h>
#include <smdp/engine.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>
#include <vector>

#include "collectives.h"
#include "launcher.h"
#include "local_first.h"
#include "messages.h"
#include "python_lock.h"
#include "session.h"
#include "translate.h"
#include "work.h"

namespace smdp_torch {

// A flat buffer that is identified by a name instead of by the order of calls. Every lane counts its own
// steps from 0, so that models do not wait for each other.
struct BufferName {
  std::string lane;
  uint32_t step = 0;
  uint32_t index = 0;
  uint32_t buffers = 0;
};

// Set for this thread's next allreduce (c_interface.h), since torch's own call has no room for a name.
inline thread_local std::optional<BufferName> next_buffer;

class EngineBackend final : public c10d::Backend {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  EngineBackend(const c10::intrusive_ptr<Store>& store, int rank, int size, std::vector<int> global_ranks,
                const std::string& name, std::chrono::milliseconds timeout, bool opens_engine)
      : Backend(rank, size),
        session_(find_session(store, rank, size, global_ranks, opens_engine, timeout)),
        name_(name),
        timeout_s_(std::chrono::duration<double>(timeout).count()) {
    if (global_ranks.empty()) {
      global_ranks = session_->ranks;
    }
    for (const int global : global_ranks) {
      const auto found = std::find(session_->ranks.begin(), session_->ranks.end(), global);
      members_.push_back(static_cast<int>(found - session_->ranks.begin()));
    }
    group_ = create_group(name, members_);
  }
  ~EngineBackend() override { close(); }

  const std::string getBackendName() const override { return "smddp"; }

  // --- Sums ---

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    TORCH_CHECK_VALUE(tensors.size() == 1, "smddp: one tensor per call, got ", tensors.size());
    if (const auto named = std::exchange(next_buffer, std::nullopt)) {
      return average_named(tensors[0], *named);
    }
    if (tensors[0].layout() == at::kSparse) {
      return all_reduce_sparse(tensors, options);
    }
    if (const auto local_first = within_host();
        local_first && local_first->takes(tensors[0], options.reduceOp)) {
      return all_reduce_local_first(*local_first, tensors[0], options);
    }
    return launch(all_reduce(tensors, options.reduceOp, OpType::ALLREDUCE, "smddp:all_reduce"), options);
  }
#if SMDP_TORCH_FROM(2, 1)
  // What torch calls for sparse tensors on a GPU; for those on the CPU it calls allreduce().
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return allreduce(tensors, options);
  }
#endif
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    return launch(
        all_reduce(tensors, options.reduceOp, OpType::ALLREDUCE_COALESCED, "smddp:all_reduce_coalesced"),
        options);
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    return launch(smdp_torch::reduce(tensors, options, getRank()), options);
  }
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override {
    TORCH_CHECK_VALUE(inputs.size() == 1, "smddp: one list of inputs per call, got ", inputs.size());
    return launch(
        smdp_torch::reduce_scatter(only(outputs), inputs[0], options.reduceOp, getRank(), getSize()),
        options);
  }
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    return launch(
        reduce_scatter_tensors({output}, {input}, options.reduceOp, getSize(), OpType::_REDUCE_SCATTER_BASE),
        options);
  }

  // The ranks may submit the buffers of a step in different orders.
  WorkPtr average_named(const at::Tensor& buffer, const BufferName& name) {
    TORCH_CHECK_VALUE(buffer.is_contiguous() && name.buffers > 0,
                      "smddp: a named buffer is flat, one of several");
    Request request = average_whole(buffer);
    smdp_call& call = request.calls.front();
    call.step = name.step;
    call.index = name.index;
    call.buffers = name.buffers;
    return begin(lane_group(name.lane), std::move(request), timeout_s_, false);
  }

  // --- Copies ---

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    return launch(smdp_torch::broadcast(tensors, options, getRank()), options);
  }
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override {
    TORCH_CHECK_VALUE(outputs.size() == 1, "smddp: one list of outputs per call, got ", outputs.size());
    return launch(all_gather(outputs[0], only(inputs), getRank(), getSize()), options);
  }
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override {
    return launch(all_gather_tensors({output}, {input}, getSize(), OpType::_ALLGATHER_BASE), options);
  }
  WorkPtr allgather_coalesced(std::vector<Tensors>& lists, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override {
    return launch(all_gather_lists(lists, inputs, getRank(), getSize()), options);
  }
#if SMDP_TORCH_FROM(2, 1)
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override {
    return launch(all_gather_tensors(outputs, inputs, getSize(), OpType::COALESCED), options);
  }
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override {
    return launch(reduce_scatter_tensors(outputs, inputs, options.reduceOp, getSize(), OpType::COALESCED),
                  options);
  }
#endif
  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    return launch(smdp_torch::barrier(), options);  // device_ids do not matter on hosts
  }

  // --- Messages ---

  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const c10d::GatherOptions& options) override {
    return launch(
        smdp_torch::gather(outputs, only(inputs), static_cast<int>(options.rootRank), getRank(), getSize()),
        options);
  }
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions& options) override {
    return launch(
        smdp_torch::scatter(only(outputs), inputs, static_cast<int>(options.rootRank), getRank(), getSize()),
        options);
  }
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override {
    return launch(all_to_all(outputs, inputs, getRank(), getSize()), options);
  }
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override {
    return launch(
        smdp_torch::all_to_all_single(output, input, output_splits, input_splits, getRank(), getSize()),
        options);
  }
  WorkPtr send(Tensors& tensors, int to, int tag) override {
    return launch(smdp_torch::send(tensors, to, checked_tag(tag)), NoOptions());
  }
  WorkPtr recv(Tensors& tensors, int from, int tag) override {
    return launch(receive(tensors, from, checked_tag(tag)), NoOptions());
  }
  WorkPtr recvAnysource(Tensors& tensors, int tag) override {
    return launch(receive(tensors, SMDP_ANY_RANK, checked_tag(tag)), NoOptions());
  }
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

  // --- The group ---

  // By rank of the group, the number of its host.
  [[nodiscard]] std::vector<int> host_of() {
    const std::lock_guard lock(groups_mutex_);
    TORCH_CHECK(session_, "smddp: this process group was destroyed");
    std::vector<int> hosts;
    for (const int member : members_) {
      hosts.push_back(smdp_engine_host_of(session_->engine, member));
    }
    return hosts;
  }
  [[nodiscard]] std::string local_reducer() {
    const std::lock_guard lock(groups_mutex_);
    TORCH_CHECK(session_, "smddp: this process group was destroyed");
    return smdp_engine_local_reducer(session_->engine);
  }
  // From here on an all_reduce sums within the host first, in these two groups of its ranks (local_first.h).
  void reduce_within_host(const std::string& reducer, const c10::intrusive_ptr<c10d::Backend>& scatter,
                          const c10::intrusive_ptr<c10d::Backend>& gather,
                          std::optional<c10::DeviceType> device) {
    const HostParts parts(host_of());
    const std::lock_guard lock(groups_mutex_);
    for (std::size_t i = 0; i < parts.segments.size(); ++i) {
      std::vector<int> members;
      for (const int rank : parts.segments[i].ranks) {
        members.push_back(members_[static_cast<std::size_t>(rank)]);
      }
      const auto& ranks = parts.segments[i].ranks;
      const bool is_in_it = std::find(ranks.begin(), ranks.end(), getRank()) != ranks.end();
      segments_.push_back(is_in_it ? create_group(name_ + ":segment " + std::to_string(i), members)
                                   : nullptr);
    }
    auto fail = [this](const std::string& reason) {
      const std::lock_guard lock_groups(groups_mutex_);
      for (const auto* groups : {&segments_, &host_groups_}) {
        for (const GroupPtr& group : *groups) {
          if (group) {
            smdp_group_fail(group.get(), reason.c_str());
          }
        }
      }
    };
    const int own = members_[static_cast<std::size_t>(getRank())];
    const char* host = smdp_engine_host_name(session_->engine, smdp_engine_host_of(session_->engine, own));
    const std::string failure = "SMDP_LOCAL_REDUCER=" + reducer + " failed on rank " + std::to_string(own) +
                                " (host " + host + "; shm works without it): ";
    local_first_ =
        std::make_shared<LocalFirst>(failure, parts, getRank(), scatter, gather,
                                     scatter ? order_of_steps(parts) : nullptr, device, std::move(fail));
  }

  void setSequenceNumberForGroup() override {}  // it starts at 0 on every rank
  uint64_t getSequenceNumberForGroup() override { return sequence_; }
#if SMDP_TORCH_FROM(2, 8)
  void shutdown() override { close(); }
  void abort() override { close(); }
  // Of the first call on this backend that failed. A lost peer is noticed in the calls that wait for it.
  c10d::ErrorType getError() override {
    switch (failure_->load()) {
      case SMDP_OK:
        return c10d::ErrorType::SUCCESS;
      case SMDP_TIMEOUT:
        return c10d::ErrorType::TIMEOUT;
      case SMDP_PEER_LOST:
        return c10d::ErrorType::REMOTE_ERROR;
      default:
        return c10d::ErrorType::COMM_ERROR;
    }
  }
#endif
#if SMDP_TORCH_FROM(2, 13)
  void setTimeout(std::chrono::milliseconds timeout) override {
    timeout_s_ = std::chrono::duration<double>(timeout).count();
  }
  c10::intrusive_ptr<Options> getBackendOptions() override {
    return c10::make_intrusive<Options>("smddp",
                                        std::chrono::milliseconds(static_cast<int64_t>(timeout_s_ * 1000)));
  }
#endif
#if SMDP_TORCH_FROM(2, 1)
  // Calls between the two begin at once; the second returns one Work for all of them.
  void startCoalescing() override {
    const std::lock_guard lock(coalescing_mutex_);
    coalescing_[std::this_thread::get_id()].clear();
  }
  WorkPtr endCoalescing() override {
    const std::lock_guard lock(coalescing_mutex_);
    auto list = coalescing_.extract(std::this_thread::get_id());
    TORCH_CHECK(!list.empty(), "smddp: endCoalescing() without startCoalescing()");
    return c10::make_intrusive<WorkOfMany>(getRank(), std::move(list.mapped()));
  }
#endif

 private:
  struct NoOptions {
    std::chrono::milliseconds timeout = c10d::kUnsetTimeout;
  };

  // Torch 2.6 and later pass whether the caller waits for the Work at once. Then launch() waits, and the
  // caller's thread does the engine's work: no other thread has to wake.
  template <class CallOptions>
  static bool waits_at_once(const CallOptions& options) {
    if constexpr (requires { options.asyncOp; }) {
      return !options.asyncOp;
    }
    return false;
  }

  WorkPtr begin(const GroupPtr& group, Request request, double timeout_s, bool at_once) {
    if (request.staging) {
      request.staging->follow_caller();  // what the caller has queued for the outputs comes first
    }
    auto work = c10::make_intrusive<EngineWork>(getRank(), std::move(request), failure_);
    launcher_.launch(work, group, timeout_s, at_once);
    return work;
  }

  std::shared_ptr<LocalFirst> within_host() {
    const std::lock_guard lock(groups_mutex_);
    return local_first_;
  }

  WorkPtr all_reduce_local_first(LocalFirst& local_first, const at::Tensor& tensor,
                                 const c10d::AllreduceOptions& options) {
    const double timeout_s = seconds_of(options.timeout);
    ++sequence_;
    auto work = local_first.all_reduce(
        tensor, options.reduceOp,
        [this, limit = timeout_s > 0 ? timeout_s : timeout_s_.load()](std::size_t segment, Request request) {
          return begin(segment_group(segment), std::move(request), limit, false);
        });
    coalesce(work);
    if (waits_at_once(options)) {
      work->wait(kNoTimeout);
    }
    return work;
  }

  template <class CallOptions>
  WorkPtr launch(Request request, const CallOptions& options) {
    const GroupPtr group = own_group();
    const bool at_once = waits_at_once(options);
    const double timeout_s = seconds_of(options.timeout);
    ++sequence_;
    auto work = begin(group, std::move(request), timeout_s > 0 ? timeout_s : timeout_s_.load(), at_once);
    coalesce(work);
    if (at_once) {
      work->wait(kNoTimeout);  // the call has its own deadline
    }
    return work;
  }

  // Between this thread's startCoalescing() and endCoalescing(). An exception may come between the two and
  // leave the list, so it keeps only works that are not complete or failed.
  void coalesce(const WorkPtr& work) {
    const std::lock_guard lock(coalescing_mutex_);
    const auto list = coalescing_.find(std::this_thread::get_id());
    if (list != coalescing_.end()) {
      auto& works = list->second;
      const auto over = [](const WorkPtr& one) { return one->isCompleted() && one->isSuccess(); };
      works.erase(std::remove_if(works.begin(), works.end(), over), works.end());
      works.push_back(work);
    }
  }

  WorkPtr all_reduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options);
  void gather_arrivals(std::chrono::milliseconds timeout, bool wait_all_ranks);
  void report_arrival(std::chrono::milliseconds timeout);

  GroupPtr create_group(const std::string& name, const std::vector<int>& members) {
    smdp_group* group = nullptr;
    smdp_error error{};
    if (smdp_group_create(session_->engine, members.data(), static_cast<int>(members.size()), name.c_str(),
                          timeout_s_, &group, &error) != SMDP_OK) {
      raise(error);
    }
    return {group, smdp_group_destroy};
  }

  // Another thread may close the backend meanwhile.
  GroupPtr own_group() {
    const std::lock_guard lock(groups_mutex_);
    TORCH_CHECK(group_ != nullptr, "smddp: this process group was destroyed");
    return group_;
  }

  // A group of the same ranks beside the backend's own, destroyed with it.
  GroupPtr lane_group(const std::string& lane) {
    const std::lock_guard lock(groups_mutex_);
    TORCH_CHECK(group_ != nullptr, "smddp: this process group was destroyed");
    GroupPtr& group = lanes_[lane];
    if (group == nullptr) {
      group = create_group(lane, members_);
    }
    return group;
  }

  // With groups_mutex_ held. The ranks of this host have two groups for it.
  std::unique_ptr<StepOrder> order_of_steps(const HostParts& parts) {
    std::vector<int> mates;
    bool decides = false;
    for (const auto& ranks : parts.hosts) {
      if (std::find(ranks.begin(), ranks.end(), getRank()) != ranks.end()) {
        for (const int rank : ranks) {
          mates.push_back(members_[static_cast<std::size_t>(rank)]);
        }
        decides = ranks.front() == getRank();
      }
    }
    host_groups_ = {create_group(name_ + ":calls", mates), create_group(name_ + ":steps", mates)};
    return std::make_unique<StepOrder>(
        decides, [this] { call_within_host(0, SMDP_BARRIER, nullptr); },
        [this](uint8_t value) {
          call_within_host(1, SMDP_BROADCAST, &value);
          return value;
        });
  }
  // A small call among the ranks of this host; waits for its end. `which`: of host_groups_.
  void call_within_host(std::size_t which, smdp_collective collective, uint8_t* value) {
    smdp_call call{};
    call.size = sizeof(call);
    call.collective = collective;
    call.dtype = SMDP_UINT8;
    call.count = value == nullptr ? 0 : 1;
    call.input = call.output = value;
    call.timeout_s = timeout_s_;
    call.blocking = 1;
    smdp_operation* operation = nullptr;
    smdp_error error{};
    if (smdp_submit(host_group(which).get(), &call, &operation, &error) == SMDP_OK) {
      smdp_operation_wait(operation, -1, &error);
      smdp_operation_release(operation);
    }
    if (error.code != SMDP_OK) {
      raise(error);
    }
  }
  GroupPtr host_group(std::size_t which) {
    const std::lock_guard lock(groups_mutex_);
    TORCH_CHECK(which < host_groups_.size(), "smddp: this process group was destroyed");
    return host_groups_[which];
  }

  // Of the ranks that exchange a segment (host_parts.h).
  GroupPtr segment_group(std::size_t segment) {
    const std::lock_guard lock(groups_mutex_);
    TORCH_CHECK(segment < segments_.size() && segments_[segment],
                "smddp: the exchange between hosts has ended");
    return segments_[segment];
  }

  void close() {
    std::shared_ptr<Session> session;
    GroupPtr own;
    std::map<std::string, GroupPtr> lanes;
    std::vector<GroupPtr> segments;
    std::vector<GroupPtr> host_groups;
    std::shared_ptr<LocalFirst> local_first;
    {
      const std::lock_guard lock(groups_mutex_);
      session.swap(session_);
      own.swap(group_);
      lanes.swap(lanes_);
      segments.swap(segments_);
      host_groups.swap(host_groups_);
      local_first.swap(local_first_);
    }
    launcher_.close();
    lanes.clear();
    own.reset();
    segments.clear();
    host_groups.clear();
    if (local_first) {
      for (const auto& group : local_first->groups()) {
        if (const auto ours = cast_to<EngineBackend>(group)) {
          ours->close();
        }
      }
      local_first->close();
    }
    if (session) {
      const WithoutPythonLock unlocked;  // closing waits for other ranks
      session.reset();
    }
  }

  std::mutex groups_mutex_;
  // Guarded by groups_mutex_; null once closed.
  std::shared_ptr<Session> session_;
  GroupPtr group_;
  std::map<std::string, GroupPtr> lanes_;
  std::vector<GroupPtr> segments_;     // null: this rank is not in it
  std::vector<GroupPtr> host_groups_;  // for the order of steps
  std::shared_ptr<LocalFirst> local_first_;
  std::string name_;
  std::vector<int> members_;  // as ranks of the engine
  std::atomic<double> timeout_s_;
  std::atomic<uint64_t> sequence_ = 0;
  std::shared_ptr<FirstFailure> failure_ = std::make_shared<FirstFailure>(SMDP_OK);
  std::mutex coalescing_mutex_;
  std::map<std::thread::id, std::vector<WorkPtr>> coalescing_;
  Launcher launcher_;
};

}  // namespace smdp_torch
