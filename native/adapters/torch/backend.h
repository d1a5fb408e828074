// A torch process group's backend: each collective becomes a call of the engine and a Work.
#pragma once

#include <ATen/ATen.h>
#include <pybind11/pybind11.h>
#include <smdp/engine.h>
#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "refusals.h"
#include "session.h"
#include "sparse.h"
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
    std::vector<int> members;
    for (const int global : global_ranks) {
      const auto found = std::find(session_->ranks.begin(), session_->ranks.end(), global);
      members.push_back(static_cast<int>(found - session_->ranks.begin()));
    }
    smdp_error error{};
    const double timeout_s = std::chrono::duration<double>(timeout).count();
    if (smdp_group_create(session_->engine, members.data(), static_cast<int>(members.size()), name.c_str(),
                          timeout_s, &group_, &error) != SMDP_OK) {
      raise(error);
    }
  }
  ~EngineBackend() override { close(); }

  const std::string getBackendName() const override { return "smddp"; }

  c10::intrusive_ptr<c10d::Work> allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    if (tensors.size() == 1 && tensors[0].is_sparse()) {
      SparseSum(*this, options).run(tensors[0]);
      auto sums = c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()));
      sums->markCompleted(at::IValue(tensors));
      return c10d::Work::create_from_future(sums);
    }
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
    return launch(options, c10d::OpType::ALLREDUCE_COALESCED, "smddp:all_reduce_coalesced", tensors, tensors,
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
    return launch(options, c10d::OpType::BROADCAST, "smddp:broadcast", tensors, tensors, {call},
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
    return launch(options, c10d::OpType::ALLGATHER, "smddp:all_gather", {input}, outputs[0], {call},
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
    return launch(options, c10d::OpType::_ALLGATHER_BASE, "smddp:all_gather_into_tensor", {input}, {output},
                  {call}, [output, target, source] { copy_back({target}, {output}); });
  }

  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options) override {
    smdp_call call{};
    call.collective = SMDP_BARRIER;
    call.timeout_s = seconds_of(options.timeout);
    return launch(options, c10d::OpType::BARRIER, "smddp:barrier", {}, {}, {call}, nullptr);
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
                                        const Tensors& inputs, Tensors results, std::vector<smdp_call> calls,
                                        std::function<void()> after) {
    TORCH_CHECK(group_ != nullptr, "smddp: this process group was destroyed");
    auto work = c10::make_intrusive<EngineWork>(getRank(), type, title, inputs, std::move(results));
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
    return launch(options, type, title, {tensor}, results, {call},
                  [results, flat] { copy_back(*flat, results); });
  }

  void close() {
    const std::lock_guard lock(close_mutex_);
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
  smdp_group* group_ = nullptr;
  std::mutex close_mutex_;
};

}  // namespace smdp_torch
