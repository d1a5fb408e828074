// From torch's types, reductions and errors to the engine's.
#pragma once

#include <ATen/ATen.h>
#include <smdp/engine.h>

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

namespace smdp_torch {

using Tensors = std::vector<at::Tensor>;

[[noreturn]] inline void unsupported(const std::string& what) {
  TORCH_CHECK(false, "smddp: ", what, " is not supported yet");
}

// The engine's sentence says who, where and when. Programs that know torch's backends look for the word
// timeout.
inline std::string told(const smdp_error& error) {
  const char* prefix = error.code == SMDP_TIMEOUT ? "smddp: a timeout ended the call: " : "smddp: ";
  return std::string(prefix) + error.message;
}

// DistBackendError is what torch raises for a failed collective.
[[noreturn]] inline void raise(const smdp_error& error) {
  if (error.code == SMDP_INVALID) {
    TORCH_CHECK_VALUE(false, told(error));
  }
  TORCH_CHECK_WITH(DistBackendError, false, told(error));
}

inline smdp_dtype dtype_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return SMDP_FLOAT32;
    case at::kDouble:
      return SMDP_FLOAT64;
    case at::kHalf:
      return SMDP_FLOAT16;
    case at::kBFloat16:
      return SMDP_BFLOAT16;
    case at::kChar:
      return SMDP_INT8;
    case at::kShort:
      return SMDP_INT16;
    case at::kInt:
      return SMDP_INT32;
    case at::kLong:
      return SMDP_INT64;
    case at::kByte:
      return SMDP_UINT8;
    case at::kBool:
      return SMDP_BOOL;
    default:
      unsupported(std::string("element type ") + c10::toString(tensor.scalar_type()));
  }
}

inline smdp_reduce_op op_of(const c10d::ReduceOp& op) {
  switch (static_cast<c10d::ReduceOp::RedOpType>(op)) {
    case c10d::ReduceOp::SUM:
      return SMDP_SUM;
    case c10d::ReduceOp::AVG:
      return SMDP_AVG;
    case c10d::ReduceOp::MIN:
      return SMDP_MIN;
    case c10d::ReduceOp::MAX:
      return SMDP_MAX;
    case c10d::ReduceOp::PRODUCT:
      return SMDP_PRODUCT;
    case c10d::ReduceOp::BAND:
      return SMDP_BAND;
    case c10d::ReduceOp::BOR:
      return SMDP_BOR;
    case c10d::ReduceOp::BXOR:
      return SMDP_BXOR;
    default:
      unsupported("this reduction (PREMUL_SUM)");
  }
}

inline void check(const at::Tensor& tensor) {
  if (!tensor.device().is_cpu()) {
    unsupported("a tensor on " + tensor.device().str() + " (CPU tensors are)");
  }
  if (tensor.layout() != at::kStrided) {
    unsupported("a sparse tensor");
  }
}

inline const at::Tensor& only(const Tensors& tensors) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "smddp: one tensor per call, got ", tensors.size());
  check(tensors[0]);
  return tensors[0];
}

inline double seconds_of(std::chrono::milliseconds timeout) {
  return timeout == c10d::kUnsetTimeout || timeout.count() <= 0
             ? 0
             : std::chrono::duration<double>(timeout).count();
}

inline smdp_call call_for(smdp_collective collective, const at::Tensor& tensor,
                          std::chrono::milliseconds timeout) {
  smdp_call call{};
  call.collective = collective;
  call.dtype = dtype_of(tensor);
  call.count = static_cast<uint64_t>(tensor.numel());
  call.input = tensor.data_ptr();
  call.timeout_s = seconds_of(timeout);
  return call;
}

// Tensors with gaps travel as a contiguous copy.
inline void copy_back(const Tensors& flats, const Tensors& tensors) {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < flats.size(); ++i) {
    if (flats[i].data_ptr() != tensors[i].data_ptr()) {
      tensors[i].copy_(flats[i]);
    }
  }
}

}  // namespace smdp_torch
