// A torch collective as the engine's calls.
#pragma once

#include <ATen/ATen.h>
#include <smdp/engine.h>

#include <memory>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "translate.h"

namespace smdp_torch {

// `kept` and `back` own the memory that the calls use, until all of them are over.
struct Request {
  Request(c10d::OpType what, const char* shown, Tensors watched, Tensors made)
      : type(what), title(shown), inputs(std::move(watched)), results(std::move(made)) {}

  c10d::OpType type;
  const char* title;
  Tensors inputs;   // for profilers
  Tensors results;  // of the future
  std::vector<smdp_call> calls;
  std::vector<std::vector<smdp_part>> parts;  // of the calls
  Tensors kept;
  std::vector<std::pair<at::Tensor, at::Tensor>> back;  // what is copied to where in the end
  std::shared_ptr<int> source;                          // of a receipt from any rank

  // The memory in which an input travels: without gaps.
  const at::Tensor& keep(const at::Tensor& tensor) {
    kept.push_back(dense(tensor));
    return kept.back();
  }
  // The memory in which an output arrives.
  const at::Tensor& land(const at::Tensor& target) {
    check(target);
    const bool in_place = target.is_contiguous() && !target.is_conj() && !target.is_neg();
    back.emplace_back(in_place ? target : at::empty(target.sizes(), target.options()), target);
    return back.back().first;
  }
  smdp_call& call(smdp_collective collective, const Elements& elements) {
    smdp_call made{};
    made.collective = collective;
    made.dtype = elements.dtype;
    made.count = elements.count;
    calls.push_back(made);
    return calls.back();
  }
  void exchange(smdp_collective collective, const Elements& elements, std::vector<smdp_part> messages,
                uint32_t tag = 0) {
    parts.push_back(std::move(messages));
    smdp_call& made = call(collective, elements);
    made.parts = parts.back().data();
    made.part_count = parts.back().size();
    made.tag = tag;
  }

  // Puts the results where the caller wants them.
  void finish() const {
    const at::NoGradGuard no_grad;
    for (const auto& [from, to] : back) {
      if (from.data_ptr() != to.data_ptr()) {
        to.copy_(from.view_as(to));
      }
    }
  }
};

}  // namespace smdp_torch
