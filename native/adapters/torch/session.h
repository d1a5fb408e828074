// The engine of this process, as torch's process groups share it.
#pragma once

#include <smdp/engine.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "../common/completer.h"
#include "../common/server_connection.h"
#include "host_memory.h"
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

// The server of torch's own rendezvous, which lives in a process as long as any object of torch uses it.
struct StoreServer {
  std::string host;
  uint16_t port = 0;

  // Nothing for other stores, and for torchrun's, which outlives the process.
  static std::optional<StoreServer> of(const c10::intrusive_ptr<Store>& store) {
    c10::intrusive_ptr<Store> innermost = store;
    while (const auto prefixed = cast_to<c10d::PrefixStore>(innermost)) {  // one to three, by torch's version
      innermost = prefixed->getUnderlyingStore();
    }
    const auto served = cast_to<c10d::TCPStore>(innermost);
    const char* agent = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
    if (!served || (agent != nullptr && std::string(agent) == "True")) {
      return std::nullopt;
    }
    return StoreServer{served->getHost(), served->getPort()};
  }

  // Does not keep the server alive. Not a client of torch, which prints a stack trace when the server ends.
  [[nodiscard]] auto connect() const {
    return std::make_shared<smdp_adapters::ServerConnection>(host, port, std::chrono::seconds(1));
  }
};

constexpr auto kStoreRelease = std::chrono::milliseconds(500);  // longest wait for torch to release its store

// The engine, alive while a group uses it.
//
// With torch's own rendezvous, the process of rank 0 serves the store until the last reference to it is
// released, which is after the backend shuts down. Another init_process_group() may follow at once, on the
// same port: a quick rank would reach the old store, and be cut off when it ends. So rank 0 delays its
// goodbye, for which the other ranks wait, until its store is gone.
struct Session {
  smdp_engine* engine = nullptr;
  std::vector<int> ranks;  // in the order of the engine's ranks, as torch's global ranks

  std::optional<StoreServer> served;  // on rank 0
  std::shared_ptr<RegisteredMemory> memory;

  Session(const c10::intrusive_ptr<Store>& store, int rank, int size, std::vector<int> global_ranks,
          std::chrono::milliseconds timeout)
      : ranks(std::move(global_ranks)) {
    smdp_store adapter{store.get(), store_set, store_get};
    smdp_engine_config config{};
    config.size = sizeof(config);
    config.rank = rank;
    config.world_size = size;
    config.master = std::getenv("MASTER_ADDR");
    config.store = &adapter;
    config.rendezvous_timeout_s = seconds_of(timeout);
    smdp_error error{};
    if (smdp_engine_open(&config, &engine, &error) != SMDP_OK) {
      raise(error);
    }
    if (rank == 0) {
      served = StoreServer::of(store);
    }
    memory = std::make_shared<RegisteredMemory>(engine, rank);
    const std::lock_guard lock(current_memory_mutex);
    current_memory = memory;
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() {
    memory->close();
    if (!served) {
      smdp_engine_close(engine);
      return;
    }
    smdp_engine_await_others(engine);
    smdp_adapters::Completer::of_process().post([engine = engine, server = served->connect()] {
      smdp_adapters::Completer::of_process().await([&server] { return !server->is_open(); }, kStoreRelease);
      smdp_engine_close(engine);
    });
  }
};

inline std::mutex session_mutex;
// Guarded by session_mutex.
inline std::weak_ptr<Session> current_session;             // the newest
inline std::vector<std::weak_ptr<Session>> every_session;  // also of groups that were destroyed

// Whether this process has created a backend of this group before: torch before 2.1 creates one for each kind
// of device, over the group's store with the name of the device as prefix of the keys.
inline bool is_repeated([[maybe_unused]] const c10::intrusive_ptr<Store>& store, [[maybe_unused]] int rank) {
#if SMDP_TORCH_FROM(2, 1)
  return false;
#else
  const auto of_device = cast_to<c10d::PrefixStore>(store);
  if (!of_device) {
    return false;
  }
  const auto of_group = of_device->getUnderlyingStore();
  const std::string key = "smdp/made/" + std::to_string(rank);
  const bool again = of_group->check({key});
  of_group->set(key, std::vector<uint8_t>{1});
  return again;
#endif
}

// The engine that covers these global ranks; empty ranks mean "all".
//
// `opens_engine`: the group opens a new one, on all its ranks. So do the default group, and the groups of a
// job whose default group has another backend. An engine of another group must not decide: some ranks may
// have it and others not. Either the group had other members, or it was destroyed, and some object still
// holds it on this rank only (torch before 2.8 does not notify a backend of that).
inline std::shared_ptr<Session> find_session(const c10::intrusive_ptr<Store>& store, int rank, int size,
                                             std::vector<int> global_ranks, bool opens_engine,
                                             std::chrono::milliseconds timeout) {
  const std::lock_guard lock(session_mutex);
  const bool may_share = !opens_engine || is_repeated(store, rank);
  if (global_ranks.empty()) {
    global_ranks.resize(static_cast<size_t>(size));
    std::iota(global_ranks.begin(), global_ranks.end(), 0);
  }
  std::shared_ptr<Session> session = current_session.lock();
  if (session && may_share) {
    const bool covered = std::all_of(global_ranks.begin(), global_ranks.end(), [&](int wanted) {
      return std::find(session->ranks.begin(), session->ranks.end(), wanted) != session->ranks.end();
    });
    if (covered) {
      return session;
    }
  }
  session = std::make_shared<Session>(store, rank, size, std::move(global_ranks), timeout);
  current_session = session;
  every_session.erase(std::remove_if(every_session.begin(), every_session.end(),
                                     [](const auto& one) { return one.expired(); }),
                      every_session.end());
  every_session.push_back(session);
  return session;
}

// The path of the file with this rank's flight records; "": in SMDP_TRACE_DIR.
inline std::string dump_session(const std::string& folder) {
  std::shared_ptr<Session> session;
  {
    const std::lock_guard lock(session_mutex);
    session = current_session.lock();
  }
  TORCH_CHECK(session, "smddp: no process group uses this backend here, so there are no flight records");
  std::array<char, 4096> path{};
  smdp_error error{};
  if (smdp_engine_dump(session->engine, folder.empty() ? nullptr : folder.c_str(), path.data(), path.size(),
                       &error) != SMDP_OK) {
    raise(error);
  }
  return path.data();
}

// Empty while an engine is just being opened.
inline std::vector<std::shared_ptr<Session>> live_sessions() {
  const std::unique_lock lock(session_mutex, std::try_to_lock);
  std::vector<std::shared_ptr<Session>> live;
  for (std::size_t i = 0; lock && i < every_session.size(); ++i) {
    if (auto session = every_session[i].lock()) {
      live.push_back(std::move(session));
    }
  }
  return live;
}

// For a script that ends by an exception: the other ranks see a loss and no goodbye.
inline void abandon_sessions() {
  for (const auto& session : live_sessions()) {
    smdp_engine_abandon(session->engine);
  }
}

// For a script that ends: the other ranks see that, and no group that is destroyed. Waits for them.
inline void depart_sessions() {
  const auto sessions = live_sessions();
  for (const auto& session : sessions) {
    smdp_engine_depart(session->engine);
  }
  for (const auto& session : sessions) {
    smdp_engine_await_others(session->engine);
  }
}

}  // namespace smdp_torch
