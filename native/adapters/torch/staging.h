// Tensors on a device: their values are exchanged through pinned host memory. They are copied there before a
// call and back after it, on a separate stream beside the one that computes.
//
// Uses torch's device-generic streams and events only: one build serves every kind of device, and a machine
// without one. It must not use a device that does not exist: torch built for CUDA ends the process then.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "translate.h"

namespace smdp_torch {

// Values are copied to and from a device in pieces, so that one piece is copied while another is exchanged.
// All ranks use the same pieces. 4 MiB: large enough for the wire and for the bus, small beside a bucket
// of 25.
constexpr int64_t kPieceBytes = 4 << 20;

// Calls make(begin, length) for each piece of `elements` elements of the tensor's type, which are exchanged
// with each of `ranks`; once when there are no elements.
template <class Make>
void in_pieces(const at::Tensor& like, int64_t elements, int64_t ranks, const Make& make) {
  const int64_t bytes = elements * ranks * static_cast<int64_t>(like.element_size());
  const int64_t pieces = like.is_cpu() ? 1 : std::max<int64_t>(1, (bytes + kPieceBytes - 1) / kPieceBytes);
  for (int64_t i = 0; i < pieces; ++i) {
    const int64_t begin = elements * i / pieces;
    make(begin, elements * (i + 1) / pieces - begin);
  }
}

// The stream and the events for the copies of one work. Created and filled on the caller's thread.
class Staging {
 public:
  explicit Staging(c10::Device device)
      : device_(device), streams_(device.type()), beside_(streams_.getStreamFromGlobalPool(device, true)) {}

  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging() {
    try {
      const c10::DeviceGuard guard(device_);  // for the same reason as in await()
      marks_.clear();
    } catch (const std::exception&) {
      // The threads that wait for a failed device get its error.
    }
  }

  [[nodiscard]] c10::Device device() const { return device_; }

  // Memory for the results of the exchange.
  static at::Tensor host_memory(at::IntArrayRef sizes, const at::Tensor& like) {
    return at::empty(sizes, at::TensorOptions().dtype(like.scalar_type()).pinned_memory(true));
  }

  // Copies contiguous values to `memory`. The copy is complete when the device passes a later mark.
  void to_host(const at::Tensor& values, const at::Tensor& memory) {
    follow_caller();
    const c10::StreamGuard guard(beside_);
    memory.copy_(values, /*non_blocking=*/true);
    sends_ = true;
  }

  // All later copies wait for the work that the caller's stream has queued so far.
  void follow_caller() {
    c10::Event queued(device_.type());
    queued.record(streams_.getStream(device_));
    queued.block(beside_);
  }

  // Marks the end of the copies that the next call needs, if there are any.
  void mark() {
    marks_.emplace_back();
    if (sends_) {
      marks_.back().emplace(device_.type()).record(beside_);
    }
  }

  // Returns an error when it is too late to wait for a device.
  using Late = std::function<smdp_error()>;

  // Waits until the device has passed a call's mark, or `late` returns an error. Polls, because a wait for an
  // event cannot be interrupted.
  smdp_error await(std::size_t call, const Late& late) const {
    const auto& mark = marks_[call];
    const c10::DeviceGuard guard(
        device_);  // otherwise the first query of a thread creates a context on device 0
    const auto began = std::chrono::steady_clock::now();
    smdp_error error{};
    while (error.code == SMDP_OK && mark && !mark->query()) {
      if (std::chrono::steady_clock::now() - began < kSoon) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(kSoon);
      }
      error = late();
    }
    return error;
  }

  // From any thread, one at a time. Both tensors may be released when it returns.
  void copy_back(const at::Tensor& from, const at::Tensor& to) {
    const c10::StreamGuard guard(beside_);
    to.copy_(from.view_as(to), /*non_blocking=*/true);
    for (const at::Tensor& used : {from, to}) {
      if (!used.is_cpu()) {  // pinned memory tracks its copies itself
        streams_.recordDataPtrOnStream(used.storage().data_ptr(), beside_);
      }
    }
  }

  // The caller's stream waits for all copies.
  void block_caller() {
    c10::Event copied(device_.type());
    copied.record(beside_);
    copied.block(streams_.getStream(device_));
  }
  [[nodiscard]] c10::Stream beside() const { return beside_; }

 private:
  static constexpr std::chrono::microseconds kSoon{50};

  c10::Device device_;
  c10::impl::VirtualGuardImpl streams_;
  c10::Stream beside_;
  bool sends_ = false;                            // something is copied to the host
  std::vector<std::optional<c10::Event>> marks_;  // by call
};

}  // namespace smdp_torch
