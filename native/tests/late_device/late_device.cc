// A device without hardware, for tests: it executes its work late, on separate threads.
//
// Its memory is host memory, its streams are queues. Each queue works in order and after a delay, so code
// that reads a tensor without the right wait reads old values. Released memory is overwritten as soon as its
// stream, and the streams that it was recorded on, have passed: code that releases it too early reads invalid
// values. The queues can be paused, to see which code waits for them.
//
// Memory of the host can be registered with it as with CUDA, by functions with CUDA's names and the prefix
// "late" (at the end). LATE_DEVICE_BLOCKING=1 makes every operation complete before it returns, as
// CUDA_LAUNCH_BLOCKING does.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <pybind11/pybind11.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace {

constexpr auto kLate = c10::DeviceType::PrivateUse1;
constexpr std::chrono::milliseconds kDelay{3};
const c10::Device kDevice(kLate, 0);

// --- Queues ---

class Queue {
 public:
  void add(std::function<void()> job) {
    static const char* const blocking = std::getenv("LATE_DEVICE_BLOCKING");
    static const bool is_blocking = blocking != nullptr && *blocking == '1';
    std::unique_lock lock(mutex_);
    jobs_.push_back({std::chrono::steady_clock::now() + delay_, std::move(job)});
    ++added_;
    if (!started_) {
      started_ = true;
      std::thread([this] { run(); }).detach();  // like a device's, it outlives its process's main()
    }
    changed_.notify_all();
    if (is_blocking) {
      changed_.wait(lock, [this, mine = added_] { return done_ >= mine; });
    }
  }
  void synchronize() {
    std::unique_lock lock(mutex_);
    const auto all = added_;
    changed_.wait(lock, [&] { return done_ >= all; });
  }
  bool idle() {
    const std::lock_guard lock(mutex_);
    return done_ == added_;
  }
  void delay(std::chrono::milliseconds each) {
    const std::lock_guard lock(mutex_);
    delay_ = each;
  }
  void hold(bool held) {
    const std::lock_guard lock(mutex_);
    held_ = held;
    changed_.notify_all();
  }

 private:
  struct Job {
    std::chrono::steady_clock::time_point due;
    std::function<void()> work;
  };

  [[noreturn]] void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return !held_ && !jobs_.empty(); });
      Job job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      std::this_thread::sleep_until(job.due);
      job.work();
      job.work = nullptr;
      lock.lock();
      ++done_;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::chrono::milliseconds delay_ = kDelay;
  bool started_ = false;
  uint64_t added_ = 0;
  uint64_t done_ = 0;
  bool held_ = false;
};

constexpr size_t kPool = 8;
constexpr size_t kQueues = kPool + 2;  // the first is the default stream, the last a stream of the script
std::array<Queue, kQueues>& queues = *new std::array<Queue, kQueues>;
std::atomic<c10::StreamId> destroyed = -1;
Queue& queue_of(const c10::Stream& stream) {
  TORCH_CHECK(stream.id() != destroyed, "the stream was destroyed");
  return queues.at(static_cast<size_t>(stream.id()));
}

std::atomic<c10::StreamId> next_of_pool = 0;
c10::StreamId pooled(c10::StreamId number) { return 1 + number % static_cast<c10::StreamId>(kPool); }

thread_local c10::StreamId current_stream = 0;
c10::Stream stream_of(c10::StreamId id) { return c10::Stream(c10::Stream::UNSAFE, kDevice, id); }
Queue& current_queue() { return queue_of(stream_of(current_stream)); }

std::atomic<bool> failing = false;
std::atomic<bool> failing_copies = false;
std::atomic<bool> failing_records = false;
std::atomic<bool> recording = false;
thread_local int capture_mode = 0;  // as CUDA's: 0 global, 1 of this thread
std::atomic<bool> capturing = false;
std::atomic<int> allocations_left = -1;  // below 0: no limit
std::atomic<uint64_t> copies_to_host = 0;
std::atomic<uint64_t> copies_to_device = 0;

struct Mark {
  std::mutex mutex;
  std::condition_variable changed;
  bool passed = false;

  void pass() {
    const std::lock_guard lock(mutex);
    passed = true;
    changed.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return passed; });
  }
  bool has_passed() {
    const std::lock_guard lock(mutex);
    return passed;
  }
};

std::shared_ptr<Mark> mark(Queue& queue) {
  auto made = std::make_shared<Mark>();
  queue.add([made] { made->pass(); });
  return made;
}

// --- Memory ---

