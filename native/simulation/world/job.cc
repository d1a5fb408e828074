#include "job.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "lost_memory.h"

namespace smdp::simulation {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr double kHorizon = 120;       // simulated seconds in which every job ends
constexpr std::size_t kTimeline = 32;  // lines

Clock::duration ms(double value) { return seconds(value / 1000); }

bool holds_up(FaultKind kind) {
  return kind == FaultKind::kPause || kind == FaultKind::kClockJump || kind == FaultKind::kLate;
}

NetworkCosts costs_of(const JobPlan& plan, double bytes_per_s, microseconds least, microseconds most) {
  NetworkCosts costs{bytes_per_s, least, most, seconds(plan.heartbeat_s)};
  if (plan.buffer_kib > 0) {
    costs.buffer = static_cast<std::uint64_t>(plan.buffer_kib) << 10U;
  }
  return costs;
}

NetworkCosts wire_costs(const JobPlan& plan) {
  return costs_of(plan, 1.25e9, microseconds(15), microseconds(400));
}

NetworkCosts memory_costs(const JobPlan& plan) {
  return costs_of(plan, 8e9, microseconds(1), microseconds(30));
}

Options options_of(const JobPlan& plan) {
  Options options;
  options.heartbeat_s = plan.heartbeat_s;
  options.operation_timeout_s = plan.timeout_s;
  options.warn_s = plan.timeout_s / 4;
  options.piece_kib = plan.piece_kib;
  options.small_kib = plan.small_kib;
  options.bulk_kib = plan.bulk_kib;
  options.buffers_in_flight = plan.buffers_in_flight;
  options.window = plan.window;
  options.copy_threads = plan.copy_threads;
  options.flight_records = 16;
  options.kernels = "portable";
  return options;
}

}  // namespace

Job::Job(const JobPlan& plan, bool records)
    : plan_(plan),
      world_(plan.seed, records),
      host_of_(host_of(plan)),
      wires_(world_, VirtualNetwork::Reach::kBetweenHosts, wire_costs(plan), host_of_),
      memory_(world_, VirtualNetwork::Reach::kWithinHosts, memory_costs(plan), host_of_),
      ranks_(host_of_.size()),
      reference_(plan) {
  Clock::duration held_up{};
  for (const Fault& fault : plan_.faults) {
    held_up += holds_up(fault.kind) ? ms(fault.for_ms) : Clock::duration{};
  }
  is_tight_ = held_up >= seconds(plan_.timeout_s / 2);
}

EngineParts Job::parts_of(int rank, Arena arena) {
  EngineParts parts;
  auto executor = std::make_unique<VirtualExecutor>(world_);
  at(rank).executor = executor.get();
  parts.layout.host_of = host_of_;
  for (std::size_t host = 0; host < plan_.hosts.size(); ++host) {
    parts.layout.host_names.push_back("host-" + std::to_string(host));
  }
  parts.arena = std::move(arena);
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank && host(peer) == host(rank)) {
      parts.peer_arenas[peer] = readable_[static_cast<std::size_t>(peer)].bytes();
    }
  }
  parts.local = memory_.attach(*executor, rank);
  parts.network = wires_.attach(*executor, rank);
  parts.executor = std::move(executor);
  return parts;
}

