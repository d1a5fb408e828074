// The sum of sparse tensors: their indices and values are gathered, and added up on every rank.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "backend.h"

namespace smdp_torch {

// Torch's functions that reduce dimensions take no more.
constexpr int64_t kMostDimensions = 64;

// The number of a sparse tensor's elements, and what the tensors of all ranks must have in common: the type,
// the number of sparse dimensions, and the number and sizes of all dimensions.
inline at::Tensor form_of(const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.dim() <= kMostDimensions, "smddp: a sparse tensor can have at most ",
                    kMostDimensions, " dimensions, got ", tensor.dim());
  std::vector<int64_t> form{tensor._nnz(), static_cast<int64_t>(tensor.scalar_type()), tensor.sparse_dim(),
                            tensor.dim()};
  form.insert(form.end(), tensor.sizes().begin(), tensor.sizes().end());
  form.resize(4 + kMostDimensions);
  return at::tensor(form, at::kLong);
}

inline std::string describe_form(const at::Tensor& form) {
  const int64_t* words = form.data_ptr<int64_t>();
  return c10::str(c10::toString(static_cast<at::ScalarType>(words[1])), " of sizes ",
                  at::IntArrayRef(words + 4, static_cast<size_t>(words[3])), ", sparse in the first ",
                  words[2]);
}

// Ranks hold different numbers of elements, so the numbers go first. Waits for all ranks: to add up needs the
// elements of all of them.
inline EngineBackend::WorkPtr EngineBackend::all_reduce_sparse(Tensors& tensors,
                                                               const c10d::AllreduceOptions& options) {
  TORCH_CHECK_VALUE(op_of(options.reduceOp) == SMDP_SUM, "smddp: sparse tensors can only be summed");
  const c10::NoGradGuard no_grad;
  const at::Tensor mine = tensors[0].coalesce();
  const c10d::AllgatherOptions gathering{options.timeout};
  const at::Tensor form = form_of(mine);
  Tensors forms;
  Tensors indices;
  Tensors values;
  for (int rank = 0; rank < getSize(); ++rank) {
    forms.push_back(at::empty_like(form));
  }
  launch(all_gather(forms, form, getRank(), getSize()), gathering)->wait();
  for (std::size_t rank = 1; rank < forms.size(); ++rank) {
    TORCH_CHECK(at::equal(forms[0].slice(0, 1), forms[rank].slice(0, 1)),
                "smddp: all_reduce: the sparse tensors differ between ranks: ", describe_form(forms[0]),
                " on rank ", members_[0], ", ", describe_form(forms[rank]), " on rank ", members_[rank]);
  }
  for (const at::Tensor& one : forms) {
    const auto elements = one[0].item<int64_t>();
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
