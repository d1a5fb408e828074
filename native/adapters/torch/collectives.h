// The collectives of the engine on the tensors of all ranks.
#pragma once

#include <torch/version.h>

#include <map>
#include <vector>

#include "request.h"

namespace smdp_torch {

using c10d::OpType;

// --- Sums ---

// What is reduced for a tensor: complex numbers by their two halves.
inline at::Tensor reducible(const at::Tensor& tensor, smdp_reduce_op op) {
  if (!tensor.is_complex()) {
    return tensor;
  }
  TORCH_CHECK_VALUE(op == SMDP_SUM || op == SMDP_AVG,
                    "smddp: complex numbers can be summed and averaged only");
  return at::view_as_real(tensor);
}

// The values that are added up: for PREMUL_SUM scaled first.
inline at::Tensor scaled(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  if (static_cast<c10d::ReduceOp::RedOpType>(op) != c10d::ReduceOp::PREMUL_SUM) {
    return tensor;
  }
  TORCH_CHECK_VALUE(tensor.is_floating_point(),
                    "smddp: only floating-point numbers can be scaled and summed");
  const auto* factor = static_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  const c10::NoGradGuard no_grad;
  const at::Tensor product =
      factor->tensor_factor.defined() ? tensor * factor->tensor_factor : tensor * factor->double_factor;
  return product.to(tensor.scalar_type());  // a factor of another type may not change it
}

// A tensor's elements in their order, from `begin` on; it has no gaps.
inline at::Tensor piece_of(const at::Tensor& tensor, int64_t begin, int64_t length) {
  return length == tensor.numel() ? tensor : tensor.view({-1}).narrow(0, begin, length);
}

// `output`: undefined on a rank that gets no result.
inline void reduce_into(Request& request, const at::Tensor& input, const at::Tensor& output,
                        const c10d::ReduceOp& operation, int root) {
  const smdp_reduce_op op = op_of(operation);
  const at::Tensor values = request.keep(scaled(reducible(input, op), operation));
  const at::Tensor sum = output.defined() ? request.land(reducible(output, op)) : at::Tensor();
  smdp_call& call = request.call(SMDP_REDUCE, numbers_of(values));
  call.op = op;
  call.root = root;
  call.input = values.data_ptr();
  call.output = sum.defined() ? sum.data_ptr() : nullptr;
}

inline void all_reduce_piece(Request& request, const at::Tensor& piece, smdp_reduce_op op) {
  const at::Tensor values = request.replace(piece);
  smdp_call& call = request.call(SMDP_ALL_REDUCE, numbers_of(values));
  call.op = op;
  call.input = values.data_ptr();
  call.output = values.data_ptr();
}

// In place. An input that had to be copied is the output's memory too.
inline void all_reduce_into(Request& request, const at::Tensor& tensor, const c10d::ReduceOp& operation) {
  const smdp_reduce_op op = op_of(operation);
  const at::Tensor whole = reducible(tensor, op);
  const at::Tensor values = dense(scaled(whole, operation));
  in_pieces(values, values.numel(), 1, [&](int64_t begin, int64_t length) {
    all_reduce_piece(request, piece_of(values, begin, length), op);
  });
  request.put_back(values, whole);
}

inline Request all_reduce(const Tensors& tensors, const c10d::ReduceOp& op, OpType type, const char* title) {
  Request request(type, title, tensors, tensors);
  std::map<at::ScalarType, Tensors> loose;  // on a device, by type
  for (const at::Tensor& tensor : tensors) {
    if (tensors.size() == 1 || tensor.is_cpu()) {
      all_reduce_into(request, tensor, op);
    } else {
      check(tensor);
      loose[tensor.scalar_type()].push_back(tensor);
    }
  }
  for (const auto& [of_type, some] : loose) {
    all_reduce_into(request, some.size() == 1 ? some[0] : request.pack(some), op);
  }
  return request;
}

// In one call, which can be given a name.
inline Request average_whole(const at::Tensor& buffer) {
  Request request(OpType::ALLREDUCE, "smddp:average_named", {buffer}, {buffer});
  all_reduce_piece(request, buffer, SMDP_AVG);
  return request;
}

inline Request reduce(const Tensors& tensors, const c10d::ReduceOptions& options, int rank) {
  Request request(OpType::REDUCE, "smddp:reduce", tensors, tensors);
  const auto root = static_cast<int>(options.rootRank);
  reduce_into(request, only(tensors), rank == root ? tensors[0] : at::Tensor(), options.reduceOp, root);
  return request;
}

inline void reduce_scatter_into(Request& request, const at::Tensor& output, const at::Tensor& input,
                                const c10d::ReduceOp& operation, int size) {
  check(input);
  TORCH_CHECK_VALUE(input.numel() == output.numel() * size && input.scalar_type() == output.scalar_type(),
                    "smddp: reduce_scatter_tensor needs an input of the output's type and ", size,
                    " times its size");
  const smdp_reduce_op op = op_of(operation);
  const at::Tensor values = dense(scaled(reducible(input, op), operation));
  const at::Tensor sum = gapless(reducible(output, op));
  in_pieces(values, sum.numel(), size, [&](int64_t begin, int64_t length) {
    const at::Tensor parts = request.keep_parts(values, size, begin, length);
    const at::Tensor part = request.land(piece_of(sum, begin, length));
    smdp_call& call = request.call(SMDP_REDUCE_SCATTER, numbers_of(part));
    call.op = op;
    call.input = parts.data_ptr();
    call.output = part.data_ptr();
  });
  request.put_back(sum, reducible(output, op));
}

inline Request reduce_scatter_tensors(const Tensors& outputs, const Tensors& inputs, const c10d::ReduceOp& op,
                                      int size, OpType type) {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "smddp: as many outputs as inputs are needed");
  Request request(type, "smddp:reduce_scatter_tensor", inputs, outputs);
  for (size_t i = 0; i < outputs.size(); ++i) {
    reduce_scatter_into(request, outputs[i], inputs[i], op, size);
  }
  return request;
}