std::mutex memory_mutex;
std::map<void*, std::set<c10::StreamId>>& users = *new std::map<void*, std::set<c10::StreamId>>;

struct Block {
  void* memory;
  size_t bytes;
  c10::StreamId made_on;
};

// Released memory that is not given out again, to see who writes to it. Guarded by memory_mutex.
std::atomic<bool> keeping_released = false;
std::vector<std::pair<unsigned char*, size_t>>& kept_released =
    *new std::vector<std::pair<unsigned char*, size_t>>;

struct Released {
  unsigned char* memory;
  size_t bytes;
  std::vector<std::shared_ptr<Mark>> marks;  // of the streams that use it
};

// Overwrites the memory when its streams have passed, whether other memory still waits or not.
void collect(Released released) {
  static Queue& dustmen = *new Queue;  // no stream waits for them
  dustmen.add([released = std::move(released)] {
    const auto& marks = released.marks;
    if (!std::all_of(marks.begin(), marks.end(), [](const auto& one) { return one->has_passed(); })) {
      collect(released);
      return;
    }
    std::memset(released.memory, 0xCD, released.bytes);
    if (!keeping_released) {
      std::free(released.memory);
      return;
    }
    const std::lock_guard lock(memory_mutex);
    kept_released.emplace_back(released.memory, released.bytes);
  });
}

void let_go(void* context) {
  const std::unique_ptr<Block> block(static_cast<Block*>(context));
  std::vector<std::shared_ptr<Mark>> marks;
  {
    const std::lock_guard lock(memory_mutex);
    for (const c10::StreamId user : users[block->memory]) {
      marks.push_back(mark(queue_of(stream_of(user))));
    }
    users.erase(block->memory);
    marks.push_back(mark(queue_of(stream_of(block->made_on))));
  }
  collect({static_cast<unsigned char*>(block->memory), block->bytes, std::move(marks)});
}

struct DeviceMemory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    TORCH_CHECK_WITH(OutOfMemoryError, allocations_left < 0 || allocations_left-- > 0,
                     "the device is out of memory");
    void* memory = std::malloc(bytes + 1);
    std::memset(memory, 0xCD, bytes);
    return {memory, new Block{memory, bytes, current_stream}, &let_go, kDevice};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};
DeviceMemory device_memory;

struct PinnedMemory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* memory = std::malloc(bytes + 1);
    const std::lock_guard lock(memory_mutex);
    pinned.insert(memory);
    return {memory, memory, &free_pinned, c10::Device(c10::kCPU)};
  }
  static void free_pinned(void* memory) {
    const std::lock_guard lock(memory_mutex);
    pinned.erase(memory);
    std::free(memory);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }

  static std::set<const void*>& pinned;
};
std::set<const void*>& PinnedMemory::pinned = *new std::set<const void*>;
PinnedMemory pinned_memory;

// Memory that others own and the device copies to and from directly: it does not know who uses it.
std::map<const void*, size_t>& registered = *new std::map<const void*, size_t>;  // guarded by memory_mutex
std::atomic<bool> refusing = false;

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex /*device*/) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex /*device*/) const override {}
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex /*device*/) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex /*device*/) const override { return 0; }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_memory; }
  bool isPinnedPtr(const void* data) const override {
    const std::lock_guard lock(memory_mutex);
    return is_pinned(data);
  }
  // With memory_mutex held.
  static bool is_registered(const void* data) {
    const auto after = registered.upper_bound(data);
    return after != registered.begin() &&
           static_cast<const char*>(data) <
               static_cast<const char*>(std::prev(after)->first) + std::prev(after)->second;
  }
  static bool is_pinned(const void* data) {
    return is_registered(data) || PinnedMemory::pinned.count(data) > 0;
  }
};

