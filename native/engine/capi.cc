// The C interface of the engine. Every function catches exceptions (std::bad_alloc), so that none crosses it.
#include <smdp/engine.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <vector>

#include "base/exit/exit_report.h"
#include "base/out_of_memory.h"
#include "engine.h"
#include "kernels/copy.h"

// A thread may wait for an operation, or begin a call, while another closes the engine: it keeps the engine
// alive for that time. Groups and operations alone do not: those that a script never releases keep no memory
// or descriptor.
struct smdp_engine {
  std::shared_ptr<smdp::Engine> engine;
};

struct smdp_group {
  std::weak_ptr<smdp::Engine> engine;
  std::uint64_t id = 0;
  int size = 0;
  int rank = 0;
};

struct smdp_operation {
  std::weak_ptr<smdp::Engine> engine;
  std::shared_ptr<smdp::OperationHandle> handle;
};

namespace {

using smdp::Code;
using smdp::Result;
using smdp::Status;

void fill(const Status& status, smdp_error* error) {
  if (error != nullptr) {
    error->code = static_cast<int>(status.code());
    const std::size_t length = std::min(status.message().size(), sizeof(error->message) - 1);
    std::memcpy(error->message, status.message().data(), length);
    error->message[length] = '\0';
  }
}

int report(const Status& status, smdp_error* error) {
  fill(status, error);
  return static_cast<int>(status.code());
}

template <class Function>
int guarded(smdp_error* error, Function&& function) {
  smdp::be_ready_to_throw();
  try {
    return report(function(), error);
  } catch (const std::bad_alloc&) {
    return report({Code::kExhausted, "no memory left"}, error);
  } catch (const std::exception& caught) {
    return report({Code::kSystem, caught.what()}, error);
  }
}

// Copies a structure of which the caller may know fewer fields than this build.
template <class T>
T widened(const T* caller) {
  T full{};
  std::memcpy(&full, caller, std::min(caller->size, sizeof(T)));
  return full;
}

class StoreAdapter final : public smdp::KeyValueStore {
 public:
  explicit StoreAdapter(const smdp_store& store) : store_(store) {}
  Status set(const std::string& key, const std::string& value) override {
    return store_.set(store_.context, key.c_str(), value.data(), value.size()) == 0
               ? Status()
               : Status(Code::kSystem, "the store refused to set " + key);
  }
  smdp::Result<std::string> get(const std::string& key, smdp::TimePoint deadline) override {
    std::string value(65536, '\0');
    std::size_t bytes = 0;
    const double left = std::chrono::duration<double>(deadline - smdp::Clock::now()).count();
    if (store_.get(store_.context, key.c_str(), value.data(), value.size(), &bytes, left) != 0) {
      return smdp::Clock::now() >= deadline
                 ? Status(Code::kTimeout, "the store has no " + key)
                 : Status(Code::kPeerLost,
                          "the store does not answer: the process that serves it has ended or closed it");
    }
    if (bytes > value.size()) {
      return Status(Code::kInvalid, "the store's entry " + key + " is too long");
    }
    value.resize(bytes);
    return value;
  }

