#include "scenario.h"

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <stdexcept>
#include <utility>

#include "engine.h"
#include "values.h"
#include "virtual_executor.h"
#include "virtual_network.h"
#include "world.h"

namespace smdp::simulation {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr double kSlack = 1.5;    // seconds for the ticks and the words between a failure and its report
constexpr double kHorizon = 120;  // seconds of the world in which every job is over
constexpr std::size_t kTimeline = 40;

Clock::duration ms(double value) { return seconds(value / 1000); }

bool is_hard(FaultKind kind) { return kind != FaultKind::kPause && kind != FaultKind::kSlowNetwork; }

// One call on one rank.
struct Made {
  std::uint32_t number = 0;
  Descriptor what;
  int group_rank = 0;
  Values values;
  std::shared_ptr<OperationHandle> handle;
  Status refused;
  TimePoint at{};
  TimePoint ended{};
};

class Job {
 public:
  Job(const JobPlan& plan, bool records);
  Verdict run();

 private:
  struct Rank {
    std::vector<std::unique_ptr<Made>> made;  // outlives the engine, which writes to it
    std::unique_ptr<Engine> engine;
    VirtualExecutor* executor = nullptr;  // the engine's
    std::vector<std::uint64_t> groups;
    std::vector<std::uint32_t> calls;  // numbers of those that it makes, in its order
    std::size_t next = 0;              // of them
    bool has_begun = false;
    bool is_gone = false;  // it died, or left early: nothing is asked of it
    bool has_departed = false;
    TimePoint departed{};
  };

  void open();
  EngineParts parts_of(int rank, Arena arena);
  void begin(int rank);
  [[nodiscard]] std::vector<std::uint32_t> calls_of(int rank);
  void go_on(int rank);
  void make_call(int rank, std::uint32_t number);
  void strike(const Fault& fault);
  void kill(int rank, bool host_too);
  void depart(int rank);
  [[nodiscard]] bool calls_are_over() const;
  [[nodiscard]] bool has_closed(const Rank& one) const;
  void judge();
  void judge_call(int rank, const Made& made);
  void wrong(const std::string& text) { verdict_.wrong.push_back(text); }
  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  const JobPlan& plan_;
  World world_;
  std::vector<int> host_of_;
  VirtualNetwork wires_;
  VirtualNetwork memory_;
  std::vector<Mapping> readable_;  // each rank's shared memory, as the others of its host read it
  std::vector<Rank> ranks_;
  std::set<int> guilty_;       // ranks that a report may name
  TimePoint struck_{};         // when the first fault did that calls may fail of
  Clock::duration delayed_{};  // by pauses
  Verdict verdict_;
};

NetworkCosts wire_costs(const JobPlan& plan) {
  return {1.25e9, microseconds(15), microseconds(400), seconds(plan.heartbeat_s)};
}

NetworkCosts memory_costs(const JobPlan& plan) {
  return {8e9, microseconds(1), microseconds(30), seconds(plan.heartbeat_s)};
}

Job::Job(const JobPlan& plan, bool records)
    : plan_(plan),
      world_(plan.seed, records),
      host_of_(host_of(plan)),
      wires_(world_, VirtualNetwork::Reach::kBetweenHosts, wire_costs(plan), host_of_),
      memory_(world_, VirtualNetwork::Reach::kWithinHosts, memory_costs(plan), host_of_),
      ranks_(host_of_.size()) {}

Options options_of(const JobPlan& plan) {
  Options options;
  options.heartbeat_s = plan.heartbeat_s;
  options.operation_timeout_s = plan.timeout_s;
  options.warn_s = plan.timeout_s / 4;
  options.piece_kib = plan.piece_kib;
  options.small_kib = plan.small_kib;
  options.bulk_kib = plan.bulk_kib;
  options.buffers_in_flight = plan.buffers_in_flight;
  options.flight_records = 16;
  options.kernels = "portable";
  return options;
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
  for (std::size_t peer = 0; peer < ranks_.size(); ++peer) {
    if (std::cmp_not_equal(peer, rank) && host_of_[peer] == host_of_[static_cast<std::size_t>(rank)]) {
      parts.peer_arenas[static_cast<int>(peer)] = readable_[peer].bytes();
    }
  }
  parts.local = memory_.attach(*executor, rank);
  parts.network = wires_.attach(*executor, rank);
  parts.executor = std::move(executor);
  return parts;
}

void Job::open() {
  std::vector<Arena> arenas;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    auto arena = Arena::create(static_cast<std::size_t>(plan_.arena_mib) << 20U);
    auto mapping = arena.ok() ? map_read_only(arena->fd()) : Result<Mapping>(arena.status());
    if (!mapping.ok()) {
      throw std::runtime_error(mapping.status().message());
    }
    arenas.push_back(std::move(*arena));
    readable_.push_back(std::move(*mapping));
  }
  for (int rank = 0; std::cmp_less(rank, ranks_.size()); ++rank) {
    EngineConfig config;
    config.identity.rank = rank;
    config.identity.world_size = static_cast<int>(ranks_.size());
    config.identity.build = "world";
    config.options = options_of(plan_);
    config.log = [this, rank](LogLevel level, const std::string& text) {
      world_.note(rank, static_cast<std::uint64_t>(level), [&] { return "says: " + text; });
    };
    auto engine =
        Engine::make(std::move(config), parts_of(rank, std::move(arenas[static_cast<std::size_t>(rank)])));
    at(rank).engine = std::move(*engine);
    world_.after(world_.between(microseconds(0), milliseconds(2)), [this, rank] { begin(rank); });
  }
}

