// A torch process group's backend: each collective becomes a call of the engine and a Work.
#pragma once

#include <ATen/ATen.h>
#include <pybind11/pybind11.h>
#include <smdp/engine.h>
#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "refusals.h"
#include "session.h"
#include "translate.h"
#include "work.h"

namespace smdp_torch {

class EngineBackend final : public PartialBackend {
 public:
  EngineBackend(const c10::intrusive_ptr<Store>& store, int rank, int size, std::vector<int> global_ranks,
                const std::string& name, std::chrono::milliseconds timeout)
      : PartialBackend(rank, size), session_(find_session(store, rank, size, global_ranks)) {
    if (global_ranks.empty()) {
      global_ranks = session_->ranks;
    }
    for (const int global : global_ranks) {
      const auto found = std::find(session_->ranks.begin(), session_->ranks.end(), global);
      members_.push_back(static_cast<int>(found - session_->ranks.begin()));
    }
    timeout_s_ = std::chrono::duration<double>(timeout).count();
    group_ = create_group(name);
  }
  ~EngineBackend() override { close(); }

  const std::string getBackendName() const override { return "smddp"; }

  c10::intrusive_ptr<c10d::Work> allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return reduce_one(only(tensors), SMDP_ALL_REDUCE, options, 0, c10d::OpType::ALLREDUCE, "smddp:all_reduce",
                      tensors);
  }

  c10::intrusive_ptr<c10d::Work> allreduce_coalesced(
      Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    auto flats = std::make_shared<Tensors>();
    std::vector<smdp_call> calls;
    for (const at::Tensor& tensor : tensors) {
      check(tensor);
      flats->push_back(tensor.contiguous());
      smdp_call call = call_for(SMDP_ALL_REDUCE, flats->back(), options.timeout);
      call.op = op_of(options.reduceOp);
      call.output = flats->back().data_ptr();
      calls.push_back(call);
    }
    return launch(options, c10d::OpType::ALLREDUCE_COALESCED, "smddp:all_reduce_coalesced", tensors,
                  std::move(calls), [tensors, flats] { copy_back(*flats, tensors); });
  }

  c10::intrusive_ptr<c10d::Work> reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    return reduce_one(only(tensors), SMDP_REDUCE, options, static_cast<int>(options.rootRank),
                      c10d::OpType::REDUCE, "smddp:reduce", tensors);
  }

  c10::intrusive_ptr<c10d::Work> broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    const at::Tensor& tensor = only(tensors);
    auto flat = std::make_shared<Tensors>(Tensors{tensor.contiguous()});
    smdp_call call = call_for(SMDP_BROADCAST, flat->front(), options.timeout);
    call.root = static_cast<int>(options.rootRank);
    call.output = flat->front().data_ptr();
    return launch(options, c10d::OpType::BROADCAST, "smddp:broadcast", tensors, {call},
                  [tensors, flat] { copy_back(*flat, tensors); });
  }

  c10::intrusive_ptr<c10d::Work> allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                           const c10d::AllgatherOptions& options) override {
    TORCH_CHECK_VALUE(outputs.size() == 1 && outputs[0].size() == static_cast<size_t>(getSize()),
                      "smddp: all_gather needs one output per rank");
    const at::Tensor input = only(inputs).contiguous();
    for (const at::Tensor& output : outputs[0]) {
      check(output);
      TORCH_CHECK_VALUE(output.numel() == input.numel() && output.scalar_type() == input.scalar_type(),
                        "smddp: all_gather's outputs must have the size and type of the input");
    }
    const at::Tensor gathered = at::empty({getSize(), input.numel()}, input.options());
    smdp_call call = call_for(SMDP_ALL_GATHER, input, options.timeout);
    call.output = gathered.data_ptr();
    return launch(options, c10d::OpType::ALLGATHER, "smddp:all_gather", outputs[0], {call},
                  [results = outputs[0], gathered, input] {
                    const at::NoGradGuard no_grad;
                    for (size_t i = 0; i < results.size(); ++i) {
                      results[i].copy_(gathered[static_cast<int64_t>(i)].view(results[i].sizes()));
                    }
                  });
  }

  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions& options) override {
    check(output);
    check(input);
    TORCH_CHECK_VALUE(
        output.numel() == input.numel() * getSize() && output.scalar_type() == input.scalar_type(),
        "smddp: all_gather_into_tensor needs an output of the input's size times ", getSize());
    const at::Tensor source = input.contiguous();
    const at::Tensor target = output.contiguous();
    smdp_call call = call_for(SMDP_ALL_GATHER, source, options.timeout);
    call.output = target.data_ptr();
    return launch(options, c10d::OpType::_ALLGATHER_BASE, "smddp:all_gather_into_tensor", {output}, {call},
                  [output, target, source] { copy_back({target}, {output}); });
  }

  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options) override {
    smdp_call call{};
    call.collective = SMDP_BARRIER;
    call.timeout_s = seconds_of(options.timeout);
    return launch(options, c10d::OpType::BARRIER, "smddp:barrier", {}, {call}, nullptr);
  }

  // Averages a flat buffer that is named instead of counted: the ranks may submit the buffers of a step in
  // different orders. Every lane counts its own steps from 0, so that models do not wait for each other.
  c10::intrusive_ptr<c10d::Work> average_named(const at::Tensor& buffer, const std::string& lane,
                                               uint32_t step, uint32_t index, uint32_t buffers) {
    check(buffer);
    TORCH_CHECK_VALUE(buffer.is_contiguous() && buffers > 0, "smddp: a named buffer is flat, one of several");
    smdp_call call = call_for(SMDP_ALL_REDUCE, buffer, c10d::kUnsetTimeout);
    call.op = SMDP_AVG;
    call.output = buffer.data_ptr();
    call.step = step;
    call.index = index;
    call.buffers = buffers;
    smdp_group* group = lane_group(lane);
    auto work = c10::make_intrusive<EngineWork>(getRank(), c10d::OpType::ALLREDUCE, "smddp:average_named",
                                                Tensors{buffer});
    work->start(group, {call}, [buffer] {});
    return work;
  }

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 8)
  void shutdown() override { close(); }
  void abort() override { close(); }