inline bool same_sizes(const Tensors& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() != tensors[0].numel()) {
      return false;
    }
  }
  return true;
}

inline at::Tensor one_after_the_other(const Tensors& tensors) {
  Tensors flat;
  for (const at::Tensor& tensor : tensors) {
    flat.push_back(tensor.reshape({-1}));
  }
  return at::cat(flat);
}

// Parts of different sizes are reduced one by one.
inline Request reduce_scatter(const at::Tensor& output, const Tensors& parts, const c10d::ReduceOp& op,
                              int rank, int size) {
  TORCH_CHECK_VALUE(parts.size() == static_cast<size_t>(size),
                    "smddp: reduce_scatter needs an input per rank");
  TORCH_CHECK_VALUE(parts[static_cast<size_t>(rank)].numel() == output.numel(),
                    "smddp: reduce_scatter's output must have the size of this rank's part");
  for (const at::Tensor& part : parts) {
    TORCH_CHECK_VALUE(part.scalar_type() == output.scalar_type(),
                      "smddp: reduce_scatter's output must have the type of its inputs");
  }
  Request request(OpType::REDUCE_SCATTER, "smddp:reduce_scatter", parts, {output});
  if (same_sizes(parts)) {
    reduce_scatter_into(request, output, one_after_the_other(parts), op, size);
    return request;
  }
  for (int root = 0; root < size; ++root) {
    const at::Tensor& part = parts[static_cast<size_t>(root)];
    reduce_into(request, part, root == rank ? output : at::Tensor(), op, root);
  }
  return request;
}

// --- Copies ---

inline void broadcast_into(Request& request, const at::Tensor& tensor, int root, int rank) {
  check(tensor);
  const at::Tensor values = rank == root ? dense(tensor) : gapless(tensor);
  in_pieces(values, values.numel(), 1, [&](int64_t begin, int64_t length) {
    const at::Tensor piece = piece_of(values, begin, length);
    const at::Tensor memory = rank == root ? request.keep(piece) : request.land(piece);
    smdp_call& call = request.call(SMDP_BROADCAST, elements_of(memory));
    call.root = root;
    call.input = memory.data_ptr();
    call.output = memory.data_ptr();
  });
  if (rank != root) {
    request.put_back(values, tensor);
  }
}

inline Request broadcast(const Tensors& tensors, const c10d::BroadcastOptions& options, int rank) {
  Request request(OpType::BROADCAST, "smddp:broadcast", tensors, tensors);
  broadcast_into(request, only(tensors), static_cast<int>(options.rootRank), rank);
  return request;
}