 private:
  const smdp_store& store_;
};

constexpr const char* kRendezvousTimeout = "SMDP_RENDEZVOUS_TIMEOUT_S";

Result<smdp::Options> options_of(const smdp_engine_config& request) {
  const smdp::Environment environment = smdp::process_environment();
  auto options = smdp::read_options(environment);
  if (!options.ok()) {
    return options.status();
  }
  if (request.rendezvous_timeout_s > 0 && !environment(kRendezvousTimeout)) {
    options->rendezvous_timeout_s = request.rendezvous_timeout_s;
  }
  for (const char* const* entry = request.options; entry != nullptr && entry[0] != nullptr; entry += 2) {
    if (Status status = smdp::set_option(*options, entry[0], entry[1] == nullptr ? "" : entry[1]);
        !status.ok()) {
      return status;
    }
  }
  return options;
}

// An error of opening, with the option that limits how long the ranks wait.
Status with_limit(const Status& why, double limit_s) {
  if (why.code() != Code::kTimeout) {
    return why;
  }
  std::array<char, 120> limit{};
  std::snprintf(limit.data(), limit.size(), "the ranks waited %g s for each other (%s): ", limit_s,
                kRendezvousTimeout);
  return {why.code(), limit.data() + why.message()};
}

Status open(const smdp_engine_config& request, smdp_engine** out) {
  auto options = options_of(request);
  if (!options.ok()) {
    return options.status();
  }
  const double limit_s = options->rendezvous_timeout_s;
  smdp::EngineConfig config;
  config.options = std::move(*options);
  config.identity.rank = request.rank;
  config.identity.world_size = request.world_size;
  config.identity.build = smdp_engine_build();
  config.identity.master = request.master == nullptr ? "" : request.master;
  std::unique_ptr<StoreAdapter> store;
  if (request.store != nullptr) {
    store = std::make_unique<StoreAdapter>(*request.store);
    config.identity.store = store.get();
  }
  if (request.log != nullptr) {
    config.log = [log = request.log, context = request.log_context](smdp::LogLevel level,
                                                                    const std::string& text) {
      log(context, static_cast<int>(level), text.c_str());
    };
  }
  auto engine = smdp::Engine::open(std::move(config));
  if (!engine.ok()) {
    return with_limit(engine.status(), limit_s);
  }
  *out = std::make_unique<smdp_engine>(smdp_engine{std::move(*engine)}).release();
  return {};
}

Status submit(const smdp_group& group, const smdp_call& request, smdp_operation** out) {
  const std::shared_ptr<smdp::Engine> engine = group.engine.lock();
  if (!engine) {
    return {Code::kClosed, "the engine is closed"};
  }
  const bool known = request.collective >= 0 && request.collective < smdp::kCollectives &&
                     request.dtype >= 0 && request.dtype < smdp::kDTypes && request.op >= 0 &&
                     request.op < smdp::kReduceOps && request.root >= 0;
  if (!known) {
    return {Code::kInvalid, "the call names a collective, type, operation or root that does not exist"};
  }
  smdp::Call call;
  call.what.collective = static_cast<smdp::Collective>(request.collective);
  call.what.dtype = static_cast<smdp::DType>(request.dtype);
  call.what.op = static_cast<smdp::ReduceOp>(request.op);
  call.what.root = static_cast<std::uint32_t>(request.root);
  call.what.count = request.count;
  // Ranks do not compare fields that the collective does not use.
  call.what.op = smdp::reduces(call.what.collective) ? call.what.op : smdp::ReduceOp::kSum;
  call.what.root = smdp::has_root(call.what.collective) ? call.what.root : 0;
  if (call.what.collective == smdp::Collective::kBarrier) {
    call.what.count = 0;
    call.what.dtype = smdp::DType::kUInt8;
  }
  const std::size_t bytes = call.what.count * smdp::size_of(call.what.dtype);
  const auto size = static_cast<std::size_t>(group.size);
  if (request.input != nullptr) {
    const bool scatters = call.what.collective == smdp::Collective::kReduceScatter;
    call.input = {static_cast<const std::byte*>(request.input), scatters ? bytes * size : bytes};
  }
  if (request.output != nullptr) {
    const bool gathers = call.what.collective == smdp::Collective::kAllGather;
    call.output = {static_cast<std::byte*>(request.output), gathers ? bytes * size : bytes};
  }
  for (std::size_t i = 0; i < request.part_count; ++i) {
    const smdp_part& part = request.parts[i];
    call.parts.push_back(
        {part.peer, part.receive != 0, {static_cast<std::byte*>(part.memory), part.bytes}, part.source});
  }
  call.tag = request.tag;
  call.timeout_s = request.timeout_s;
  call.keyed = request.buffers > 0;
  call.step = request.step;
  call.index = request.index;
  call.buffers = request.buffers;
  call.blocking = request.blocking != 0;
  smdp::OperationHandle::Done done;
  if (request.done != nullptr) {
    done = [callback = request.done, context = request.context](const Status& status) {
      smdp_error error;
      fill(status, &error);
      callback(context, &error);
    };
  }
  call.handle = std::make_shared<smdp::OperationHandle>(std::move(done));
  auto operation = std::make_unique<smdp_operation>(smdp_operation{engine, call.handle});
  Status status = engine->submit(group.id, group.size, group.rank, std::move(call));
  if (status.ok()) {
    *out = operation.release();
  }
  return status;
}

}  // namespace

int smdp_abi_version(void) { return SMDP_ABI_VERSION; }

const char* smdp_engine_build(void) { return SMDP_ENGINE_BUILD; }

void smdp_copy_streaming(void* to, const void* from, size_t bytes) {
  smdp::copy_streaming({static_cast<const std::byte*>(from), bytes}, {static_cast<std::byte*>(to), bytes});
}

int smdp_engine_open(const smdp_engine_config* config, smdp_engine** engine, smdp_error* error) {
  return guarded(error, [&] { return open(widened(config), engine); });
}

void smdp_engine_close(smdp_engine* engine) {
  std::unique_ptr<smdp_engine> owned(engine);
  if (owned && owned->engine->is_own()) {
    owned->engine->close();
  } else {
    // A forked child: threads and memory belong to its parent.
    [[maybe_unused]] const smdp_engine* parents = owned.release();
  }
}

void smdp_engine_await_others(smdp_engine* engine) {
  if (engine->engine->is_own()) {
    engine->engine->await_others();
  }
}