// The groups, and the first call.
void Job::begin(int rank) {
  Rank& one = at(rank);
  if (one.is_gone) {
    return;
  }
  for (std::uint32_t group = 0; group < plan_.groups.size(); ++group) {
    const auto& members = plan_.groups[group];
    const bool is_member = std::ranges::find(members, rank) != members.end();
    const auto made = is_member ? one.engine->create_group(members, "group " + std::to_string(group), 0)
                                : Result<std::uint64_t>(std::uint64_t{0});
    one.groups.push_back(*made);
  }
  one.calls = calls_of(rank);
  one.has_begun = true;
  go_on(rank);
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
void Job::go_on(int rank) {
  Rank& one = at(rank);
  if (one.is_gone || one.next == one.calls.size()) {
    return;
  }
  for (const Fault& fault : plan_.faults) {
    if (fault.kind == FaultKind::kLeave && fault.rank == rank && fault.call <= one.next) {
      strike(fault);
      return;
    }
  }
  make_call(rank, one.calls[one.next++]);
  world_.after(world_.between(microseconds(0), milliseconds(1)), [this, rank] { go_on(rank); });
}

void Job::make_call(int rank, std::uint32_t number) {
  const PlannedCall& planned = plan_.calls[number];
  const auto& members = plan_.groups[planned.group];
  const auto group_rank = static_cast<int>(std::ranges::find(members, rank) - members.begin());
  auto made = std::make_unique<Made>();
  Made& one = *made;
  one.number = number;
  one.what = planned.what;
  for (const Fault& fault : plan_.faults) {
    if (fault.kind == FaultKind::kOtherCall && fault.rank == rank && fault.call == number &&
        !is_made_of_messages(one.what.collective)) {
      one.what.count += 1;
      guilty_.insert(rank);
      struck_ = struck_ == TimePoint{} ? world_.now() : struck_;
    }
  }
  one.group_rank = group_rank;
  one.values = values_before(plan_, number, one.what, group_rank);
  one.handle = std::make_shared<OperationHandle>([this, rank, number, entry = &one](const Status& status) {
    entry->ended = world_.now();
    world_.note(rank, number << 8U | static_cast<std::uint64_t>(status.code()), [&] {
      return "call " + std::to_string(number) + " ends" + (status.ok() ? "" : ": " + status.message());
    });
  });
  Call call;
  call.what = one.what;
  if (planned.what.collective == Collective::kSend && group_rank == planned.to) {
    call.what.collective = Collective::kRecv;
  }
  if (is_made_of_messages(one.what.collective)) {
    call.what.root = 0;
    call.tag = number;
  }
  call.keyed = planned.keyed;
  call.step = planned.step;
  call.index = planned.index;
  call.buffers = planned.buffers;
  one.values.lend(call);
  call.handle = one.handle;
  one.at = world_.now();
  world_.note(rank, number,
              [&] { return "makes call " + std::to_string(number) + ", " + smdp::describe(one.what); });
  at(rank).made.push_back(std::move(made));
  one.refused = at(rank).engine->submit(at(rank).groups[planned.group], static_cast<int>(members.size()),
                                        group_rank, std::move(call));
}

// -- What goes wrong ----------------------------------------------------------------------------------------

void Job::strike(const Fault& fault) {
  const int host = host_of_[static_cast<std::size_t>(fault.rank)];
  world_.note(fault.rank, static_cast<std::uint64_t>(fault.kind),
              [&] { return simulation::describe(fault); });
  if (is_hard(fault.kind) && struck_ == TimePoint{}) {
    struck_ = world_.now();
  }
  switch (fault.kind) {
    case FaultKind::kDeath:
      kill(fault.rank, false);
      return;
    case FaultKind::kHostDeath:
      for (int rank = 0; std::cmp_less(rank, ranks_.size()); ++rank) {
        if (host_of_[static_cast<std::size_t>(rank)] == host) {
          kill(rank, true);
        }
      }
      return;
    case FaultKind::kCut:
      for (int rank = 0; std::cmp_less(rank, ranks_.size()); ++rank) {
        const int its_host = host_of_[static_cast<std::size_t>(rank)];
        if (its_host == host || its_host == fault.other_host) {
          guilty_.insert(rank);
        }
      }
      wires_.cut(host, fault.other_host);
      return;
    case FaultKind::kPause:
      if (!at(fault.rank).is_gone) {
        at(fault.rank).executor->pause_until(world_.now() + ms(fault.for_ms));
        delayed_ += ms(fault.for_ms);
      }
      return;
    case FaultKind::kLeave:
      guilty_.insert(fault.rank);
      at(fault.rank).is_gone = true;
      depart(fault.rank);
      return;
    case FaultKind::kSlowNetwork:
      wires_.slow_down(50);
      memory_.slow_down(5);
      return;
    case FaultKind::kOtherCall:
      return;  // in make_call()
  }
}

void Job::kill(int rank, bool host_too) {
  Rank& one = at(rank);
  guilty_.insert(rank);
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
    one.departed = world_.now();
    one.engine->depart();
  }
}