// --- Streams and events ---

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kLate; }
  c10::Device exchangeDevice(c10::Device /*device*/) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device /*device*/) const override {}
  void uncheckedSetDevice(c10::Device /*device*/) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  c10::Stream getStream(c10::Device /*device*/) const override { return stream_of(current_stream); }
  c10::Stream getDefaultStream(c10::Device /*device*/) const override { return stream_of(0); }
  c10::Stream getStreamFromGlobalPool(c10::Device /*device*/, bool /*high*/) const override {
    return stream_of(pooled(next_of_pool++));
  }
  c10::Stream getNewStream(c10::Device device, int /*priority*/) const override {
    return getStreamFromGlobalPool(device, false);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return stream_of(std::exchange(current_stream, stream.id()));
  }
  bool isStreamCapturing(const c10::Stream& /*stream*/) const override { return capturing; }
  bool queryStream(const c10::Stream& stream) const override { return queue_of(stream).idle(); }
  void synchronizeStream(const c10::Stream& stream) const override { queue_of(stream).synchronize(); }
  void synchronizeDevice(c10::DeviceIndex /*device*/) const override {
    for (Queue& queue : queues) {
      queue.synchronize();
    }
  }

  using Event = std::shared_ptr<Mark>;
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex /*device*/,
              c10::EventFlag /*flag*/) const override {
    TORCH_CHECK(!failing_records, "the device failed");
    if (*event == nullptr) {
      *event = new Event();
    }
    *static_cast<Event*>(*event) = mark(queue_of(stream));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) {
      queue_of(stream).add([mark = *static_cast<Event*>(event)] { mark->wait(); });
    }
  }
  bool queryEvent(void* event) const override {
    TORCH_CHECK(!failing, "the device failed");
    TORCH_CHECK(!recording || capture_mode != 0, "a query on another thread has ended the recording");
    if (event == nullptr) {
      return true;
    }
    return (*static_cast<Event*>(event))->has_passed();
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) {
      (*static_cast<Event*>(event))->wait();
    }
  }
  void destroyEvent(void* event, c10::DeviceIndex /*device*/) const noexcept override {
    delete static_cast<Event*>(event);
  }
  void recordDataPtrOnStream(const c10::DataPtr& memory, const c10::Stream& stream) const override {
    const std::lock_guard lock(memory_mutex);
    users[memory.get()].insert(stream.id());
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

// --- Operators ---

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout> /*layout*/, std::optional<at::Device> /*device*/,
                 std::optional<bool> /*pin*/, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &device_memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout> /*layout*/, std::optional<at::Device> /*device*/,
                         std::optional<bool> /*pin*/) {
  return at::detail::empty_strided_generic(size, stride, &device_memory,
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(dtype));
}

// The same memory as a queue sees it. Torch's memory of the host knows who uses it. Registered memory does
// not; a device's belongs to who made it, and must be noted on other streams.
at::Tensor as_host(const at::Tensor& tensor) {
  const std::lock_guard lock(memory_mutex);
  const bool knows_its_users = tensor.is_cpu() && !Hooks::is_registered(tensor.data_ptr());
  const at::Tensor kept = knows_its_users ? tensor : at::Tensor();
  return at::from_blob(
      tensor.data_ptr(), tensor.sizes(), tensor.strides(), [kept](void*) {},
      tensor.options().device(c10::kCPU).pinned_memory(false));
}

// Where CUDA returns before the copy is made, so does this.
at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  TORCH_CHECK(!failing_copies, "the device failed in a copy");
  current_queue().add([source = as_host(from), target = as_host(to)] {
    const c10::InferenceMode no_autograd;
    target.copy_(source);
  });
  const bool both_on_device = !from.is_cpu() && !to.is_cpu();
  const auto is_pageable = [](const at::Tensor& host) {
    const std::lock_guard lock(memory_mutex);
    return !Hooks::is_pinned(host.storage().data()) && !Hooks::is_registered(host.data_ptr());
  };
  const bool to_pageable = to.is_cpu() && is_pageable(to);
  copies_to_host += to.is_cpu() && !to_pageable ? 1 : 0;
  copies_to_device += from.is_cpu() && !is_pageable(from) ? 1 : 0;
  if (!both_on_device && (!non_blocking || to_pageable)) {
    current_queue().synchronize();
  }
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() != from.sizes()) {
    to.resize_(from.sizes());
  }
  return copy_from(from, to, false);
}

void foreach_copy(at::TensorList to, at::TensorList from, bool non_blocking) {
  for (size_t i = 0; i < to.size(); ++i) {
    to[i].copy_(from[i], non_blocking);
  }
}

const at::Tensor& resize(const at::Tensor& self, at::IntArrayRef size,
                         std::optional<at::MemoryFormat> /*format*/) {
  const at::Tensor larger = at::empty(size, self.options());
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(larger.storage());
  self.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  return self;
}

void on_the_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, module) {
  module.impl("empty.memory_format", &empty);
  module.impl("empty_strided", &empty_strided);
  module.impl("as_strided", &at::native::as_strided_tensorimpl);
  module.impl("view", &at::native::view);
  module.impl("_reshape_alias", &at::native::_reshape_alias);
  module.impl("resize_", &resize);
  module.impl("_copy_from", &copy_from);
  module.impl("_foreach_copy_", &foreach_copy);
  module.impl("_copy_from_and_resize", &copy_from_and_resize);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, module) {
  module.fallback(torch::CppFunction::makeFromBoxedFunction<&on_the_host>());
}

}  // namespace

