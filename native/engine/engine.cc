#include "engine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <set>

#include "base/bytes.h"
#include "base/out_of_memory.h"
#include "collectives/check_call.h"
#include "trace/flight/dump_signal.h"

namespace smdp {
namespace {

constexpr std::uint64_t kMaxUnclaimedBytes = 256U << 20U;

bool is_local_frame(FrameType type) {
  return type == FrameType::kContribute || type == FrameType::kConsumed || type == FrameType::kOffer ||
         type == FrameType::kTaken || type == FrameType::kReleased;
}

bool is_network_frame(FrameType type) {
  return type == FrameType::kHostSum || type == FrameType::kPublish || type == FrameType::kCredit ||
         type == FrameType::kSend;
}

// The transport's own.
bool is_fabric_frame(FrameType type) {
  return type == FrameType::kFabricCredit || type == FrameType::kFabricEnd;
}

Isa isa_of(const Options& options) {
  const auto* const named = std::ranges::find(kIsas, options.kernels, [](Isa isa) { return name_of(isa); });
  return named == kIsas.end() ? best_isa() : *named;
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::open(EngineConfig config) {
  const Identity& identity = config.identity;
  if (identity.world_size < 1 || identity.rank < 0 || identity.rank >= identity.world_size) {
    return Status(Code::kInvalid, "rank " + std::to_string(identity.rank) + " of " +
                                      std::to_string(identity.world_size) + " is no rank");
  }
  if (!is_available(isa_of(config.options))) {
    return Status(Code::kInvalid,
                  "SMDP_KERNELS=" + config.options.kernels + ": this processor does not have them");
  }
  if (!config.options.trace_signal.empty() && config.options.trace_dir.empty()) {
    return Status(Code::kInvalid, "SMDP_TRACE_SIGNAL is set and SMDP_TRACE_DIR is not: set the folder too");
  }
  if (Status status = check_together(config.options); !status.ok()) {
    return status;
  }
  if (Status status = listen_for_dumps(config.options.trace_signal); !status.ok()) {
    return status;
  }
  if (!config.log) {
    config.log = standard_error_sink(config.options.verbose);
  }
  Result<Connections> connections =
      bootstrap(identity, config.options, config.make_transport == nullptr, config.log);
  if (!connections.ok()) {
    return connections.status();
  }
  EngineParts parts = make_parts(config, std::move(*connections));
  return make(std::move(config), std::move(parts));
}

Result<std::unique_ptr<Engine>> Engine::make(EngineConfig config, EngineParts parts) {
  std::unique_ptr<Engine> engine(new Engine(std::move(config), std::move(parts)));
  if (Status status = engine->start(); !status.ok()) {
    return status;
  }
  return engine;
}

Engine::Engine(EngineConfig config, EngineParts parts)
    : config_(std::move(config)),
      log_(config_.log),
      rank_(config_.identity.rank),
      owner_(::getpid()),
      layout_(std::move(parts.layout)),
      arena_(std::move(parts.arena)),
      permanent_regions_(arena_.regions_in_use()),
      peer_arenas_(std::move(parts.peer_arenas)),
      mappings_(std::move(parts.mappings)),
      executor_(std::move(parts.executor)),
      network_side_(*this, false),
      local_side_(*this, true),
      network_(std::move(parts.network)),
      local_(std::move(parts.local)),
      flight_(static_cast<std::size_t>(config_.options.flight_records)) {
  const Options& options = config_.options;
  settings_.plan.piece_bytes = static_cast<std::uint64_t>(options.piece_kib) << 10U;
  settings_.plan.small_bytes = static_cast<std::uint64_t>(options.small_kib) << 10U;
  settings_.plan.bulk_bytes = static_cast<std::uint64_t>(options.bulk_kib) << 10U;
  const std::size_t hosts = std::set(layout_.host_of.begin(), layout_.host_of.end()).size();
  budget_.limit = settings_.plan.in_flight(hosts) / (peer_arenas_.size() + 1);
  settings_.kernels = parts.kernels == nullptr ? &kernels(isa_of(options)) : parts.kernels;
  if (!options.wire_dtype.empty()) {
    settings_.plan.wire_dtype = options.wire_dtype == "float16" ? DType::kFloat16 : DType::kBFloat16;
  }
  settings_.window = static_cast<std::uint32_t>(options.window);
  settings_.buffers_in_flight = static_cast<std::size_t>(options.buffers_in_flight);
  settings_.timeout_s = options.operation_timeout_s;
  settings_.warn_s = options.warn_s;
  start_traces();
}

Status Engine::start() {
  local_->start(local_side_);
  network_->start(network_side_);
  network_->register_memory(arena_.for_regions());
  executor_->set_exhausted([this] { exhausted(); });
  executor_->set_tick([this] { tick(); }, [this] { return work(); });
  Executor::Threads threads;
  threads.pin_cpu = static_cast<int>(config_.options.pin_cpu);
  threads.spin = std::chrono::microseconds(config_.options.spin_us);
  threads.copy_threads = copy_threads();
  return executor_->start(threads);
}

// By default half of this rank's share of the processors: the script and its data loader use the others.
int Engine::copy_threads() const {
  constexpr int kMost = 4;
  if (config_.options.copy_threads >= 0) {
    return static_cast<int>(config_.options.copy_threads);
  }
  cpu_set_t usable;
  if (layout_.world_size() == 1 || ::sched_getaffinity(0, sizeof(usable), &usable) != 0) {
    return 0;
  }
  const int local_ranks = static_cast<int>(peer_arenas_.size()) + 1;
  return std::clamp(CPU_COUNT(&usable) / (2 * local_ranks) - 1, 0, kMost);
}

Engine::~Engine() { close(); }

bool Engine::is_own() const { return ::getpid() == owner_; }

void Engine::close() { end(true); }

void Engine::abandon() { end(false); }

void Engine::await_others() {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, seconds(config_.options.close_timeout_s), [this] { return all_gone_; });
}

bool Engine::is_alone() {
  const std::lock_guard lock(mutex_);
  return all_gone_;
}

void Engine::depart() {
  if (begin_end(true)) {
    const std::lock_guard lock(mutex_);
    end_pending_ = true;
  }
}

bool Engine::begin_end(bool orderly) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(closed_, true)) {
      return false;
    }
  }
  executor_->post([this, orderly] {
    save_last_records(orderly);
    const Status closed{Code::kClosed, "the engine was closed"};
    for (auto& [id, group] : groups_) {
      if (!orderly) {
        group->fail_here(closed);
        continue;
      }
      try {
        group->leave(Leaving::kClosesEngine);
      } catch (const std::bad_alloc&) {
        group->fail_here(closed);  // the others learn from the goodbye alone, a moment later
      }
    }
    if (!orderly) {
      return;
    }
    local_->finish();
    network_->finish();
    if (gone_.size() + 1 == layout_.host_of.size()) {
      const std::lock_guard lock(mutex_);
      all_gone_ = true;
    }
    changed_.notify_all();
  });
  return true;
}