void Job::open() {
  std::vector<Arena> arenas;
  for (int rank = 0; rank < size(); ++rank) {
    auto arena = Arena::create(static_cast<std::size_t>(plan_.arena_mib) << 20U);
    auto mapping = arena.ok() ? map_read_only(arena->fd()) : Result<Mapping>(arena.status());
    if (!mapping.ok()) {
      throw std::runtime_error(mapping.status().message());
    }
    arenas.push_back(std::move(*arena));
    readable_.push_back(std::move(*mapping));
  }
  for (int rank = 0; rank < size(); ++rank) {
    EngineConfig config;
    config.identity.rank = rank;
    config.identity.world_size = size();
    config.identity.build = "world";
    config.options = options_of(plan_);
    config.log = [this, rank](LogLevel level, const std::string& text) {
      world_.note(rank, static_cast<std::uint64_t>(level), [&] { return "says: " + text; });
      if (level == LogLevel::kWarning) {
        const Uncounted spared;
        verdict_.warnings.push_back(text);
      }
    };
    auto engine =
        Engine::make(std::move(config), parts_of(rank, std::move(arenas[static_cast<std::size_t>(rank)])));
    at(rank).engine = std::move(*engine);
    Clock::duration late = world_.between(microseconds(0), milliseconds(2));
    for (const Fault& fault : plan_.faults) {
      late += fault.kind == FaultKind::kLate && fault.rank == rank ? ms(fault.for_ms) : Clock::duration{};
    }
    world_.after(late, [this, rank] { begin(rank); });
  }
}

// -- Calls ---------------------------------------------------------------------------------------

// The groups, and the first call.
void Job::begin(int rank) {
  Rank& one = at(rank);
  if (one.is_gone) {
    return;
  }
  begun_ = world_.now();
  for (std::uint32_t group = 0; group < plan_.groups.size(); ++group) {
    if (is_member(rank, group) && !plan_.replaces.contains(group)) {
      make_group(rank, group);
    }
  }
  one.calls = calls_of(rank);
  run_next(rank);
}

// The calls that a rank makes, in its order.
std::vector<std::uint32_t> Job::calls_of(int rank) {
  std::vector<std::uint32_t> numbers;
  std::size_t first_of_step = 0;
  for (std::uint32_t number = 0; number < plan_.calls.size(); ++number) {
    const PlannedCall& call = plan_.calls[number];
    const auto& members = plan_.groups[call.group];
    const auto member = std::ranges::find(members, rank);
    if (member == members.end() || !call.is_made_by(static_cast<int>(member - members.begin()))) {
      continue;
    }
    numbers.push_back(number);
    first_of_step = !call.keyed || call.index == 0 ? numbers.size() - 1 : first_of_step;
    if (call.keyed) {
      const std::size_t place = first_of_step + world_.below(numbers.size() - first_of_step);
      std::swap(numbers[place], numbers.back());
    }
  }
  return numbers;
}

// The next call, and a moment later the one behind it.
void Job::run_next(int rank) {
  Rank& one = at(rank);
  if (one.is_gone || one.is_over) {
    return;
  }
  if (one.next == one.calls.size()) {
    one.waits = has_open_calls(rank, std::nullopt);
    if (!one.waits) {
      finish(rank);
    }
    return;
  }
  if (meets_a_fault(rank)) {
    return;
  }
  const std::uint32_t number = one.calls[one.next];
  if (!make_group(rank, plan_.calls[number].group)) {
    one.waits = true;
    return;
  }
  ++one.next;
  make_call(rank, number);
  run_next_later(rank, milliseconds(1));
}

// Its calls are complete.
void Job::finish(int rank) {
  Rank& one = at(rank);
  one.is_over = true;
  for (std::uint32_t group = 0; group < plan_.groups.size(); ++group) {
    if (is_member(rank, group)) {
      make_group(rank, group);  // other ranks may have made calls in it
    }
  }
  if (plan_.destroys_groups) {
    for (const auto& [group, number] : one.groups) {
      destroy_group(rank, group);
    }
  }
  if (plan_.closes_early) {
    depart(rank);
  }
}

void Job::run_next_later(int rank, Clock::duration most) {
  world_.after(world_.between(microseconds(0), most), [this, rank] { run_next(rank); });
}

// Injects the faults that come with the next call; true: the rank is gone with one of them.
bool Job::meets_a_fault(int rank) {
  Rank& one = at(rank);
  for (const Fault& fault : plan_.faults) {
    if (fault.rank != rank || fault.call > one.next) {
      continue;
    }
    if (fault.kind == FaultKind::kLeave) {
      inject(fault);
      return true;
    }
    const std::uint32_t group = plan_.calls[one.calls[one.next]].group;
    if (fault.kind == FaultKind::kEarlyDestroy && one.groups.contains(group) &&
        !one.destroyed.contains(group)) {
      blame(rank, group);
      destroy_group(rank, group);
    }
  }
  return false;
}

