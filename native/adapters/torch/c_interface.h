// The adapter's functions for Python, which calls them through ctypes (smdp_engine/_torch_adapter.py). No
// type of Python crosses the interface, so that one file fits every Python. A backend reaches Python through
// torch itself: it is set on a process group that torch knows by name, whose object in Python then returns
// it.
#pragma once

#include <smdp/engine.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <utility>
#include <vector>

#include "backend.h"

namespace smdp_torch {

// A process group's store; torch has no public function for it before 2.9.
struct GroupStore : c10d::ProcessGroup {
  static const c10::intrusive_ptr<Store>& of(const c10d::ProcessGroup& group) {
    return group.*(&GroupStore::store_);
  }
};

template <class Body>
int guarded(smdp_error* error, Body body) noexcept {
  const auto failure = [error](smdp_code code, const char* why) {
    *error = failed(code, why);
    return static_cast<int>(code);
  };
  try {
    body();
    return SMDP_OK;
  } catch (const c10::ValueError& caught) {
    return failure(SMDP_INVALID, caught.what_without_backtrace());
  } catch (const c10::DistError& caught) {
    return failure(SMDP_SYSTEM, caught.what_without_backtrace());
  } catch (const c10::Error& caught) {
    return failure(SMDP_INTERNAL, caught.what_without_backtrace());
  } catch (const std::exception& caught) {
    return failure(SMDP_INTERNAL, caught.what());
  }
}

inline c10::intrusive_ptr<EngineBackend> backend_of(const char* group) {
  const auto found = c10d::resolve_process_group(group)->getBackend(c10::kCPU);
  const auto ours = cast_to<EngineBackend>(found);
  TORCH_CHECK(ours, "smddp: the process group's backend is '", found->getBackendName(), "', not smddp");
  return ours;
}

}  // namespace smdp_torch

extern "C" {

SMDP_API const char* smdp_torch_built_for() { return SMDP_TORCH_BUILT_FOR; }

// Creates the backend of the ranks of `group`, a process group in torch's registry, and sets it there for the
// CPU. Codes: SMDP_INVALID is an error of the caller, SMDP_SYSTEM of the job, SMDP_INTERNAL any other.
SMDP_API int smdp_torch_create(const char* group, const int* global_ranks, size_t count, const char* name,
                               int64_t timeout_ms, int opens_engine, smdp_error* error) {
  return smdp_torch::guarded(error, [&] {
    const auto found = c10d::resolve_process_group(group);
    found->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM,
                      smdp_torch::create(smdp_torch::GroupStore::of(*found), found->getRank(),
                                         found->getSize(), {global_ranks, global_ranks + count}, name,
                                         std::chrono::milliseconds(timeout_ms), opens_engine != 0));
  });
}

// By rank of the group, the number of its host, in `hosts`, which has room for all of them; `reducer` gets
// SMDP_LOCAL_REDUCER.
SMDP_API int smdp_torch_hosts(const char* group, int* hosts, char* reducer, size_t capacity,
                              smdp_error* error) {
  return smdp_torch::guarded(error, [&] {
    const auto ours = smdp_torch::backend_of(group);
    const std::vector<int> found = ours->host_of();
    std::copy(found.begin(), found.end(), hosts);
    std::snprintf(reducer, capacity, "%s", ours->local_reducer().c_str());
  });
}

// From here on an all_reduce of `group` sums within the host first, in the process groups `scatter` and
// `gather` of torch's registry; null where this rank is alone on its host. `device`: the kind of device for
// which these have a backend, null: for any.
SMDP_API int smdp_torch_reduce_within_host(const char* group, const char* reducer, const char* scatter,
                                           const char* gather, const char* device, smdp_error* error) {
  return smdp_torch::guarded(error, [&] {
    std::optional<c10::DeviceType> type;
    if (device != nullptr) {
      type = c10::Device(device).type();
    }
    const auto backend = [type](const char* name) {
      return name == nullptr ? c10::intrusive_ptr<c10d::Backend>()
                             : c10d::resolve_process_group(name)->getBackend(type.value_or(c10::kCPU));
    };
    smdp_torch::backend_of(group)->reduce_within_host(reducer, backend(scatter), backend(gather), type);
  });
}

// The next allreduce of this thread averages a named buffer; a null lane takes that back.
SMDP_API void smdp_torch_name_next(const char* lane, uint32_t step, uint32_t index, uint32_t buffers) {
  smdp_torch::next_buffer.reset();
  if (lane != nullptr) {
    smdp_torch::next_buffer = {lane, step, index, buffers};
  }
}

SMDP_API int smdp_torch_dump(const char* folder, char* path, size_t capacity, smdp_error* error) {
  return smdp_torch::guarded(error, [&] {
    const std::string written = smdp_torch::dump_session(folder);
    TORCH_CHECK(written.size() < capacity, "smddp: the path is too long: ", written);
    std::memcpy(path, written.c_str(), written.size() + 1);
  });
}

SMDP_API void smdp_torch_retire() { smdp_torch::retire(); }
SMDP_API void smdp_torch_abandon() { smdp_torch::abandon_sessions(); }
SMDP_API void smdp_torch_depart() { smdp_torch::depart_sessions(); }

}  // extern "C"