void Engine::end(bool orderly) {
  if (!is_own()) {
    return;  // a forked child: the threads and the connections are its parent's
  }
  if (begin_end(orderly)) {
    if (orderly) {
      await_others();
    }
  } else {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(end_pending_, false)) {
      return;
    }
  }
  executor_->stop();
  groups_.clear();
  if (tracer_) {
    tracer_->close();
  }
  local_.reset();
  network_.reset();
}

Result<std::uint64_t> Engine::create_group(const std::vector<int>& members, const std::string& name,
                                           double timeout_s) {
  Writer identity;
  identity.text(name);
  std::set<int> distinct;
  for (const int member : members) {
    if (member < 0 || member >= layout_.world_size() || !distinct.insert(member).second) {
      return Status(Code::kInvalid, "group '" + name + "': " + std::to_string(member) +
                                        " is no rank of the job or twice in it");
    }
    identity.put(member);
  }
  if (!distinct.contains(rank_)) {
    return Status(Code::kInvalid, "group '" + name + "': rank " + std::to_string(rank_) + " is not in it");
  }
  const std::uint64_t key = hash64(identity.take());
  std::uint64_t id = 0;
  {
    const std::lock_guard lock(mutex_);
    if (closed_ || !is_own()) {
      return Status(Code::kClosed, "the engine is closed, or belongs to the parent of this forked process");
    }
    id = hash64(Writer().put(key).put(instances_[key]++).take());
  }
  executor_->post([this, members, name, id, timeout_s] {
    try {
      add_group(id, name, members, timeout_s);
    } catch (const std::bad_alloc&) {
      exhausted();
      fail_new_group(id, name, members);
    }
  });
  return id;
}