// -- How it ends --------------------------------------------------------------------------------------------

bool Job::calls_are_over() const {
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const Rank& one = ranks_[rank];
    if (one.is_gone) {
      continue;
    }
    if (!one.has_begun || one.next < one.calls.size() ||
        std::ranges::any_of(
            one.made, [](const auto& made) { return made->refused.ok() && !made->handle->is_complete(); })) {
      return false;
    }
  }
  return true;
}

bool Job::has_closed(const Rank& one) const {
  return !one.engine || (one.has_departed && (one.engine->is_alone() ||
                                              world_.now() - one.departed > seconds(plan_.heartbeat_s + 6)));
}

Verdict Job::run() {
  open();
  wires_.breach(plan_.breach, plan_.breached);
  memory_.breach(plan_.breach, plan_.breached);
  for (const Fault& fault : plan_.faults) {
    if (fault.kind != FaultKind::kLeave && fault.kind != FaultKind::kOtherCall) {
      world_.after(ms(fault.at_ms), [this, &fault] { strike(fault); });
    }
  }
  const Clock::duration horizon = seconds(kHorizon);
  while (!calls_are_over() && world_.age() < horizon && world_.step()) {
  }
  if (!calls_are_over()) {
    wrong("after " + std::to_string(static_cast<int>(kHorizon)) + " s not every call has ended");
  }
  // What was lent within a host comes back a moment after the calls.
  Clock::duration pauses{};
  for (const Fault& fault : plan_.faults) {
    pauses += fault.kind == FaultKind::kPause ? ms(fault.for_ms + fault.at_ms) : Clock::duration{};
  }
  const TimePoint quiet = world_.now() + pauses + seconds(1);
  while (world_.now() < quiet && world_.step()) {
  }
  judge();
  for (int rank = 0; std::cmp_less(rank, ranks_.size()); ++rank) {
    depart(rank);
  }
  while (world_.age() < horizon * 2 &&
         !std::ranges::all_of(ranks_, [this](const Rank& one) { return has_closed(one); }) && world_.step()) {
  }
  if (struck_ == TimePoint{}) {
    for (const Rank& one : ranks_) {
      if (!one.engine->is_alone()) {
        wrong("a rank did not hear every goodbye");
        break;
      }
    }
  }
  verdict_.was_breached = wires_.was_breached() || memory_.was_breached();
  verdict_.messages = wires_.messages() + memory_.messages();
  for (Rank& one : ranks_) {
    one.engine.reset();
  }
  verdict_.hash = world_.hash();
  verdict_.timeline = world_.timeline(kTimeline);
  return std::move(verdict_);
}