// False: it must wait until the calls of the group that it replaces are complete.
bool Job::make_group(int rank, std::uint32_t group) {
  Rank& one = at(rank);
  if (one.groups.contains(group)) {
    return true;
  }
  if (const auto old = plan_.replaces.find(group); old != plan_.replaces.end()) {
    if (has_open_calls(rank, old->second)) {
      return false;
    }
    destroy_group(rank, old->second);
  }
  one.groups[group] = *one.engine->create_group(plan_.groups[group], name_of_group(group), 0);
  return true;
}

void Job::destroy_group(int rank, std::uint32_t group) {
  Rank& one = at(rank);
  if (one.destroyed.insert(group).second) {
    world_.note(rank, group, [&] { return "destroys group " + std::to_string(group); });
    one.engine->destroy_group(one.groups.at(group));
  }
}

bool Job::has_open_calls(int rank, std::optional<std::uint32_t> group) const {
  return std::ranges::any_of(at(rank).made, [&](const auto& made) {
    return !made->is_over() && (!group || plan_.calls[made->number].group == *group);
  });
}

void Job::make_call(int rank, std::uint32_t number) {
  const PlannedCall& planned = plan_.calls[number];
  const auto& members = plan_.groups[planned.group];
  auto made = std::make_unique<CallOnRank>();
  CallOnRank& one = *made;
  one.number = number;
  one.what = planned.what;
  one.group_rank = static_cast<int>(std::ranges::find(members, rank) - members.begin());
  one.name = name_of_call(rank, number);
  for (const Fault& fault : plan_.faults) {
    if (fault.kind == FaultKind::kOtherCall && fault.rank == rank && fault.call == number &&
        !is_made_of_messages(one.what.collective)) {
      one.what.count += 1;
      blame(rank, planned.group);
    }
  }
  one.values = values_before(plan_, number, one.what, one.group_rank);
  one.handle = std::make_shared<OperationHandle>(
      [this, rank, &one](const Status& status) { over(rank, one, status); });
  one.at = world_.now();
  world_.note(rank, number, [&] {
    PlannedCall call = planned;
    call.what = one.what;
    return "makes call " + std::to_string(number) + ", " + one.name + ": " + simulation::describe(call);
  });
  at(rank).made.push_back(std::move(made));
  one.refused = at(rank).engine->submit(at(rank).groups.at(planned.group), static_cast<int>(members.size()),
                                        one.group_rank, call_of(one, planned));
}

Call Job::call_of(CallOnRank& made, const PlannedCall& planned) {
  Call call;
  call.what = made.what;
  if (planned.what.collective == Collective::kSend && made.group_rank == planned.to) {
    call.what.collective = Collective::kRecv;
  }
  if (is_made_of_messages(made.what.collective)) {
    call.what.root = 0;
    call.tag = made.number % 2;
  }
  call.keyed = planned.keyed;
  call.step = planned.step;
  call.index = planned.index;
  call.buffers = planned.buffers;
  made.values.lend(call);
  call.handle = made.handle;
  return call;
}

void Job::over(int rank, CallOnRank& made, const Status& status) {
  const Uncounted spared;
  made.ended = world_.now();
  made.digest = status.ok() ? 0 : made.values.digest();
  world_.note(rank, made.number << 8U | static_cast<std::uint64_t>(status.code()), [&] {
    return "call " + std::to_string(made.number) + " ends" + (status.ok() ? "" : ": " + status.message());
  });
  if (std::exchange(at(rank).waits, false)) {
    run_next_later(rank, microseconds(100));
  }
}

// The first of the groups that replace each other.
std::string Job::name_of_group(std::uint32_t group) const {
  while (plan_.replaces.contains(group)) {
    group = plan_.replaces.at(group);
  }
  return "group " + std::to_string(group);
}