// `place`(begin, length): the memory for these elements of all ranks.
template <class Place>
void all_gather_into(Request& request, const at::Tensor& input, int size, const Place& place) {
  const at::Tensor values = dense(input);
  in_pieces(values, values.numel(), size, [&](int64_t begin, int64_t length) {
    const at::Tensor piece = request.keep(piece_of(values, begin, length));
    const at::Tensor gathered = place(begin, length);
    smdp_call& call = request.call(SMDP_ALL_GATHER, elements_of(piece));
    call.input = piece.data_ptr();
    call.output = gathered.data_ptr();
  });
}

inline Request all_gather_tensors(const Tensors& outputs, const Tensors& inputs, int size, OpType type) {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "smddp: as many outputs as inputs are needed");
  Request request(type, "smddp:all_gather_into_tensor", inputs, outputs);
  for (size_t i = 0; i < outputs.size(); ++i) {
    TORCH_CHECK_VALUE(
        outputs[i].numel() == inputs[i].numel() * size && outputs[i].scalar_type() == inputs[i].scalar_type(),
        "smddp: all_gather_into_tensor needs an output of the input's type and ", size, " times its size");
    const at::Tensor gathered = gapless(outputs[i]);
    all_gather_into(request, inputs[i], size, [&](int64_t begin, int64_t length) {
      return request.land_parts(gathered, size, begin, length);
    });
    request.put_back(gathered, outputs[i]);
  }
  return request;
}

// Outputs of different sizes come from their ranks one by one.
inline void all_gather_list_into(Request& request, const Tensors& outputs, const at::Tensor& input, int rank,
                                 int size) {
  TORCH_CHECK_VALUE(outputs.size() == static_cast<size_t>(size),
                    "smddp: all_gather needs one output per rank");
  for (const at::Tensor& output : outputs) {
    check(output);
    TORCH_CHECK_VALUE(output.scalar_type() == input.scalar_type(),
                      "smddp: all_gather's outputs must have the type of the input");
  }
  TORCH_CHECK_VALUE(outputs[static_cast<size_t>(rank)].numel() == input.numel(),
                    "smddp: all_gather's output for this rank must have the size of its input");
  if (same_sizes(outputs)) {
    Tensors theirs;
    for (const at::Tensor& output : outputs) {
      theirs.push_back(output.is_cpu() ? output : gapless(output));
    }
    all_gather_into(request, input, size, [&](int64_t begin, int64_t length) {
      const at::Tensor gathered = request.memory({size, length}, input);
      for (int i = 0; i < size; ++i) {
        request.put_back(gathered[i], piece_of(theirs[static_cast<size_t>(i)], begin, length));
      }
      return gathered;
    });
    for (size_t i = 0; i < outputs.size(); ++i) {
      request.put_back(theirs[i], outputs[i]);
    }
    return;
  }
  for (int root = 0; root < size; ++root) {
    const at::Tensor& output = outputs[static_cast<size_t>(root)];
    if (root == rank) {
      const c10::NoGradGuard no_grad;
      output.copy_(input.view_as(output));
    }
    broadcast_into(request, output, root, rank);
  }
}

inline Request all_gather(const Tensors& outputs, const at::Tensor& input, int rank, int size) {
  Request request(OpType::ALLGATHER, "smddp:all_gather", {input}, outputs);
  all_gather_list_into(request, outputs, input, rank, size);
  return request;
}

// `lists`: by rank, one tensor for each input.
inline Request all_gather_lists(const std::vector<Tensors>& lists, const Tensors& inputs, int rank,
                                int size) {
  TORCH_CHECK_VALUE(lists.size() == static_cast<size_t>(size),
                    "smddp: all_gather_coalesced needs a list per rank");
  Tensors all;
  for (const Tensors& list : lists) {
    TORCH_CHECK_VALUE(list.size() == inputs.size(),
                      "smddp: all_gather_coalesced needs as many outputs in each list as there are inputs");
    all.insert(all.end(), list.begin(), list.end());
  }
  Request request(OpType::ALLGATHER_COALESCED, "smddp:all_gather", inputs, all);
  for (size_t i = 0; i < inputs.size(); ++i) {
    Tensors outputs;
    for (const Tensors& list : lists) {
      outputs.push_back(list[i]);
    }
    all_gather_list_into(request, outputs, inputs[i], rank, size);
  }
  return request;
}

inline Request barrier() {
  Request request(OpType::BARRIER, "smddp:barrier", {}, {});
  request.call(SMDP_BARRIER, {SMDP_UINT8, 0});
  return request;
}

}  // namespace smdp_torch