#endif

 private:
  // Torch 2.6 and later tell whether the caller will wait for the Work at once. Then it does so here, and its
  // thread does the work: no other has to wake.
  template <class Options>
  static bool waits_at_once(const Options& options) {
    if constexpr (requires { options.asyncOp; }) {
      return !options.asyncOp;
    }
    return false;
  }

  template <class Options>
  c10::intrusive_ptr<c10d::Work> launch(const Options& options, c10d::OpType type, const char* title,
                                        Tensors results, std::vector<smdp_call> calls,
                                        std::function<void()> after) {
    TORCH_CHECK(group_ != nullptr, "smddp: this process group was destroyed");
    auto work = c10::make_intrusive<EngineWork>(getRank(), type, title, std::move(results));
    const bool at_once = waits_at_once(options);
    for (smdp_call& call : calls) {
      call.blocking = at_once ? 1 : 0;
    }
    work->start(group_, std::move(calls), std::move(after));
    if (at_once) {
      work->wait(kNoTimeout);  // the call has its own deadline
    }
    return work;
  }

  template <class Options>
  c10::intrusive_ptr<c10d::Work> reduce_one(const at::Tensor& tensor, smdp_collective collective,
                                            const Options& options, int root, c10d::OpType type,
                                            const char* title, const Tensors& results) {
    auto flat = std::make_shared<Tensors>(Tensors{tensor.contiguous()});
    smdp_call call = call_for(collective, flat->front(), options.timeout);
    call.op = op_of(options.reduceOp);
    call.root = root;
    call.output = flat->front().data_ptr();
    return launch(options, type, title, results, {call}, [results, flat] { copy_back(*flat, results); });
  }

  smdp_group* create_group(const std::string& name) {
    smdp_group* group = nullptr;
    smdp_error error{};
    if (smdp_group_create(session_->engine, members_.data(), static_cast<int>(members_.size()), name.c_str(),
                          timeout_s_, &group, &error) != SMDP_OK) {
      raise(error);
    }
    return group;
  }

  // A group of the same ranks beside the backend's own; it ends with it.
  smdp_group* lane_group(const std::string& lane) {
    const std::lock_guard lock(close_mutex_);
    TORCH_CHECK(group_ != nullptr, "smddp: this process group was destroyed");
    smdp_group*& group = lanes_[lane];
    if (group == nullptr) {
      group = create_group(lane);
    }
    return group;
  }

  void close() {
    const std::lock_guard lock(close_mutex_);
    for (const auto& lane : lanes_) {
      smdp_group_destroy(lane.second);
    }
    lanes_.clear();
    if (group_ != nullptr) {
      smdp_group_destroy(group_);
      group_ = nullptr;
    }
    if (session_) {
      // Closing waits for other ranks, and Python may hold its lock here.
      if (PyGILState_Check() != 0) {
        const pybind11::gil_scoped_release release;
        session_.reset();
      } else {
        session_.reset();
      }
    }
  }

  std::shared_ptr<Session> session_;
  std::vector<int> members_;  // as ranks of the engine
  double timeout_s_ = 0;
  smdp_group* group_ = nullptr;
  std::map<std::string, smdp_group*> lanes_;  // guarded by close_mutex_
  std::mutex close_mutex_;
};

}  // namespace smdp_torch