void smdp_engine_depart(smdp_engine* engine) {
  if (engine->engine->is_own()) {
    engine->engine->depart();
  }
}

void smdp_engine_abandon(smdp_engine* engine) {
  if (engine->engine->is_own()) {
    engine->engine->abandon();
  }
}

int smdp_engine_dump(smdp_engine* engine, const char* folder, char* path, size_t capacity,
                     smdp_error* error) {
  return guarded(error, [&]() -> Status {
    const auto written = engine->engine->dump(folder == nullptr ? "" : folder, "requested by the program");
    if (!written.ok()) {
      return written.status();
    }
    if ((*written).size() >= capacity) {
      return {Code::kInvalid, *written + ": its path does not fit into the caller's memory"};
    }
    std::memcpy(path, (*written).c_str(), (*written).size() + 1);
    return {};
  });
}

int smdp_engine_host_count(const smdp_engine* engine) {
  return static_cast<int>(engine->engine->layout().host_names.size());
}

int smdp_engine_host_of(const smdp_engine* engine, int rank) {
  const auto& host_of = engine->engine->layout().host_of;
  return rank < 0 || static_cast<std::size_t>(rank) >= host_of.size()
             ? -1
             : host_of[static_cast<std::size_t>(rank)];
}

const char* smdp_engine_host_name(const smdp_engine* engine, int host) {
  const auto& names = engine->engine->layout().host_names;
  return host < 0 || static_cast<std::size_t>(host) >= names.size()
             ? nullptr
             : names[static_cast<std::size_t>(host)].c_str();
}

const char* smdp_engine_local_reducer(const smdp_engine* engine) {
  return engine->engine->options().local_reducer.c_str();
}

int smdp_engine_registered_memory(smdp_engine* engine, void** memory, uint64_t* bytes, smdp_error* error) {
  return guarded(error, [&]() -> Status {
    const auto found = engine->engine->registered_memory();
    if (found.ok()) {
      *memory = found->data();
      *bytes = found->size();
    }
    return found.status();
  });
}

void smdp_engine_keep_memory(smdp_engine* engine) { engine->engine->keep_memory(); }

int smdp_group_create(smdp_engine* engine, const int* members, int count, const char* name, double timeout_s,
                      smdp_group** group, smdp_error* error) {
  return guarded(error, [&]() -> Status {
    const std::vector<int> ranks(members, members + count);
    const auto id = engine->engine->create_group(ranks, name, timeout_s);
    if (!id.ok()) {
      return id.status();
    }
    const auto rank = std::ranges::find(ranks, engine->engine->rank()) - ranks.begin();
    *group = std::make_unique<smdp_group>(smdp_group{engine->engine, *id, count, static_cast<int>(rank)})
                 .release();
    return {};
  });
}

void smdp_group_destroy(smdp_group* group) {
  const std::unique_ptr<smdp_group> owned(group);
  if (const auto engine = owned ? owned->engine.lock() : nullptr) {
    engine->destroy_group(owned->id);
  }
}

void smdp_group_fail(smdp_group* group, const char* reason) {
  if (const auto engine = group->engine.lock()) {
    engine->fail_group(group->id, {Code::kPeerLost, reason});
  }
}

int smdp_submit(smdp_group* group, const smdp_call* call, smdp_operation** operation, smdp_error* error) {
  return guarded(error, [&] { return submit(*group, widened(call), operation); });
}

int smdp_operation_wait(smdp_operation* operation, double timeout_s, smdp_error* error) {
  return guarded(error, [&] {
    const std::shared_ptr<smdp::Engine> engine = operation->engine.lock();
    if (!engine || operation->handle->is_complete()) {
      return operation->handle->status();
    }
    // Every operation has a deadline of its own, so it ends without a limit of the caller too.
    return engine->wait(*operation->handle, timeout_s);
  });
}

int smdp_operation_test(const smdp_operation* operation) { return operation->handle->is_complete() ? 1 : 0; }

void smdp_operation_release(smdp_operation* operation) {
  const std::unique_ptr<smdp_operation> owned(operation);
}

int smdp_option_info(int index, smdp_option* option) {
  const auto table = smdp::option_table();
  if (index < 0 || static_cast<std::size_t>(index) >= table.size()) {
    return SMDP_INVALID;
  }
  const smdp::OptionInfo& info = table[static_cast<std::size_t>(index)];  // literals, so they end with a NUL
  *option = {info.name.data(), info.type.data(), info.unit.data(), info.default_text.data(), info.doc.data()};
  return SMDP_OK;
}

int smdp_report_exit(int pipe, int child, double limit_s, smdp_error* error) {
  return guarded(error, [&] {
    const std::chrono::duration<double> limit(limit_s);
    return smdp::report_exit(smdp::UniqueFd(pipe), child,
                             std::chrono::duration_cast<std::chrono::milliseconds>(limit));
  });
}