void Engine::destroy_group(std::uint64_t group) {
  if (!is_own()) {
    return;
  }
  executor_->post([this, group] {
    if (const auto found = groups_.find(group); found != groups_.end()) {
      destroyed_.insert(group);  // first: if this throws, nothing has changed
      found->second->leave(Leaving::kDestroysGroup);
      groups_.erase(found);
    }
  });
}

void Engine::fail_group(std::uint64_t group, const Status& why) {
  if (!is_own()) {
    return;
  }
  executor_->post([this, group, why] {
    if (const auto found = groups_.find(group); found != groups_.end()) {
      found->second->fail(why);
    }
  });
}

Status Engine::submit(std::uint64_t group, int group_size, int group_rank, Call call) {
  if (!is_own()) {
    return {Code::kClosed, "the engine does not survive a fork: open one in this process"};
  }
  if (Status valid = check_call(call, group_size, group_rank); !valid.ok()) {
    return valid;
  }
  const std::lock_guard lock(
      mutex_);  // until the task is posted: closing runs the tasks posted before, and no others
  if (closed_) {
    return {Code::kClosed, "the engine is closed"};
  }
  const bool blocking = call.blocking;
  const Descriptor what = call.what;
  auto task = [this, group, what, call = std::move(call)]() mutable {
    const std::shared_ptr<OperationHandle> handle = call.handle;
    try {
      if (const auto found = groups_.find(group); found != groups_.end()) {
        found->second->submit(std::move(call));
      } else {
        handle->complete({Code::kClosed, "the group was destroyed"});
      }
    } catch (const std::bad_alloc&) {
      exhausted();
      if (!handle->is_complete()) {
        handle->complete(
            {Code::kExhausted, layout_.describe(rank_) + " had no memory for " + describe(what)});
      }
    }
  };
  if (blocking) {
    executor_->post_before_drive(std::move(task));
  } else {
    executor_->post(std::move(task));
  }
  return {};
}

Status Engine::wait(OperationHandle& handle, double timeout_s) {
  if (!is_own()) {
    return {Code::kClosed, "the engine does not survive a fork: open one in this process"};
  }
  const TimePoint deadline = timeout_s < 0 || timeout_s > 1e9 ? TimePoint::max() : after(timeout_s);
  executor_->drive([&handle] { return handle.is_complete(); }, deadline);
  return handle.is_complete() ? handle.status() : Status(Code::kTimeout, "the operation is not complete yet");
}

Result<std::span<std::byte>> Engine::registered_memory() {
  const std::uint64_t wanted = static_cast<std::uint64_t>(config_.options.registered_mib) << 20U;
  const std::uint64_t bytes = std::min<std::uint64_t>(wanted, arena_.for_regions().size() / 2);
  if (bytes == 0) {
    return std::span<std::byte>();
  }
  struct Answer {
    std::atomic<bool> there = false;
    std::optional<std::uint64_t> offset;
  };
  const auto answer = std::make_shared<Answer>();
  {
    const std::lock_guard lock(mutex_);
    if (closed_ || !is_own()) {
      return Status(Code::kClosed, "the engine is closed, or belongs to the parent of this forked process");
    }
    executor_->post([this, answer, bytes] {
      if (!registered_) {
        registered_ = arena_.allocate(bytes);
        permanent_regions_ += registered_ ? 1 : 0;
      }
      answer->offset = registered_;
      answer->there = true;
    });
  }
  constexpr double kLimit = 10;  // seconds
  executor_->drive([&answer] { return answer->there.load(); }, after(kLimit));
  if (!answer->there) {
    return Status(Code::kTimeout, "the engine is blocked and has not set memory aside");
  }
  if (!answer->offset) {
    return Status(Code::kExhausted, "the shared memory has no free range of " + std::to_string(bytes >> 20U) +
                                        " MiB (SMDP_REGISTERED_MIB, SMDP_ARENA_MIB)");
  }
  return arena_.bytes().subspan(*answer->offset, bytes);
}

