// The engine of this process, as torch's process groups share it.
#pragma once

#include <smdp/engine.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <numeric>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "translate.h"

namespace smdp_torch {

using c10d::Store;

inline int store_set(void* context, const char* key, const char* value, size_t bytes) {
  try {
    const auto* begin = reinterpret_cast<const uint8_t*>(value);
    static_cast<Store*>(context)->set(key, std::vector<uint8_t>(begin, begin + bytes));
    return 0;
  } catch (const std::exception&) {
    return 1;
  }
}

inline int store_get(void* context, const char* key, char* value, size_t capacity, size_t* bytes,
                     double timeout_s) {
  try {
    auto* store = static_cast<Store*>(context);
    store->wait({key}, std::chrono::milliseconds(static_cast<int64_t>(timeout_s * 1000) + 1));
    const std::vector<uint8_t> found = store->get(key);
    *bytes = found.size();
    std::copy_n(found.begin(), std::min(found.size(), capacity), value);
    return 0;
  } catch (const std::exception&) {
    return 1;
  }
}

// The engine, alive while a group uses it.
struct Session {
  smdp_engine* engine = nullptr;
  std::vector<int> ranks;  // in the order of the engine's ranks, as torch's global ranks

  Session(Store& store, int rank, int size, std::vector<int> global_ranks) : ranks(std::move(global_ranks)) {
    smdp_store adapter{&store, store_set, store_get};
    smdp_engine_config config{};
    config.size = sizeof(config);
    config.rank = rank;
    config.world_size = size;
    config.master = std::getenv("MASTER_ADDR");
    config.store = &adapter;
    smdp_error error{};
    if (smdp_engine_open(&config, &engine, &error) != SMDP_OK) {
      raise(error);
    }
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() { smdp_engine_close(engine); }  // completes what is pending
};

inline std::mutex session_mutex;
inline std::weak_ptr<Session> current_session;

// The engine that covers these global ranks; empty ranks mean "all", that is the default group, which opens
// it.
inline std::shared_ptr<Session> find_session(const c10::intrusive_ptr<Store>& store, int rank, int size,
                                             std::vector<int> global_ranks) {
  const std::lock_guard lock(session_mutex);
  if (global_ranks.empty()) {
    global_ranks.resize(static_cast<size_t>(size));
    std::iota(global_ranks.begin(), global_ranks.end(), 0);
  }
  std::shared_ptr<Session> session = current_session.lock();
  if (session) {
    const bool covered = std::all_of(global_ranks.begin(), global_ranks.end(), [&](int wanted) {
      return std::find(session->ranks.begin(), session->ranks.end(), wanted) != session->ranks.end();
    });
    if (covered) {
      return session;
    }
  }
  session = std::make_shared<Session>(*store, rank, size, std::move(global_ranks));
  current_session = session;
  return session;
}

}  // namespace smdp_torch