// -- The judge ----------------------------------------------------------------------------------------------

void Job::judge() {
  for (int rank = 0; std::cmp_less(rank, ranks_.size()); ++rank) {
    const Rank& one = at(rank);
    if (one.is_gone) {
      continue;
    }
    for (const auto& made : one.made) {
      judge_call(rank, *made);
    }
    if (struck_ == TimePoint{} && one.engine->regions_in_use() != 0) {
      wrong("rank " + std::to_string(rank) + " has " + std::to_string(one.engine->regions_in_use()) +
            " regions of shared memory in use, and no call under way");
    }
  }
}

void Job::judge_call(int rank, const Made& made) {
  const std::string name = "call " + std::to_string(made.number) + " on rank " + std::to_string(rank);
  if (made.refused.ok() && !made.handle->is_complete()) {
    return;  // it was told that not all have ended
  }
  const Status& status = made.refused.ok() ? made.handle->status() : made.refused;
  if (status.ok()) {
    if (!are_right(made.values, plan_, made.number, made.what, made.group_rank)) {
      wrong(name + " has another result than the reference");
    }
    return;
  }
  ++verdict_.failures;
  if (struck_ == TimePoint{}) {
    wrong(name + " failed, and nothing was wrong: " + status.message());
    return;
  }
  const bool names_one = std::ranges::any_of(guilty_, [&](int guilty) {
    return status.message().find("rank " + std::to_string(guilty) + " (") != std::string::npos;
  });
  if (!names_one) {
    wrong(name + " names none of those that failed: " + status.message());
  }
  const TimePoint known = std::max(made.at, struck_) + seconds(plan_.heartbeat_s + kSlack) + delayed_ * 2;
  const TimePoint deadline = made.at + seconds(plan_.timeout_s + kSlack) + delayed_ * 2;
  if (made.refused.ok() && made.ended > std::max(known, deadline)) {
    wrong(name + " outlived its deadline");
  } else if (made.refused.ok() && status.code() != Code::kTimeout && made.ended > known) {
    wrong(name + " ended late: " + status.message());
  }
}

}  // namespace

Verdict run(const JobPlan& plan, bool records) { return Job(plan, records).run(); }

JobPlan shrink(const JobPlan& plan) {  // NOLINT(readability-function-cognitive-complexity)
  JobPlan best = plan;
  const auto still_wrong = [&](const JobPlan& smaller) {
    if (run(smaller).wrong.empty()) {
      return false;
    }
    best = smaller;
    return true;
  };
  for (bool smaller = true; smaller;) {
    smaller = false;
    for (std::size_t fault = 0; fault < best.faults.size() && !smaller; ++fault) {
      JobPlan without = best;
      without.faults.erase(without.faults.begin() + static_cast<std::ptrdiff_t>(fault));
      smaller = still_wrong(without);
    }
    for (std::size_t call = 0; call < best.calls.size() && best.calls.size() > 1 && !smaller; ++call) {
      JobPlan without = best;
      without.calls.erase(without.calls.begin() + static_cast<std::ptrdiff_t>(call));
      name_buffers(without);
      for (Fault& fault : without.faults) {
        fault.call = std::min(fault.call, static_cast<std::uint32_t>(without.calls.size() - 1));
      }
      smaller = still_wrong(without);
    }
    for (std::size_t call = 0; call < best.calls.size() && !smaller; ++call) {
      JobPlan halved = best;
      halved.calls[call].what.count /= 2;
      smaller = best.calls[call].what.count > 1 && still_wrong(halved);
    }
  }
  return best;
}

std::string explain(const JobPlan& plan) {
  const JobPlan smallest = shrink(plan);
  const Verdict verdict = run(smallest, true);
  std::string text = describe(smallest) + verdict.timeline;
  for (const std::string& wrong : verdict.wrong) {
    text += "wrong: " + wrong + "\n";
  }
  return text;
}

}  // namespace smdp::simulation