// --- On the loop ---

Usage Engine::usage() const {
  Usage usage;
  usage.regions = regions_in_use();
  usage.in_flight_bytes = budget_.used;
  usage.early_bytes = unclaimed_.bytes();
  for (const auto& [id, group] : groups_) {
    usage.calls += group->open_calls();
    usage.early_bytes += group->early_bytes();
  }
  return usage;
}

void Engine::send(int job_rank, Message message) {
  message.header.sender = static_cast<std::uint32_t>(rank_);
  const bool same_host =
      layout_.host_of[static_cast<std::size_t>(job_rank)] == layout_.host_of[static_cast<std::size_t>(rank_)];
  (same_host ? local_ : network_)->post(job_rank, std::move(message));
}

void Engine::cancel(std::uint64_t group, std::uint64_t operation) {
  network_->cancel(group, operation);
  local_->cancel(group, operation);
}

std::span<const std::byte> Engine::peek(int job_rank, std::uint64_t offset, std::uint64_t bytes) {
  const auto found = peer_arenas_.find(job_rank);
  if (found == peer_arenas_.end()) {
    return {};
  }
  const auto arena = found->second;
  return offset > arena.size() || bytes > arena.size() - offset ? std::span<const std::byte>()
                                                                : arena.subspan(offset, bytes);
}

void Engine::add_group(std::uint64_t id, const std::string& name, const std::vector<int>& members,
                       double timeout_s) {
  GroupSettings settings = settings_;
  settings.timeout_s = timeout_s > 0 ? timeout_s : settings.timeout_s;
  auto group = std::make_shared<Group>(*this, id, name, members, rank_, settings);
  groups_[id] = group;
  if (incomplete_.erase(id) > 0) {
    group->fail(no_memory());
  }
  for (const auto& [peer, loss] : gone_) {
    group->peer_lost(peer, loss.orderly, loss.why);
  }
  for (EarlyFrame& frame : unclaimed_.take(id)) {
    handle(frame.from, frame.header, std::move(frame.landing));
  }
}

// Fails a group that could not be created for lack of memory: the other ranks would wait for it until their
// deadlines. Noexcept for the reason given at exhausted().
void Engine::fail_new_group(std::uint64_t id, const std::string& name,
                            const std::vector<int>& members) noexcept {
  if (!groups_.contains(id)) {
    add_group(id, name, members, 0);
  }
  groups_.at(id)->fail(no_memory());
  unclaimed_.take(id);
}

std::optional<Landing> Engine::Side::place(int peer, const FrameHeader& header) {
  if (is_fabric_frame(header.type) ||
      (local_ ? is_network_frame(header.type) : is_local_frame(header.type))) {
    return std::nullopt;
  }
  if (header.payload == 0) {
    return Landing{};
  }
  const auto found = engine_.groups_.find(header.group);
  if (found == engine_.groups_.end() || header.type == FrameType::kAbort) {
    return engine_.place_unclaimed(header);
  }
  return found->second->place(peer, header);
}

void Engine::Side::arrived(int peer, const FrameHeader& header, Landing landing) {
  engine_.handle(peer, header, std::move(landing));
}

