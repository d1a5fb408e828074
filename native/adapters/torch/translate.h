// From torch's types, reductions and errors to the engine's.
#pragma once

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <smdp/engine.h>
#include <torch/version.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#define SMDP_TORCH_FROM(major, minor) \
  (TORCH_VERSION_MAJOR > (major) || (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

namespace smdp_torch {

using Tensors = std::vector<at::Tensor>;

[[noreturn]] inline void unsupported(const std::string& what) {
  TORCH_CHECK(false, "smddp: ", what, " is not supported");
}

// The engine's message names ranks, hosts and phase. Programs written for torch's backends look for the word
// timeout.
inline std::string message_of(const smdp_error& error) {
  const char* prefix = error.code == SMDP_TIMEOUT ? "smddp: a timeout ended the call: " : "smddp: ";
  return std::string(prefix) + error.message;
}

inline smdp_error failed(smdp_code code, const char* why) {
  smdp_error error{};
  error.code = code;
  std::snprintf(error.message, sizeof(error.message), "%s", why);
  return error;
}

// DistBackendError is what torch raises for a failed collective.
[[noreturn]] inline void raise(const smdp_error& error) {
  if (error.code == SMDP_INVALID) {
    TORCH_CHECK_VALUE(false, message_of(error));
  }
  TORCH_CHECK_WITH(DistBackendError, false, message_of(error));
}

// The object as a `To`, or null where it is none. Torch's dynamic_intrusive_pointer_cast() loses a reference
// to an object of another type, which then lives for ever.
template <class To, class From>
c10::intrusive_ptr<To> cast_to(const c10::intrusive_ptr<From>& from) {
  auto* const to = dynamic_cast<To*>(from.get());
  return to == nullptr ? c10::intrusive_ptr<To>() : c10::intrusive_ptr<To>::reclaim_copy(to);
}

inline std::optional<smdp_dtype> dtype_of(const at::Tensor& tensor) {
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
      return std::nullopt;
  }
}

// Type and number of a call's elements.
struct Elements {
  smdp_dtype dtype = SMDP_UINT8;
  uint64_t count = 0;
};

// For operations that only move data: types that the engine cannot add are bytes.
inline Elements elements_of(const at::Tensor& tensor) {
  const auto dtype = dtype_of(tensor);
  return {dtype.value_or(SMDP_UINT8), dtype ? static_cast<uint64_t>(tensor.numel()) : tensor.nbytes()};
}

inline Elements numbers_of(const at::Tensor& tensor) {
  const auto dtype = dtype_of(tensor);
  if (!dtype) {
    unsupported(std::string("reducing elements of type ") + c10::toString(tensor.scalar_type()));
  }
  return {*dtype, static_cast<uint64_t>(tensor.numel())};
}

inline smdp_reduce_op op_of(const c10d::ReduceOp& op) {
  switch (static_cast<c10d::ReduceOp::RedOpType>(op)) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::PREMUL_SUM:
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
      unsupported("this reduction");
  }
}

// Whether torch can use the device in this process. Fake tensors claim to be on others; they are refused.
inline bool is_here(c10::Device device) {
  return device.is_cpu() || (!device.is_meta() && c10::impl::hasDeviceGuardImpl(device.type()) &&
                             c10::impl::getDeviceGuardImpl(device.type())->deviceCount() > device.index());
}

inline void check(const at::Tensor& tensor) {
  if (!is_here(tensor.device())) {
    unsupported("a tensor on " + tensor.device().str() + ", where nothing can be copied from,");
  }
  if (tensor.layout() != at::kStrided) {
    unsupported("a sparse tensor");
  }
}

// The engine reads whole elements. The memory of torch.frombuffer() may begin anywhere.
inline bool is_aligned(const at::Tensor& tensor) {
  return reinterpret_cast<std::uintptr_t>(tensor.data_ptr()) % tensor.element_size() == 0;
}

// Whether elements share memory, as expand() makes them. Torch's own functions write to no such tensor
// either.
inline bool repeats_elements(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && !tensor.is_contiguous() &&
         at::has_internal_overlap(tensor) == at::MemOverlap::Yes;
}

// Contiguous and aligned, with lazy conjugation and negation applied.
inline at::Tensor dense(const at::Tensor& tensor) {
  check(tensor);
  const at::Tensor values = tensor.resolve_conj().resolve_neg().contiguous();
  return is_aligned(values) ? values : values.clone();
}

// Whether the engine cannot use the tensor's own memory.
inline bool has_gaps(const at::Tensor& tensor) {
  return !tensor.is_contiguous() || tensor.is_conj() || tensor.is_neg() || !is_aligned(tensor);
}

// Memory for an output: its own, or a fresh tensor of its shape when the engine cannot use that.
inline at::Tensor gapless(const at::Tensor& output) {
  check(output);
  return has_gaps(output) ? at::empty(output.sizes(), output.options()) : output;
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

}  // namespace smdp_torch
