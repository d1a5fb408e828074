// all_reduce of sparse tensors, whose values stand at other places on each rank.
#pragma once

#include <ATen/ATen.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "translate.h"

namespace smdp_torch {

// Every rank gathers the places and values of all, padded to the longest, and adds them up in the order of
// the ranks: so all have the same bits. The caller waits meanwhile, as three exchanges follow one another.
class SparseSum {
 public:
  SparseSum(c10d::Backend& backend, const c10d::AllreduceOptions& options) : backend_(backend) {
    TORCH_CHECK_VALUE(op_of(options.reduceOp) == SMDP_SUM, "smddp: sparse tensors can only be summed");
    options_.timeout = options.timeout;
  }

  // Puts the sum of all ranks' tensors in place of `tensor`.
  void run(at::Tensor& tensor) {
    TORCH_CHECK_VALUE(tensor.device().is_cpu() && tensor.layout() == at::kSparse,
                      "smddp: of sparse tensors all_reduce takes those with coordinates (COO) on the CPU");
    const at::NoGradGuard no_grad;
    const at::Tensor mine = tensor.coalesce();
    const at::Tensor counts = gather(at::full({1}, mine._nnz(), at::kLong)).flatten();
    const int64_t longest = counts.max().item<int64_t>();
    const at::Tensor places = gather(padded(mine.indices().t(), longest));
    const at::Tensor values = gather(padded(mine.values(), longest));
    Tensors all_places;
    Tensors all_values;
    for (int64_t rank = 0; rank < counts.numel(); ++rank) {
      const auto count = counts[rank].item<int64_t>();
      all_places.push_back(places[rank].narrow(0, 0, count));
      all_values.push_back(values[rank].narrow(0, 0, count));
    }
    const at::Tensor sum =
        at::sparse_coo_tensor(at::cat(all_places).t(), at::cat(all_values), tensor.sizes(), tensor.options());
    tensor.copy_(sum.coalesce());
  }

 private:
  static at::Tensor padded(const at::Tensor& rows, int64_t length) {
    std::vector<int64_t> shape = rows.sizes().vec();
    shape[0] = length;
    at::Tensor result = at::zeros(shape, rows.options());
    result.narrow(0, 0, rows.size(0)).copy_(rows);
    return result;
  }

  at::Tensor gather(at::Tensor piece) {
    std::vector<int64_t> shape = piece.sizes().vec();
    shape.insert(shape.begin(), backend_.getSize());
    at::Tensor result = at::empty(shape, piece.options());
    if (piece.numel() > 0) {
      backend_._allgather_base(result, piece, options_)->wait();
    }
    return result;
  }

  c10d::Backend& backend_;
  c10d::AllgatherOptions options_;
};

}  // namespace smdp_torch