// Named by its step, or numbered in the order of this rank's calls; messages, which not all ranks send, have
// their own numbers.
std::string Job::name_of_call(int rank, std::uint32_t number) const {
  const PlannedCall& planned = plan_.calls[number];
  const std::string where = " of group '" + name_of_group(planned.group) + "'";
  if (planned.keyed) {
    return "buffer (step " + std::to_string(planned.step) + ", index " + std::to_string(planned.index) + ")" +
           where;
  }
  const bool is_message = is_made_of_messages(planned.what.collective);
  const auto before = std::ranges::count_if(at(rank).made, [&](const auto& made) {
    const PlannedCall& other = plan_.calls[made->number];
    return other.group == planned.group && !other.keyed &&
           is_made_of_messages(other.what.collective) == is_message;
  });
  return (is_message ? "message call " : "operation ") + std::to_string(before) + where;
}

// -- Faults ----------------------------------------------------------------------------------------

void Job::inject(const Fault& fault) {
  Rank& one = at(fault.rank);
  world_.note(fault.rank, static_cast<std::uint64_t>(fault.kind),
              [&] { return simulation::describe(fault); });
  if (one.is_gone) {
    return;
  }
  if (holds_up(fault.kind)) {
    one.was_paused = true;
    const bool leaps = fault.kind == FaultKind::kClockJump;
    paused_until_ = std::max(paused_until_, world_.now() + (leaps ? Clock::duration{} : ms(fault.for_ms)));
    if (is_tight_) {
      blame(fault.rank);
    }
  }
  switch (fault.kind) {
    case FaultKind::kDeath:
    case FaultKind::kDeathInClosing:
      kill(fault.rank, false);
      return;
    case FaultKind::kHostDeath:
      for (int rank = 0; rank < size(); ++rank) {
        if (host(rank) == host(fault.rank)) {
          kill(rank, true);
        }
      }
      return;
    case FaultKind::kCut:
      wires_.cut(fault.other_host, host(fault.rank));
      [[fallthrough]];
    case FaultKind::kOneWayCut:
      wires_.cut(host(fault.rank), fault.other_host);
      blame_cut(host(fault.rank), fault.other_host);
      return;
    case FaultKind::kPause:
      one.executor->pause_until(world_.now() + ms(fault.for_ms));
      delayed_ += ms(fault.for_ms);
      return;
    case FaultKind::kClockJump:
      one.executor->leap(ms(fault.for_ms));
      return;
    case FaultKind::kLostMemory:
      one.executor->lose_memory(fault.allocations, [this, rank = fault.rank] {
        world_.note(rank, 0, [] { return "has lost memory"; });
        at(rank).has_lost_memory = true;
        blame(rank);
      });
      return;
    case FaultKind::kLeave:
      blame(fault.rank);
      one.is_gone = true;
      depart(fault.rank);
      return;
    case FaultKind::kSlowNetwork:
      wires_.slow_down(50);
      memory_.slow_down(5);
      return;
    case FaultKind::kLate:          // open() waits
    case FaultKind::kEarlyDestroy:  // in meets_a_fault()
    case FaultKind::kOtherCall:     // in make_call()
      return;
  }
}

// From now on calls may blame this rank: those of the given group, or of all its groups.
void Job::blame(int rank, std::optional<std::uint32_t> group) {
  any_call_may_fail_ = true;
  for (std::uint32_t each = 0; each < plan_.groups.size(); ++each) {
    if (group.value_or(each) == each && is_member(rank, each)) {
      Blame& guilt = blame_[each];
      guilt.since = guilt.ranks.empty() ? world_.now() : guilt.since;
      guilt.ranks.insert(rank);
    }
  }
}

