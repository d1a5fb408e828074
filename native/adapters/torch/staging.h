// Tensors on a device: their values are exchanged through memory of the host. They are copied there before a
// call and back after it, on streams beside the one that computes: one for each direction, since a device
// copies both ways at once.
//
// Uses torch's device-generic streams and events: one build serves every kind of device, and a machine
// without one. It must not use a device that does not exist: torch built for CUDA ends the process then.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "device_runtime.h"
#include "host_memory.h"
#include "translate.h"

namespace smdp_torch {

// Values are copied to and from a device in pieces, so that one piece is copied while another is exchanged.
// All ranks use the same pieces. 4 MiB: large enough for the wire and for the bus, small beside a bucket
// of 25.
constexpr int64_t kPieceBytes = 4 << 20;

// Copies to the host that are queued ahead of the call that is next, so that the bus is not idle. No more:
// the script's own copies and the copies back would wait behind a whole bucket.
constexpr std::size_t kBytesAhead = 8U << 20U;

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

// Throws if the stream's device has failed.
inline void check_device(const c10::Stream& stream) {
  const c10::DeviceGuard guard(stream.device());
  c10::Event probe(stream.device_type());
  probe.record(stream);
}

// The streams, the events and the memory for the copies of one work. Created and filled on the caller's
// thread; its calls wait on one thread.
class Staging {
 public:
  explicit Staging(c10::Device device)
      : device_(device),
        streams_(device.type()),
        leaving_(streams_.getStreamFromGlobalPool(device, true)),
        returning_(streams_.getStreamFromGlobalPool(device, true)) {
    TORCH_CHECK(
        !DeviceRuntime(device.type()).is_capturing(streams_.getStream(device)),
        "smddp: a graph cannot record this call, because the exchange runs on the host: make the call "
        "outside of the captured region");
  }

  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging() {
    try {
      const c10::DeviceGuard guard(device_);  // for the same reason as in await()
      calls_.clear();
    } catch (const std::exception&) {
      // The threads that wait for a failed device get its error.
    }
  }

  [[nodiscard]] c10::Device device() const { return device_; }

  // Memory of the host for values that are sent or arrive.
  [[nodiscard]] at::Tensor host_memory(at::IntArrayRef sizes, const at::Tensor& like) const {
    const auto options = at::TensorOptions().dtype(like.scalar_type());
    const int64_t elements = c10::multiply_integers(sizes);
    const auto shared = registered_memory();
    std::byte* memory = shared == nullptr || elements == 0
                            ? nullptr
                            : shared->take(device_, static_cast<std::size_t>(elements) * like.element_size());
    if (memory == nullptr) {
      return at::empty(sizes, options.pinned_memory(true));
    }
    return at::from_blob(
        memory, sizes,
        [shared, memory, stream = returning_, failed = failed_](void*) {
          *failed ? shared->abandon() : shared->release(memory, stream);
        },
        options);
  }

  // The values of the next call that are copied to `memory` before it: contiguous, and unchanged until then.
  void to_host(const at::Tensor& values, const at::Tensor& memory) { next_.emplace_back(values, memory); }

  // All copies wait for the work that the caller's stream has queued so far.
  void follow_caller() {
    const c10::DeviceGuard guard(
        device_);  // an event restores the thread's device, and creates a context on it
    c10::Event queued(device_.type());
    queued.record(streams_.getStream(device_));
    queued.block(leaving_);
    queued.block(returning_);
  }

  // The next call begins when the values are copied that it needs.
  void add_call() { calls_.push_back({std::exchange(next_, {}), 0, std::nullopt}); }

  // Returns an error when it is too late to wait for a device.
  using Late = std::function<smdp_error()>;

  // Waits until the values of a call are copied, or `late` returns an error. Polls, because a wait for an
  // event cannot be interrupted.
  smdp_error await(std::size_t call, const Late& late) {
    const c10::DeviceGuard guard(
        device_);  // otherwise the first query of a thread creates a context on device 0
    const QueriesDuringCapture allowed(device_.type());
    queue_copies(call);
    const auto& copied = calls_[call].copied;
    const auto began = std::chrono::steady_clock::now();
    smdp_error error{};
    while (error.code == SMDP_OK && copied && !copied->query()) {
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
    const c10::StreamGuard guard(returning_);
    to.copy_(from.view_as(to), /*non_blocking=*/true);
    for (const at::Tensor& used : {from, to}) {
      note_use(used);
    }
  }
  // Divides what came back as one tensor.
  void unpack(const at::Tensor& packed, const Tensors& tensors) {
    const c10::StreamGuard guard(returning_);
    Tensors parts;
    int64_t begin = 0;
    for (const at::Tensor& tensor : tensors) {
      parts.push_back(packed.narrow(0, begin, tensor.numel()).view_as(tensor));
      begin += tensor.numel();
    }
    copy_all(parts, tensors);
    for (const at::Tensor& tensor : tensors) {
      note_use(tensor);  // copy_back() has noted the use of `packed`
    }
  }

  // The caller's stream waits for all copies back.
  void block_caller() {
    const c10::DeviceGuard guard(device_);  // as in follow_caller()
    c10::Event copied(device_.type());
    copied.record(returning_);
    copied.block(streams_.getStream(device_));
  }
  [[nodiscard]] c10::Stream returning() const { return returning_; }

  // A call failed: other ranks may still read the memory of this one, and the device may still write to it.
  void fail() { *failed_ = true; }

 private:
  static constexpr std::chrono::microseconds kSoon{50};
  using Copy = std::pair<at::Tensor, at::Tensor>;  // from where, to where
  struct Call {
    std::vector<Copy> copies;  // not queued yet
    std::size_t bytes = 0;     // queued
    std::optional<c10::Event> copied;
  };

  // By one kernel where torch has it.
  static void copy_all(const Tensors& from, const Tensors& to) {
#if SMDP_TORCH_FROM(2, 2)
    at::_foreach_copy_(to, from, /*non_blocking=*/true);
#else
    for (std::size_t i = 0; i < to.size(); ++i) {
      to[i].copy_(from[i], /*non_blocking=*/true);
    }
#endif
  }

  void note_use(const at::Tensor& used) {
    if (!used.is_cpu()) {  // memory of the host tracks its copies itself
      streams_.recordDataPtrOnStream(used.storage().data_ptr(), returning_);
    }
  }

  // Queues the copies of this call, and of the next ones as far as kBytesAhead allows.
  void queue_copies(std::size_t call) {
    const c10::InferenceMode no_grad;  // which inference tensors need, and others allow
    const c10::StreamGuard guard(leaving_);
    std::size_t ahead = 0;
    for (std::size_t i = call + 1; i < queued_; ++i) {
      ahead += calls_[i].bytes;
    }
    for (; queued_ < calls_.size() && (queued_ <= call || ahead < kBytesAhead); ++queued_) {
      Call& next = calls_[queued_];
      for (const auto& [values, memory] : std::exchange(next.copies, {})) {
        memory.copy_(values, /*non_blocking=*/true);
        next.bytes += values.nbytes();
      }
      if (next.bytes > 0) {
        next.copied.emplace(device_.type()).record(leaving_);
      }
      ahead += queued_ > call ? next.bytes : 0;
    }
  }

  c10::Device device_;
  c10::impl::VirtualGuardImpl streams_;
  c10::Stream leaving_;
  c10::Stream returning_;
  std::vector<Copy> next_;  // of the next call
  std::vector<Call> calls_;
  std::size_t queued_ = 0;  // calls whose copies are queued
  std::shared_ptr<std::atomic<bool>> failed_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace smdp_torch
