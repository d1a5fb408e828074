#include "job_plan.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "collectives/call.h"
#include "world.h"

namespace smdp::simulation {

bool is_at_a_call(FaultKind kind) {
  return kind == FaultKind::kLeave || kind == FaultKind::kEarlyDestroy || kind == FaultKind::kOtherCall;
}

std::vector<int> host_of(const JobPlan& plan) {
  std::vector<int> hosts;
  for (std::size_t host = 0; host < plan.hosts.size(); ++host) {
    hosts.insert(hosts.end(), static_cast<std::size_t>(plan.hosts[host]), static_cast<int>(host));
  }
  return hosts;
}

void name_buffers(JobPlan& plan) {
  std::map<std::uint32_t, std::uint32_t> steps;  // by group: step of the last named buffer
  for (std::size_t first = 0; first < plan.calls.size();) {
    std::size_t end = first + 1;
    if (plan.calls[first].keyed) {
      const auto is_of_it = [&](const PlannedCall& other) {
        return other.keyed && other.group == plan.calls[first].group && other.step == plan.calls[first].step;
      };
      while (end < plan.calls.size() && is_of_it(plan.calls[end])) {
        ++end;
      }
      const std::uint32_t step = steps[plan.calls[first].group]++;
      for (std::size_t place = first; place < end; ++place) {
        plan.calls[place].step = step;
        plan.calls[place].index = static_cast<std::uint32_t>(place - first);
        plan.calls[place].buffers = static_cast<std::uint32_t>(end - first);
      }
    }
    first = end;
  }
}

std::string describe(const Fault& fault) {
  static constexpr std::array<const char*, kFaultKinds> kNames = {"dies",
                                                                  "dies with its host",
                                                                  "loses host",
                                                                  "does not reach host",
                                                                  "is paused",
                                                                  "sees its clock leap",
                                                                  "begins late",
                                                                  "loses memory",
                                                                  "leaves",
                                                                  "destroys the group",
                                                                  "makes another call",
                                                                  "dies while all close",
                                                                  "sees a slow network"};
  std::string text = kNames.at(static_cast<std::size_t>(fault.kind));
  switch (fault.kind) {
    case FaultKind::kCut:
    case FaultKind::kOneWayCut:
      text += " " + std::to_string(fault.other_host);
      break;
    case FaultKind::kPause:
    case FaultKind::kClockJump:
      text += " for " + std::to_string(fault.for_ms) + " ms";
      break;
    case FaultKind::kLate:
      return text + ", by " + std::to_string(fault.for_ms) + " ms";
    case FaultKind::kLostMemory:
      text += " with allocation " + std::to_string(fault.allocations);
      break;
    default:
      break;
  }
  return is_at_a_call(fault.kind) ? text + " at call " + std::to_string(fault.call)
                                  : text + " after " + std::to_string(fault.at_ms) + " ms";
}

std::string describe(const PlannedCall& call) {
  if (call.what.collective == Collective::kSend) {
    return "rank " + std::to_string(call.what.root) + " of the group sends rank " + std::to_string(call.to) +
           " " + std::to_string(call.what.count) + " bytes or a few more";
  }
  Descriptor what = call.what;
  what.root = has_root(what.collective) ? what.root : 0;
  return smdp::describe(what);
}

std::string describe(const JobPlan& plan) {
  std::string text = "seed " + std::to_string(plan.seed) + ": hosts of";
  for (const int ranks : plan.hosts) {
    text += " " + std::to_string(ranks);
  }
  text += " ranks; pieces of " + std::to_string(plan.piece_kib) + " KiB, " +
          std::to_string(plan.buffers_in_flight) + " buffers in flight, " +
          (plan.copy_threads > 0 ? "copy threads, " : "") + "deadlines of " + std::to_string(plan.timeout_s) +
          " s";
  text += plan.buffer_kib > 0 ? ", " + std::to_string(plan.buffer_kib) + " KiB under way to a rank\n" : "\n";
  for (std::uint32_t group = 0; group < plan.groups.size(); ++group) {
    text += "  group " + std::to_string(group) + ": ranks";
    for (const int rank : plan.groups[group]) {
      text += " " + std::to_string(rank);
    }
    const auto replaced = plan.replaces.find(group);
    text += replaced == plan.replaces.end()
                ? "\n"
                : "; made anew when group " + std::to_string(replaced->second) + " is destroyed\n";
  }
  if (plan.destroys_groups) {
    text += "  each rank destroys its groups when its calls are complete\n";
  }
  if (plan.closes_early) {
    text += "  each rank closes its engine when its calls are complete\n";
  }
  std::uint32_t place = 0;
  for (const PlannedCall& call : plan.calls) {
    text += "  call " + std::to_string(place++) + " in group " + std::to_string(call.group) + ": " +
            describe(call);
    text += call.keyed ? ", buffer (" + std::to_string(call.step) + ", " + std::to_string(call.index) + ")\n"
                       : "\n";
  }
  for (const Fault& fault : plan.faults) {
    text += "  rank " + std::to_string(fault.rank) + " " + describe(fault) + "\n";
  }
  return text;
}

// -- Plans --------------------------------------------------------------------------------------------------

namespace {

// Small sizes are frequent, large ones possible.
std::uint64_t draw_count(World& chance) {
  const std::uint64_t bound = 1ULL << chance.below(14);
  return chance.chance(0.05) ? 0 : chance.below(bound) + 1;
}

PlannedCall draw_call(World& chance, const std::vector<std::vector<int>>& groups) {
  static constexpr std::array kTypes = {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kInt32,
                                        DType::kUInt8};
  static constexpr std::array kOps = {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMin, ReduceOp::kMax};
  PlannedCall call;
  call.group = static_cast<std::uint32_t>(chance.below(groups.size()));
  // Training calls sums most often.
  call.what.collective =
      chance.chance(0.5) ? Collective::kAllReduce : static_cast<Collective>(chance.below(6));
  call.what.dtype = kTypes.at(chance.below(kTypes.size()));
  call.what.op = reduces(call.what.collective) ? kOps.at(chance.below(kOps.size())) : ReduceOp::kSum;
  call.what.count = call.what.collective == Collective::kBarrier ? 0 : draw_count(chance);
  if (has_root(call.what.collective)) {
    call.what.root = static_cast<std::uint32_t>(chance.below(groups[call.group].size()));
  }
  return call;
}

// One call, or the buffers of a step.
void draw_calls(World& chance, JobPlan& plan) {
  PlannedCall call = draw_call(chance, plan.groups);
  const std::size_t ranks = plan.groups[call.group].size();
  if (chance.chance(0.25)) {
    static constexpr std::array kKinds = {Collective::kSend, Collective::kSend, Collective::kGather,
                                          Collective::kScatter, Collective::kAllToAll};
    call.what = {kKinds.at(chance.below(kKinds.size())), DType::kUInt8, ReduceOp::kSum, 0,
                 draw_count(chance)};
    if (ranks <= 8 && chance.chance(0.4)) {
      call.what.count *= 8;
    }
    if (call.what.collective == Collective::kSend && chance.chance(0.05)) {
      call.what.count = 200'000 + chance.below(500'000);  // of several parts
    }
    call.what.root = static_cast<std::uint32_t>(chance.below(ranks));
    call.to = static_cast<int>((call.what.root + 1 + chance.below(ranks - 1)) % ranks);
  } else if (chance.chance(0.25)) {
    call.what.collective = Collective::kAllReduce;
    call.what.root = 0;
    call.keyed = true;
    call.step = plan.calls.empty() ? 0 : plan.calls.back().step + 1;
    for (std::uint64_t more = chance.below(4); more > 0; --more) {
      call.what.count = draw_count(chance);
      plan.calls.push_back(call);
    }
  } else if (ranks <= 8 && chance.chance(0.1)) {
    call.what.count *= 16;  // more pieces than a window has
  }
  plan.calls.push_back(call);
}

// Short, long, or about as long as a call may take.
double draw_hold_up(World& chance, const JobPlan& plan) {
  if (chance.chance(0.6)) {
    return static_cast<double>(chance.below(50));
  }
  if (chance.chance(0.5)) {
    return static_cast<double>(chance.below(3000));
  }
  return plan.timeout_s * 1000 + static_cast<double>(chance.below(120)) - 60;
}

Fault draw_fault(World& chance, const JobPlan& plan, int ranks) {
  Fault fault;
  fault.kind = static_cast<FaultKind>(chance.below(kFaultKinds));
  fault.rank = static_cast<int>(chance.below(static_cast<std::uint64_t>(ranks)));
  fault.at_ms = static_cast<double>(chance.below(chance.chance(0.5) ? 3000 : 12000)) / 1000;
  fault.for_ms = draw_hold_up(chance, plan);
  fault.call = static_cast<std::uint32_t>(chance.below(plan.calls.size()));
  fault.allocations = static_cast<std::uint32_t>(1 + chance.below(1ULL << chance.below(9)));
  const int host = host_of(plan)[static_cast<std::size_t>(fault.rank)];
  const auto hosts = plan.hosts.size();
  fault.other_host = static_cast<int>((static_cast<std::size_t>(host) + 1 + chance.below(hosts)) % hosts);
  if ((fault.kind == FaultKind::kCut || fault.kind == FaultKind::kOneWayCut) && fault.other_host == host) {
    fault.kind = FaultKind::kPause;
  }
  return fault;
}

void draw_hosts(World& chance, JobPlan& plan) {
  const std::uint64_t most_hosts = chance.chance(0.02) ? 8 : 4;
  const std::uint64_t most_ranks = chance.chance(0.02) ? 8 : 3;
  plan.hosts.resize(1 + chance.below(most_hosts));
  for (int& ranks : plan.hosts) {
    ranks = static_cast<int>(1 + chance.below(most_ranks));
  }
  if (plan.hosts == std::vector<int>{1}) {
    plan.hosts = {1, 1};
  }
  if (chance.chance(0.001)) {  // one of the largest jobs takes as long as many others
    plan.hosts.assign(8, kMostRanks / 8);
  }
}

// Moves the later calls of one group to another group of the same name, which is created after the first one
// is destroyed.
void replace_a_group(World& chance, JobPlan& plan) {
  const auto first = static_cast<std::uint32_t>(chance.below(plan.groups.size()));
  const auto again = static_cast<std::uint32_t>(plan.groups.size());
  plan.groups.push_back(plan.groups[first]);
  plan.replaces[again] = first;
  std::size_t from = chance.below(plan.calls.size() + 1);
  while (from > 0 && from < plan.calls.size() && plan.calls[from].keyed && plan.calls[from - 1].keyed) {
    ++from;  // not between the buffers of a step
  }
  for (; from < plan.calls.size(); ++from) {
    PlannedCall& call = plan.calls[from];
    call.group = call.group == first ? again : call.group;
  }
}

}  // namespace