void Engine::handle(int peer, const FrameHeader& header, Landing landing) {
  if (handle_clock(peer, header)) {
    return;
  }
  if (header.type == FrameType::kReleased) {
    if (!destroyed_.contains(header.group) || retired_.contains(header.group)) {
      with_second_try([&] { retired_.on_released(peer, header.group); });  // reported once
    }
    return;
  }
  if (header.type == FrameType::kConsumed || header.type == FrameType::kTaken) {
    release(header);
  }
  const auto found = groups_.find(header.group);
  if (found != groups_.end()) {
    const std::shared_ptr<Group> group = found->second;
    if (!group->arrived(peer, header, std::move(landing))) {
      broken(peer);
    }
  } else if (!destroyed_.contains(header.group) && unclaimed_.bytes() <= kMaxUnclaimedBytes) {
    try {
      unclaimed_.add(header.group, {peer, header, std::move(landing)});
    } catch (const std::bad_alloc&) {
      mark_incomplete(header.group);
      throw;
    }
  }
}

void Engine::release(const FrameHeader& header) {
  if (const auto found = groups_.find(header.group); found != groups_.end()) {
    found->second->release(header.offset);
  } else {
    retired_.release(header.group, header.offset);
  }
}

// Among the readers is this rank itself, while its transport reads the memory.
void Engine::retire(std::uint64_t group, std::shared_ptr<RegionTable> regions,
                    const std::vector<int>& readers) {
  std::vector<int> all = readers;
  if (network_->reads(group)) {
    all.push_back(rank_);
  }
  retired_.retire(group, std::move(regions), all, [this](int rank) { return gone_.contains(rank); });
}

void Engine::Side::released(std::uint64_t group) {
  if (engine_.retired_.contains(group)) {
    engine_.retired_.on_released(engine_.rank_, group);
  }
}

bool Engine::is_held_by_failures() const {
  std::size_t held = retired_.regions();
  if (held == 0) {
    return false;
  }
  for (const auto& [id, group] : groups_) {
    held += group->is_starved() ? group->regions_held() : 0;
  }
  return held == regions_in_use();
}

std::optional<Landing> Engine::place_unclaimed(const FrameHeader& header) {
  if (unclaimed_.bytes() + header.payload > kMaxUnclaimedBytes) {
    return std::nullopt;
  }
  try {
    return Landing::fresh(header.payload);
  } catch (const std::bad_alloc&) {
    mark_incomplete(header.group);
    throw;
  }
}

// A frame is lost of a group that does not exist yet. Noexcept for the reason given at exhausted().
void Engine::mark_incomplete(std::uint64_t group) noexcept { incomplete_.insert(group); }

void Engine::broken(int peer) {
  lost(peer, false, {Code::kPeerLost, "it sent a frame that belongs to no call"});
}

void Engine::lost(int peer, bool orderly, const Status& why) {
  bool is_new = false;
  with_second_try([&] { is_new = gone_.emplace(peer, Loss{orderly, why}).second; });
  if (!is_new) {
    return;
  }
  // First what does not run out of memory.
  retired_.on_lost(peer);
  if (gone_.size() + 1 == layout_.host_of.size()) {
    {
      const std::lock_guard lock(mutex_);
      all_gone_ = true;
    }
    changed_.notify_all();
  }
  for (auto& [id, group] : groups_) {
    group->peer_lost(peer, orderly, why);
  }
}

Executor::Work Engine::work() const {
  auto most = Executor::Work::kNone;
  for (const auto& [id, group] : groups_) {
    most = std::max(most, group->work());
  }
  return most;
}

Status Engine::no_memory() const {
  return {Code::kExhausted, layout_.describe(rank_) + " has no memory left"};
}

// A frame may be partly handled, so every running call fails. Noexcept: when there is no memory even for
// that, the process ends, and the other ranks notice.
void Engine::exhausted() noexcept {
  for (auto& [id, group] : groups_) {
    group->fail(no_memory());
  }
}

void Engine::tick() {
  network_->tick();
  const TimePoint now = Clock::now();
  for (auto& [id, group] : groups_) {
    group->tick(now);
  }
  tick_traces(now);
}

}  // namespace smdp
