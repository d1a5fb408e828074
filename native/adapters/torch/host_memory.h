// Memory of the host that a device copies to and from: the part of the engine's shared memory that is
// registered with the device, which the other ranks of the host read in place. Where there is none, or none
// is free, torch's pinned memory serves, whose values the engine copies once more.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <smdp/engine.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iterator>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "device_runtime.h"

namespace smdp_torch {

// Of one engine. Every function may be called from any thread.
class RegisteredMemory {
 public:
  explicit RegisteredMemory(smdp_engine* engine, int rank) : engine_(engine), rank_(rank) {}
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;

  // The first call registers the memory. Null: it is not registered with this kind of device, or not free.
  std::byte* take(c10::Device device, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (!type_) {
      type_ = device.type();
      device_ = device;
      open(device);
    }
    if (closed_ || memory_ == nullptr || *type_ != device.type()) {
      return nullptr;
    }
    const std::uint64_t need = (std::max<std::uint64_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
    collect(device);
    for (auto [offset, length] : free_) {
      if (length >= need) {
        free_.erase(offset);
        if (length > need) {
          free_.emplace(offset + need, length - need);
        }
        used_.emplace(offset, need);
        return memory_ + offset;
      }
    }
    return nullptr;
  }

  // The memory is free again when the device has passed what `stream` has queued.
  void release(const std::byte* memory, const c10::Stream& stream) {
    const std::lock_guard lock(mutex_);
    if (memory_ == nullptr) {
      return;  // closed, after the longest wait
    }
    try {
      const c10::DeviceGuard guard(stream.device());
      Leaving leaving{static_cast<std::uint64_t>(memory - memory_), c10::Event(stream.device_type())};
      leaving.passed.record(stream);
      leaving_.push_back(std::move(leaving));
    } catch (const std::exception&) {
      lost_ = true;  // the device failed: it is unknown when the memory is free
    }
  }
  // The memory is never free again: other ranks, or the device, may still use it.
  void abandon() {
    const std::lock_guard lock(mutex_);
    lost_ = true;
  }

  // Before the engine is closed, without Python's lock, which other threads may need to release their memory.
  // Neither a call nor the device uses the memory any longer, or it stays registered and mapped.
  void close() {
    const auto ends = std::chrono::steady_clock::now() + kLongestClose;
    std::unique_lock lock(mutex_);
    closed_ = true;
    while (memory_ != nullptr && !used_.empty() && !lost_ && std::chrono::steady_clock::now() < ends) {
      collect(device_);
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      lock.lock();
    }
    if (memory_ == nullptr) {
      return;
    }
    bool is_registered = !used_.empty() || lost_;
    if (!is_registered) {
      const std::string refusal = unregister();
      is_registered = !refusal.empty();
      if (is_registered) {
        say("shared memory stays registered with the device: " + refusal);
      }
    }
    if (is_registered) {
      smdp_engine_keep_memory(engine_);
    }
    memory_ = nullptr;
  }

 private:
  static constexpr std::uint64_t kAlignment = 512;
  static constexpr std::chrono::seconds kLongestClose{10};

  struct Leaving {
    std::uint64_t offset;
    c10::Event passed;
  };

  void say(const std::string& what) const {
    std::fprintf(stderr, "smdp: rank %d: %s\n", rank_, what.c_str());
  }

  void open(c10::Device device) {
    void* memory = nullptr;
    std::uint64_t bytes = 0;
    smdp_error error{};
    std::string refusal;
    if (smdp_engine_registered_memory(engine_, &memory, &bytes, &error) != SMDP_OK) {
      refusal = error.message;
    } else if (bytes == 0) {
      return;  // the option says so
    } else {
      const c10::DeviceGuard guard(device);
      refusal = DeviceRuntime(device.type()).register_memory(memory, bytes);
    }
    if (!refusal.empty()) {
      say("the engine's shared memory is not registered with the device (" + refusal +
          "): values are copied through pinned memory, and once more from there");
      return;
    }
    memory_ = static_cast<std::byte*>(memory);
    free_.emplace(0, bytes);
  }

  std::string unregister() {
    try {
      const c10::DeviceGuard guard(device_);
      return DeviceRuntime(device_.type()).unregister_memory(memory_);
    } catch (const std::exception& failed) {
      return failed.what();
    }
  }

  void collect(c10::Device device) {
    try {
      const c10::DeviceGuard guard(device);
      const QueriesDuringCapture allowed(device.type());
      while (!leaving_.empty() && leaving_.front().passed.query()) {
        put_back(leaving_.front().offset);
        leaving_.pop_front();
      }
    } catch (const std::exception&) {
      lost_ = true;
      leaving_.clear();
    }
  }

  void put_back(std::uint64_t offset) {
    auto region = used_.extract(offset);
    auto next = free_.lower_bound(offset);
    if (next != free_.end() && offset + region.mapped() == next->first) {
      region.mapped() += next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin()) {
      if (const auto before = std::prev(next); before->first + before->second == offset) {
        before->second += region.mapped();
        return;
      }
    }
    free_.insert(std::move(region));
  }

  smdp_engine* engine_;
  int rank_;
  std::mutex mutex_;
  // All guarded by mutex_.
  std::optional<c10::DeviceType> type_;          // set by the first take()
  c10::Device device_{c10::DeviceType::CPU};     // of the first take()
  std::byte* memory_ = nullptr;                  // null: not registered
  std::map<std::uint64_t, std::uint64_t> free_;  // offset to length
  std::map<std::uint64_t, std::uint64_t> used_;
  std::list<Leaving> leaving_;  // in the order of their release
  bool lost_ = false;           // some memory is never free again
  bool closed_ = false;
};

inline std::mutex current_memory_mutex;
inline std::weak_ptr<RegisteredMemory> current_memory;  // of the newest engine

inline std::shared_ptr<RegisteredMemory> registered_memory() {
  const std::lock_guard lock(current_memory_mutex);
  return current_memory.lock();
}

}  // namespace smdp_torch
