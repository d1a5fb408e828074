// The C interface over the engine. Every function catches what C++ may throw (memory), so that nothing
// crosses.
#include <smdp/engine.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <vector>

#include "base/ready_to_throw.h"
#include "engine.h"

// A thread may be in a wait, or on its way into a call, when another closes the engine: it holds the engine
// that long. Groups and operations alone do not: what a script leaves behind keeps no memory or descriptor.
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

// A structure of which the caller may know fewer fields than we do.
template <class T>
T widened(const T* given) {
  T full{};
  std::memcpy(&full, given, std::min(given->size, sizeof(T)));
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

Status open(const smdp_engine_config& given, smdp_engine** out) {
  auto options = smdp::read_options(smdp::process_environment());
  if (!options.ok()) {
    return options.status();
  }
  for (const char* const* entry = given.options; entry != nullptr && entry[0] != nullptr; entry += 2) {
    if (Status status = smdp::set_option(*options, entry[0], entry[1] == nullptr ? "" : entry[1]);
        !status.ok()) {
      return status;
    }
  }
  smdp::EngineConfig config;
  config.options = std::move(*options);
  config.identity.rank = given.rank;
  config.identity.world_size = given.world_size;
  config.identity.build = smdp_engine_build();
  config.identity.master = given.master == nullptr ? "" : given.master;
  std::unique_ptr<StoreAdapter> store;
  if (given.store != nullptr) {
    store = std::make_unique<StoreAdapter>(*given.store);
    config.identity.store = store.get();
  }
  if (given.log != nullptr) {
    config.log = [log = given.log, context = given.log_context](smdp::LogLevel level,
                                                                const std::string& text) {
      log(context, static_cast<int>(level), text.c_str());
    };
  }
  auto engine = smdp::Engine::open(std::move(config));
  if (!engine.ok()) {
    return engine.status();
  }
  *out = std::make_unique<smdp_engine>(smdp_engine{std::move(*engine)}).release();
  return {};
}

Status submit(const smdp_group& group, const smdp_call& given, smdp_operation** out) {
  const std::shared_ptr<smdp::Engine> engine = group.engine.lock();
  if (!engine) {
    return {Code::kClosed, "the engine is closed"};
  }
  const bool known = given.collective >= 0 && given.collective < smdp::kCollectives && given.dtype >= 0 &&
                     given.dtype < smdp::kDTypes && given.op >= 0 && given.op < smdp::kReduceOps &&
                     given.root >= 0;
  if (!known) {
    return {Code::kInvalid, "the call names a collective, type, operation or root that does not exist"};
  }
  smdp::Call call;
  call.what.collective = static_cast<smdp::Collective>(given.collective);
  call.what.dtype = static_cast<smdp::DType>(given.dtype);
  call.what.op = static_cast<smdp::ReduceOp>(given.op);
  call.what.root = static_cast<std::uint32_t>(given.root);
  call.what.count = given.count;
  // Fields without a meaning for the collective take no part in the comparison between ranks.
  call.what.op = smdp::reduces(call.what.collective) ? call.what.op : smdp::ReduceOp::kSum;
  call.what.root = smdp::has_root(call.what.collective) ? call.what.root : 0;
  if (call.what.collective == smdp::Collective::kBarrier) {
    call.what.count = 0;
    call.what.dtype = smdp::DType::kUInt8;
  }
  const std::size_t bytes = call.what.count * smdp::size_of(call.what.dtype);
  const auto size = static_cast<std::size_t>(group.size);
  if (given.input != nullptr) {
    const bool scatters = call.what.collective == smdp::Collective::kReduceScatter;
    call.input = {static_cast<const std::byte*>(given.input), scatters ? bytes * size : bytes};
  }
  if (given.output != nullptr) {
    const bool gathers = call.what.collective == smdp::Collective::kAllGather;
    call.output = {static_cast<std::byte*>(given.output), gathers ? bytes * size : bytes};
  }
  for (std::size_t i = 0; i < given.part_count; ++i) {
    const smdp_part& part = given.parts[i];
    call.parts.push_back(
        {part.peer, part.receive != 0, {static_cast<std::byte*>(part.memory), part.bytes}, part.source});
  }
  call.tag = given.tag;
  call.timeout_s = given.timeout_s;
  call.keyed = given.buffers > 0;
  call.step = given.step;
  call.index = given.index;
  call.buffers = given.buffers;
  call.blocking = given.blocking != 0;
  smdp::OperationHandle::Done done;
  if (given.done != nullptr) {
    done = [callback = given.done, context = given.context](const Status& status) {
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

int smdp_engine_open(const smdp_engine_config* config, smdp_engine** engine, smdp_error* error) {
  return guarded(error, [&] { return open(widened(config), engine); });
}

void smdp_engine_close(smdp_engine* engine) {
  std::unique_ptr<smdp_engine> owned(engine);
  if (owned && owned->engine->is_own()) {
    owned->engine->close();
  } else {
    // A forked child: threads and memory are its parent's.
    [[maybe_unused]] const smdp_engine* parents = owned.release();
  }
}

void smdp_engine_await_others(smdp_engine* engine) {
  if (engine->engine->is_own()) {
    engine->engine->await_others();
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
    const auto written = engine->engine->dump(folder == nullptr ? "" : folder, "the program asked for it");
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
  const auto& hosts = engine->engine->layout().host_of;
  return rank >= 0 && rank < static_cast<int>(hosts.size()) ? hosts[static_cast<std::size_t>(rank)] : -1;
}

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

int smdp_submit(smdp_group* group, const smdp_call* call, smdp_operation** operation, smdp_error* error) {
  return guarded(error, [&] { return submit(*group, widened(call), operation); });
}

int smdp_operation_wait(smdp_operation* operation, double timeout_s, smdp_error* error) {
  return guarded(error, [&] {
    const std::shared_ptr<smdp::Engine> engine = operation->engine.lock();
    if (!engine || operation->handle->is_complete()) {
      return operation->handle->status();
    }
    // A deadline of its own ends every operation, without a limit of the caller's too.
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
  const smdp::OptionInfo& info = table[static_cast<std::size_t>(index)];  // literals, so ended by a NUL
  *option = {info.name.data(), info.type.data(), info.unit.data(), info.default_text.data(), info.doc.data()};
  return SMDP_OK;
}