void Job::blame_cut(int one, int other) {
  any_call_may_fail_ = true;
  for (std::uint32_t group = 0; group < plan_.groups.size(); ++group) {
    const auto has = [&](int its_host) {
      return std::ranges::any_of(plan_.groups[group], [&](int rank) { return host(rank) == its_host; });
    };
    if (!has(one) || !has(other)) {
      continue;
    }
    for (const int rank : plan_.groups[group]) {
      if (host(rank) == one || host(rank) == other) {
        blame(rank, group);
      }
    }
  }
}

void Job::kill(int rank, bool host_too) {
  Rank& one = at(rank);
  blame(rank);
  one.is_gone = true;
  if (one.engine) {
    one.engine->abandon();
    one.engine.reset();
    wires_.kill(rank, host_too);
    if (!host_too) {
      memory_.kill(rank, false);
    }
  }
}

void Job::depart(int rank) {
  Rank& one = at(rank);
  if (one.engine && !one.has_departed) {
    one.has_departed = true;
    world_.note(rank, 0, [] { return "closes its engine"; });
    one.engine->depart();
  }
}

// -- The end --------------------------------------------------------------------------------------------

bool Job::calls_are_over() const {
  return std::ranges::all_of(ranks_, [](const Rank& one) { return one.is_gone || one.is_over; });
}

bool Job::has_closed(const Rank& one) const {
  return !one.engine || (one.has_departed && (one.engine->is_alone() ||
                                              world_.now() - closing_ > seconds(plan_.heartbeat_s + 6)));
}

Verdict Job::run() {
  open();
  wires_.breach(plan_.breach, plan_.breached);
  memory_.breach(plan_.breach, plan_.breached);
  for (const Fault& fault : plan_.faults) {
    if (fault.kind == FaultKind::kLate) {
      inject(fault);
    } else if (!is_at_a_call(fault.kind) && fault.kind != FaultKind::kDeathInClosing) {
      world_.after(ms(fault.at_ms), [this, &fault] { inject(fault); });
    }
  }
  while (!calls_are_over() && world_.age() < seconds(kHorizon) && world_.step()) {
  }
  if (!calls_are_over()) {
    wrong("after " + std::to_string(static_cast<int>(kHorizon)) + " s not every call has ended");
  }
  // Memory offered within a host is released a moment after the calls.
  Clock::duration pauses{};
  for (const Fault& fault : plan_.faults) {
    pauses += fault.kind == FaultKind::kPause ? ms(fault.for_ms + fault.at_ms) : Clock::duration{};
  }
  const TimePoint quiet = world_.now() + pauses + seconds(1);
  while (world_.now() < quiet && world_.step()) {
  }
  judge();
  if (!verdict_.wrong.empty()) {
    verdict_.timeline = world_.timeline(kTimeline);
  }
  close();
  verdict_.was_breached = wires_.was_breached() || memory_.was_breached();
  verdict_.messages = wires_.messages() + memory_.messages();
  for (Rank& one : ranks_) {
    one.engine.reset();
  }
  world_.end();
  verdict_.hash = world_.hash();
  if (verdict_.timeline.empty()) {
    verdict_.timeline = world_.timeline(kTimeline);
  }
  return std::move(verdict_);
}

void Job::close() {
  closing_ = world_.now();
  for (const Fault& fault : plan_.faults) {
    if (fault.kind == FaultKind::kDeathInClosing) {
      world_.after(ms(fault.at_ms), [this, &fault] { inject(fault); });
    }
  }
  for (int rank = 0; rank < size(); ++rank) {
    world_.after(world_.between(microseconds(0), milliseconds(2)), [this, rank] { depart(rank); });
  }
  const auto is_closed = [this](const Rank& one) { return has_closed(one); };
  while (world_.age() < seconds(kHorizon * 2) && !std::ranges::all_of(ranks_, is_closed) && world_.step()) {
  }
  if (!any_call_may_fail_ &&
      !std::ranges::all_of(ranks_, [](const Rank& one) { return one.engine->is_alone(); })) {
    wrong("a rank did not hear every goodbye");
  }
}

}  // namespace smdp::simulation
