// The collectives that are made of point-to-point messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "request.h"

namespace smdp_torch {

using c10d::OpType;

// Tags of monitored_barrier's messages (monitored_barrier.h).
constexpr int kArrivedTag = 0x7ffffffe;
constexpr int kPassedTag = 0x7fffffff;

// Of a script's message.
inline int checked_tag(int tag) {
  TORCH_CHECK_VALUE(tag >= 0 && tag < kArrivedTag, "smddp: the tag of a message must be from 0 to ",
                    kArrivedTag - 1, ", got ", tag);
  return tag;
}

inline smdp_part message_to(int peer, const at::Tensor& values) {
  return {peer, 0, values.data_ptr(), values.nbytes(), nullptr};
}

inline smdp_part message_from(int peer, const at::Tensor& memory) {
  return {peer, 1, memory.data_ptr(), memory.nbytes(), nullptr};
}

// A call without receivers is one that the other ranks do not make.
inline void exchange_if_any(Request& request, smdp_collective collective, const at::Tensor& counted,
                            std::vector<smdp_part> parts) {
  if (!parts.empty()) {
    request.exchange(collective, elements_of(counted), std::move(parts));
  }
}

// `outputs`: on the root one per rank, elsewhere none.
inline Request gather(const std::vector<Tensors>& outputs, const at::Tensor& input, int root, int rank,
                      int size) {
  Request request(OpType::GATHER, "smddp:gather", {input}, outputs.empty() ? Tensors{} : outputs[0]);
  std::vector<smdp_part> parts;
  if (rank != root) {
    TORCH_CHECK_VALUE(outputs.empty(), "smddp: gather takes outputs on the root only");
    parts.push_back(message_to(root, request.keep(input)));
  } else {
    TORCH_CHECK_VALUE(outputs.size() == 1 && outputs[0].size() == static_cast<size_t>(size),
                      "smddp: gather needs one output per rank on the root");
    for (int peer = 0; peer < size; ++peer) {
      const at::Tensor& output = outputs[0][static_cast<size_t>(peer)];
      TORCH_CHECK_VALUE(output.scalar_type() == input.scalar_type(),
                        "smddp: gather's outputs must have the type of the input");
      if (peer == rank) {
        request.copy_own(input, output);
      } else {
        parts.push_back(message_from(peer, request.land(output)));
      }
    }
  }
  exchange_if_any(request, SMDP_GATHER, input, std::move(parts));
  return request;
}

// `inputs`: on the root one per rank, elsewhere none.
inline Request scatter(const at::Tensor& output, const std::vector<Tensors>& inputs, int root, int rank,
                       int size) {
  Request request(OpType::SCATTER, "smddp:scatter", inputs.empty() ? Tensors{} : inputs[0], {output});
  std::vector<smdp_part> parts;
  if (rank != root) {
    TORCH_CHECK_VALUE(inputs.empty(), "smddp: scatter takes inputs on the root only");
    parts.push_back(message_from(root, request.land(output)));
  } else {
    TORCH_CHECK_VALUE(inputs.size() == 1 && inputs[0].size() == static_cast<size_t>(size),
                      "smddp: scatter needs one input per rank on the root");
    for (int peer = 0; peer < size; ++peer) {
      const at::Tensor& input = inputs[0][static_cast<size_t>(peer)];
      TORCH_CHECK_VALUE(input.scalar_type() == output.scalar_type(),
                        "smddp: scatter's inputs must have the type of the output");
      if (peer == rank) {
        request.copy_own(input, output);
      } else {
        parts.push_back(message_to(peer, request.keep(input)));
      }
    }
  }
  check(output);
  exchange_if_any(request, SMDP_SCATTER, output, std::move(parts));
  return request;
}

inline void exchange_all(Request& request, const Tensors& outputs, const Tensors& inputs, int rank,
                         const at::Tensor& counted) {
  std::vector<smdp_part> parts;
  for (size_t peer = 0; peer < inputs.size(); ++peer) {
    if (static_cast<int>(peer) == rank) {
      request.copy_own(inputs[peer], outputs[peer]);
    } else {
      parts.push_back(message_to(static_cast<int>(peer), request.keep(inputs[peer])));
      parts.push_back(message_from(static_cast<int>(peer), request.land(outputs[peer])));
    }
  }
  exchange_if_any(request, SMDP_ALL_TO_ALL, counted, std::move(parts));
}

inline Request all_to_all(const Tensors& outputs, const Tensors& inputs, int rank, int size) {
  TORCH_CHECK_VALUE(inputs.size() == static_cast<size_t>(size) && outputs.size() == static_cast<size_t>(size),
                    "smddp: all_to_all needs one input and one output per rank");
  Request request(OpType::ALLTOALL, "smddp:all_to_all", inputs, outputs);
  exchange_all(request, outputs, inputs, rank, inputs[0]);
  return request;
}

// The rows of a tensor by rank: as many for each as `splits` says, or equally many.
inline Tensors split_rows(const at::Tensor& tensor, const std::vector<int64_t>& splits, int size,
                          const char* which) {
  const int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  if (splits.empty()) {
    TORCH_CHECK_VALUE(rows % size == 0, "smddp: all_to_all_single's ", which, " has ", rows,
                      " rows, which cannot be split equally over ", size, " ranks");
    return tensor.tensor_split(size, 0);
  }
  TORCH_CHECK_VALUE(splits.size() == static_cast<size_t>(size), "smddp: all_to_all_single's ", which,
                    " needs one split size per rank");
  const int64_t total = std::accumulate(splits.begin(), splits.end(), int64_t{0});
  TORCH_CHECK_VALUE(total == rows, "smddp: all_to_all_single's ", which, " has ", rows,
                    " rows and split sizes of ", total, " in all");
  return tensor.split_with_sizes(splits, 0);
}

inline Request all_to_all_single(const at::Tensor& output, const at::Tensor& input,
                                 const std::vector<int64_t>& output_splits,
                                 const std::vector<int64_t>& input_splits, int rank, int size) {
  TORCH_CHECK_VALUE(output.scalar_type() == input.scalar_type(),
                    "smddp: all_to_all_single's output must have the type of its input");
  Request request(OpType::ALLTOALL_BASE, "smddp:all_to_all", {input}, {output});
  exchange_all(request, split_rows(output, output_splits, size, "output"),
               split_rows(input, input_splits, size, "input"), rank, input);
  return request;
}

inline Request send(const Tensors& tensors, int to, int tag) {
  Request request(OpType::SEND, "smddp:send", tensors, {});
  request.results = tensors;  // of the future: nothing is written to them
  const at::Tensor values = request.keep(only(tensors));
  request.exchange(SMDP_SEND, elements_of(values), {message_to(to, values)}, static_cast<uint32_t>(tag));
  return request;
}

inline Request receive(const Tensors& tensors, int from, int tag) {
  const bool any = from == SMDP_ANY_RANK;
  Request request(any ? OpType::RECVANYSOURCE : OpType::RECV, any ? "smddp:recvAnySource" : "smddp:recv",
                  tensors, tensors);
  const at::Tensor memory = request.land(only(tensors));
  smdp_part part = message_from(from, memory);
  request.source = std::make_shared<int>(from);
  part.source = request.source.get();
  request.exchange(SMDP_RECV, elements_of(memory), {part}, static_cast<uint32_t>(tag));
  return request;
}

}  // namespace smdp_torch
