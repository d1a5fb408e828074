// The sum of sparse tensors: their indices and values are gathered, and added up on every rank.
#pragma once

#include <utility>
#include <vector>

#include "backend.h"

namespace smdp_torch {

// Ranks hold different numbers of elements, so the numbers go first. Waits for all ranks: to add up needs the
// elements of all of them.
inline EngineBackend::WorkPtr EngineBackend::all_reduce_sparse(Tensors& tensors,
                                                               const c10d::AllreduceOptions& options) {
  TORCH_CHECK_VALUE(op_of(options.reduceOp) == SMDP_SUM, "smddp: sparse tensors can only be summed");
  const c10::NoGradGuard no_grad;
  const at::Tensor mine = tensors[0].coalesce();
  const c10d::AllgatherOptions gathering{options.timeout};
  const at::Tensor count = at::full({1}, mine._nnz(), at::kLong);
  Tensors counts;
  Tensors indices;
  Tensors values;
  for (int rank = 0; rank < getSize(); ++rank) {
    counts.push_back(at::empty({1}, at::kLong));
  }
  launch(all_gather(counts, count, getRank(), getSize()), gathering)->wait();
  for (const at::Tensor& one : counts) {
    const int64_t elements = one.item<int64_t>();
    indices.push_back(at::empty({mine.sparse_dim(), elements}, mine.indices().options()));
    std::vector<int64_t> shape = mine.values().sizes().vec();
    shape[0] = elements;
    values.push_back(at::empty(shape, mine.values().options()));
  }
  launch(all_gather(indices, mine.indices(), getRank(), getSize()), gathering)->wait();
  launch(all_gather(values, mine.values(), getRank(), getSize()), gathering)->wait();
  const at::Tensor sum =
      at::sparse_coo_tensor(at::cat(indices, 1), at::cat(values, 0), mine.sizes()).coalesce();
  tensors[0].copy_(sum);
  Request request(OpType::ALLREDUCE, "smddp:all_reduce", tensors, tensors);
  request.use(mine.values());
  return launch(std::move(request), options);
}

}  // namespace smdp_torch