// --- The functions that the device's runtime adds to torch's ---

extern "C" {
__attribute__((visibility("default"))) int lateHostRegister(void* memory, size_t bytes, unsigned /*flags*/) {
  if (refusing) {
    return 2;
  }
  const std::lock_guard lock(memory_mutex);
  registered[memory] = bytes;
  return 0;
}
__attribute__((visibility("default"))) int lateHostUnregister(void* memory) {
  const std::lock_guard lock(memory_mutex);
  return registered.erase(memory) == 1 ? 0 : 3;
}
__attribute__((visibility("default"))) int lateThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(*mode, capture_mode);
  return 0;
}
__attribute__((visibility("default"))) const char* lateGetErrorString(int code) {
  return code == 2 ? "too much memory is registered" : "the memory is not registered";
}
}

PYBIND11_MODULE(late_device, module) {
  at::RegisterPrivateUse1HooksInterface(new Hooks());
  // All streams but the default one are paused until they are released.
  module.def("hold", [](bool held) {
    for (size_t i = 1; i < kQueues; ++i) {
      queues[i].hold(held);
    }
  });
  // The stream that the pool gives next.
  module.def("next_stream", [] { return pooled(next_of_pool); });
  // How late each operation of a stream is.
  module.def("delay_stream", [](c10::StreamId id, int milliseconds) {
    queues.at(static_cast<size_t>(id)).delay(std::chrono::milliseconds(milliseconds));
  });
  module.def("hold_stream",
             [](c10::StreamId id, bool held) { queues.at(static_cast<size_t>(id)).hold(held); });
  // A query whether an event has passed reports that the device failed.
  module.def("fail", [](bool fails) { failing = fails; });
  // So does the record of an event.
  module.def("fail_records", [](bool fails) { failing_records = fails; });
  // As if another thread recorded a graph in CUDA's default mode.
  module.def("record_elsewhere", [](bool records) { recording = records; });
  module.def("fail_copies", [](bool fails) { failing_copies = fails; });
  // So many allocations succeed from here on; below 0: all.
  module.def("limit_allocations", [](int left) { allocations_left = left; });
  // From here on released memory is not given out again; false: as before.
  module.def("keep_released", [](bool keeps) { keeping_released = keeps; });
  module.def("count_released", [] {
    const std::lock_guard lock(memory_mutex);
    return kept_released.size();
  });
  // The number of kept pieces, and of those that were written to after their release; frees them.
  module.def("released", [] {
    const std::lock_guard lock(memory_mutex);
    size_t written = 0;
    const size_t pieces = kept_released.size();
    for (const auto& [memory, bytes] : kept_released) {
      written += std::any_of(memory, memory + bytes, [](unsigned char one) { return one != 0xCD; }) ? 1 : 0;
      std::free(memory);
    }
    kept_released.clear();
    return std::pair(pieces, written);
  });
  module.def("capture", [](bool captures) { capturing = captures; });
  module.def("refuse_to_register", [](bool refuses) { refusing = refuses; });
  // Bytes of the memory that is registered.
  module.def("registered", [] {
    const std::lock_guard lock(memory_mutex);
    size_t bytes = 0;
    for (const auto& [memory, length] : registered) {
      bytes += length;
    }
    return bytes;
  });
  // Copies so far to pinned or registered memory, and from it to the device.
  module.def("copies", [] { return std::pair(copies_to_host.load(), copies_to_device.load()); });
  // The current stream of this thread; every later use of a destroyed one is an error.
  module.def("use_stream", [](c10::StreamId id) { current_stream = id; });
  // Without Python's lock: the queue may release tensors that need it.
  module.def(
      "synchronize_stream", [](c10::StreamId id) { queues.at(static_cast<size_t>(id)).synchronize(); },
      pybind11::call_guard<pybind11::gil_scoped_release>());
  module.def("destroy_stream", [](c10::StreamId id) { destroyed = id; });
  module.def("is_available", [] { return true; });
  module.def("device_count", [] { return 1; });
  module.def("current_device", [] { return 0; });
  module.def("set_device", [](const pybind11::object& /*device*/) {});
  module.def("_is_in_bad_fork", [] { return false; });
  module.def("manual_seed_all", [](int64_t /*seed*/) {});
}
