// A torch collective as the engine's calls.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <smdp/engine.h>

#include <memory>
#include <optional>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "staging.h"
#include "translate.h"

namespace smdp_torch {

// `kept_` and `back_` own the memory that the calls use, until all of them are complete.
class Request {
 public:
  // A rank that only reads the tensor refuses it too: it would wait for the ranks that refuse.
  Request(c10d::OpType op, const char* name, Tensors read, Tensors written)
      : type(op), title(name), inputs(std::move(read)), results(std::move(written)) {
    for (const at::Tensor& output : results) {
      TORCH_CHECK_VALUE(!repeats_elements(output), title, ": a tensor of sizes ", output.sizes(),
                        " and strides ", output.strides(),
                        " cannot receive a result: its elements share memory, as expand() makes them. Pass a "
                        "copy, as contiguous() makes it");
    }
  }

  c10d::OpType type;
  const char* title;
  Tensors inputs;   // for profilers
  Tensors results;  // of the future
  std::vector<smdp_call> calls;
  std::shared_ptr<Staging> staging;  // for tensors on a device
  std::shared_ptr<int> source;       // of a receive from any rank

  // --- Before the calls ---

  // The memory from which an input is sent: on the host, contiguous.
  at::Tensor keep(const at::Tensor& tensor) {
    use(tensor);
    kept_.push_back(dense(tensor));
    if (staging) {
      const at::Tensor values = kept_.back();
      kept_.push_back(staging->host_memory(values.sizes(), values));
      staging->to_host(values, kept_.back());
    }
    return kept_.back();
  }
  // The same for some elements of each of a tensor's equal parts, one part after the other. It has no gaps.
  at::Tensor keep_parts(const at::Tensor& tensor, int64_t parts, int64_t begin, int64_t length) {
    use(tensor);
    if (!staging) {
      return keep(tensor);  // on the host they are all
    }
    kept_.push_back(tensor);
    const at::Tensor memory = staging->host_memory({parts, length}, tensor);
    kept_.push_back(memory);
    for (int64_t i = 0; i < parts; ++i) {
      staging->to_host(part_of(tensor, parts, i).narrow(0, begin, length), memory[i]);
    }
    return memory;
  }
  // The memory in which an output arrives.
  at::Tensor land(const at::Tensor& target) {
    use(target);
    put_back(staging ? staging->host_memory(target.sizes(), target) : gapless(target), target);
    return back_.back().first;
  }
  at::Tensor land_parts(const at::Tensor& target, int64_t parts, int64_t begin, int64_t length) {
    use(target);
    if (!staging) {
      return land(target);  // on the host they are all
    }
    const at::Tensor memory = staging->host_memory({parts, length}, target);
    for (int64_t i = 0; i < parts; ++i) {
      put_back(memory[i], part_of(target, parts, i).narrow(0, begin, length));
    }
    return memory;
  }
  // The memory of an input whose place the output takes.
  at::Tensor replace(const at::Tensor& tensor) {
    const at::Tensor values = keep(tensor);
    put_back(values, tensor);
    return values;
  }
  // Temporary memory like a tensor's for what arrives.
  at::Tensor memory(at::IntArrayRef sizes, const at::Tensor& like) {
    use(like);
    return staging ? staging->host_memory(sizes, like) : at::empty(sizes, like.options());
  }
  // Loose tensors on a device as one, by one copy there; the output is divided among them at the end.
  at::Tensor pack(const Tensors& tensors) {
    Tensors flat;
    for (const at::Tensor& tensor : tensors) {
      use(tensor);
      flat.push_back(dense(tensor).reshape({-1}));
    }
    const at::Tensor packed = at::cat(flat);
    packed_.emplace_back(packed, tensors);
    return packed;
  }
  // After the call, copies `from` to `to`.
  void put_back(const at::Tensor& from, const at::Tensor& to) {
    use(to);
    back_.emplace_back(from, to);
  }

  // This rank's own part is not sent.
  void copy_own(const at::Tensor& from, const at::Tensor& to) {
    TORCH_CHECK_VALUE(from.numel() == to.numel() && from.scalar_type() == to.scalar_type(),
                      "smddp: this rank's own output must have the size and type of its input");
    use(from);
    use(to);
    const c10::NoGradGuard no_grad;
    to.copy_(from.view_as(to));
  }
  // All tensors of a request are on one device.
  void use(const at::Tensor& tensor) {
    check(tensor);
    if (!device_) {
      device_ = tensor.device();
      if (!tensor.is_cpu()) {
        staging = std::make_shared<Staging>(*device_);
      }
    }
    TORCH_CHECK_VALUE(*device_ == tensor.device(),
                      "smddp: the tensors of one call must be on one device, found ", device_->str(), " and ",
                      tensor.device().str());
  }

  // --- The calls, each after what it needs ---

  smdp_call& call(smdp_collective collective, const Elements& elements) {
    smdp_call added{};
    added.collective = collective;
    added.dtype = elements.dtype;
    added.count = elements.count;
    calls.push_back(added);
    if (staging) {
      staging->add_call();
      ends_.push_back(back_.size());
    }
    return calls.back();
  }
  void exchange(smdp_collective collective, const Elements& elements, std::vector<smdp_part> messages,
                uint32_t tag = 0) {
    parts_.push_back(std::move(messages));
    smdp_call& added = call(collective, elements);
    added.parts = parts_.back().data();
    added.part_count = parts_.back().size();
    added.tag = tag;
  }

  // --- After them ---

  // Puts a call's results where the caller wants them, unless that was done. Without staging nothing is done
  // until all calls are over.
  void finish(std::size_t call) {
    if (staging) {
      put(call == 0 ? 0 : ends_[call - 1], ends_[call]);
    }
  }
  void finish() {
    put(0, back_.size());
    const c10::InferenceMode no_grad;
    for (const auto& [packed, tensors] : packed_) {
      staging->unpack(packed, tensors);
    }
  }

 private:
  using Copy = std::pair<at::Tensor, at::Tensor>;  // from where, to where

  static at::Tensor part_of(const at::Tensor& tensor, int64_t parts, int64_t i) {
    const int64_t elements = tensor.numel() / parts;
    return tensor.view({-1}).narrow(0, i * elements, elements);
  }

  void put(std::size_t begin, std::size_t end) {
    const c10::InferenceMode no_grad;  // which inference tensors need, and others allow
    for (std::size_t i = begin; i < end; ++i) {
      const auto [from, to] = std::exchange(back_[i], Copy());
      if (!from.defined() || from.data_ptr() == to.data_ptr()) {
        continue;  // done, or nothing to do
      }
      if (staging) {
        staging->copy_back(from, to);
      } else {
        to.copy_(from.view_as(to));
      }
    }
  }

  std::vector<std::vector<smdp_part>> parts_;  // of the calls
  Tensors kept_;
  std::vector<Copy> back_;
  std::vector<std::pair<at::Tensor, Tensors>> packed_;
  std::vector<std::size_t> ends_;  // of each call's copies in back_
  std::optional<c10::Device> device_;
};

}  // namespace smdp_torch