JobPlan draw_plan(std::uint64_t seed) {
  World chance(seed, false);
  JobPlan plan;
  plan.seed = seed;
  draw_hosts(chance, plan);
  const int ranks = std::accumulate(plan.hosts.begin(), plan.hosts.end(), 0);
  std::vector<int> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  plan.groups.push_back(all);
  if (ranks > 2 && chance.chance(0.3)) {
    std::vector<int> some;
    std::ranges::copy_if(all, std::back_inserter(some), [&](int) { return chance.chance(0.6); });
    if (some.size() > 1) {
      plan.groups.push_back(some);
    }
  }
  plan.piece_kib = 1 << (2 + chance.below(4));
  plan.small_kib = 1 << chance.below(6);
  plan.bulk_kib = plan.piece_kib << chance.below(4);
  plan.buffers_in_flight = static_cast<int>(1 + chance.below(4));
  plan.window = static_cast<int>(1 + chance.below(16));
  plan.copy_threads = chance.chance(0.5) ? 1 : 0;
  plan.arena_mib = chance.chance(0.2) ? 1 : 4;
  plan.buffer_kib = chance.chance(0.3) ? 1 << chance.below(8) : 0;
  plan.timeout_s = chance.chance(0.3) ? 1 + static_cast<double>(chance.below(3)) : 20;
  const std::uint64_t calls = 1 + chance.below(6);
  for (std::uint64_t call = 0; call < calls; ++call) {
    draw_calls(chance, plan);
  }
  if (chance.chance(0.2)) {
    replace_a_group(chance, plan);
  }
  plan.closes_early = chance.chance(0.2);
  plan.destroys_groups = chance.chance(plan.closes_early ? 0.5 : 0.2);
  name_buffers(plan);
  // A third of the jobs have no fault but a network that delays and reorders.
  const std::uint64_t faults = chance.chance(0.33) ? 0 : 1 + chance.below(chance.chance(0.3) ? 3 : 1);
  for (std::uint64_t fault = 0; fault < faults; ++fault) {
    plan.faults.push_back(draw_fault(chance, plan, ranks));
    static constexpr std::array kSlow = {FaultKind::kSlowNetwork, FaultKind::kCut, FaultKind::kOneWayCut,
                                         FaultKind::kHostDeath};
    if (std::ranges::find(kSlow, plan.faults.back().kind) != kSlow.end()) {
      plan.timeout_s =
          20;  // enough for all drawn delays; longer than the time until a peer that is cut off is lost
    }
  }
  return plan;
}

}  // namespace smdp::simulation
