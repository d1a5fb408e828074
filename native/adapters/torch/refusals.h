// What the engine does not offer yet, said in one form.
#pragma once

#include <torch/version.h>

#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "translate.h"

namespace smdp_torch {

class PartialBackend : public c10d::Backend {
 public:
  using Backend::Backend;

  c10::intrusive_ptr<c10d::Work> allgather_coalesced(std::vector<Tensors>&, Tensors&,
                                                     const c10d::AllgatherOptions&) override {
    no("all_gather_coalesced");
  }
  c10::intrusive_ptr<c10d::Work> gather(std::vector<Tensors>&, Tensors&,
                                        const c10d::GatherOptions&) override {
    no("gather");
  }
  c10::intrusive_ptr<c10d::Work> scatter(Tensors&, std::vector<Tensors>&,
                                         const c10d::ScatterOptions&) override {
    no("scatter");
  }
  c10::intrusive_ptr<c10d::Work> reduce_scatter(Tensors&, std::vector<Tensors>&,
                                                const c10d::ReduceScatterOptions&) override {
    no("reduce_scatter");
  }
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor&, at::Tensor&,
                                                      const c10d::ReduceScatterOptions&) override {
    no("reduce_scatter_tensor");
  }
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor&, at::Tensor&, std::vector<int64_t>&,
                                               std::vector<int64_t>&, const c10d::AllToAllOptions&) override {
    no("all_to_all_single");
  }
  c10::intrusive_ptr<c10d::Work> alltoall(Tensors&, Tensors&, const c10d::AllToAllOptions&) override {
    no("all_to_all");
  }
  c10::intrusive_ptr<c10d::Work> send(Tensors&, int, int) override { no("send"); }
  c10::intrusive_ptr<c10d::Work> recv(Tensors&, int, int) override { no("recv"); }
  c10::intrusive_ptr<c10d::Work> recvAnysource(Tensors&, int) override { no("recv from any source"); }
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 1)
  c10::intrusive_ptr<c10d::Work> allreduce_sparse(Tensors&, const c10d::AllreduceOptions&) override {
    no("all_reduce of a sparse tensor");
  }
  c10::intrusive_ptr<c10d::Work> allgather_into_tensor_coalesced(Tensors&, Tensors&,
                                                                 const c10d::AllgatherOptions&) override {
    no("all_gather_into_tensor_coalesced");
  }
  c10::intrusive_ptr<c10d::Work> reduce_scatter_tensor_coalesced(Tensors&, Tensors&,
                                                                 const c10d::ReduceScatterOptions&) override {
    no("reduce_scatter_tensor_coalesced");
  }
#endif
  void monitoredBarrier(const c10d::BarrierOptions&, bool) override {
    no("monitored_barrier (barrier names the late ranks by itself)");
  }

 private:
  [[noreturn]] static void no(const std::string& what) { unsupported(what); }
};

}  // namespace smdp_torch
