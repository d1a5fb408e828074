// The calls and the faults of a simulated job: drawn from a seed, with a description as text.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernels/types.h"
#include "net/frame.h"
#include "virtual_network.h"

namespace smdp::simulation {

enum class FaultKind : std::uint8_t {
  kDeath,           // a process ends
  kHostDeath,       // a host stops, with all its processes
  kCut,             // two hosts cannot reach each other any more
  kOneWayCut,       // one host cannot reach another, but still receives from it
  kPause,           // a process gets no processor for a while
  kClockJump,       // the clock of a process jumps forward
  kLate,            // a process begins late, when the others are connected to it
  kLostMemory,      // one allocation of a process fails
  kLeave,           // a process closes its engine before its calls are made
  kEarlyDestroy,    // a process destroys a group before its calls are made
  kOtherCall,       // a process makes a different call
  kDeathInClosing,  // a process ends while all close their engines
  kSlowNetwork,     // all messages take longer
};
inline constexpr std::uint8_t kFaultKinds = 13;

struct Fault {
  FaultKind kind = FaultKind::kPause;
  int rank = 0;
  int other_host = 0;
  double at_ms = 0;
  double for_ms = 0;
  std::uint32_t call = 0;
  std::uint32_t allocations = 1;  // until one fails
};

struct PlannedCall {
  Descriptor what;          // of a message: sent by rank `root` of the group
  std::uint32_t group = 0;  // index in JobPlan::groups
  int to = 0;               // of a message
  // Of a buffer named by (step, index, count): the buffers of a step are consecutive in the plan, and each
  // rank submits them in its own order.
  bool keyed = false;
  std::uint32_t step = 0;
  std::uint32_t index = 0;
  std::uint32_t buffers = 0;

  // Whether this rank of the group makes the call.
  [[nodiscard]] bool is_made_by(int group_rank) const {
    return what.collective != Collective::kSend || std::cmp_equal(what.root, group_rank) || to == group_rank;
  }
};

// Everything that a run depends on, except the seed of its world.
struct JobPlan {
  std::vector<int> hosts;  // number of ranks by host
  std::vector<std::vector<int>> groups;
  // By group: an earlier one with the same name and members, which each rank destroys before it creates this
  // one.
  std::map<std::uint32_t, std::uint32_t> replaces;
  bool destroys_groups = false;  // each rank does, as soon as its own calls are complete
  bool closes_early = false;     // each rank closes its engine then
  std::vector<PlannedCall> calls;
  std::vector<Fault> faults;
  std::uint64_t seed = 0;
  double timeout_s = 20;
  double heartbeat_s = 2;
  int piece_kib = 4;
  int small_kib = 4;
  int bulk_kib = 64;
  int buffers_in_flight = 4;
  int window = 16;
  int copy_threads = 0;  // above 0: copies and sums take time, and complete in any order
  int arena_mib = 4;
  int buffer_kib = 0;             // in flight between two ranks, as NetworkCosts::buffer; 0: no limit
  Breach breach = Breach::kNone;  // of the network's contract; the judge must report it
  FrameType breached = FrameType::kPing;
};

// Whether a fault comes with a call instead of at a time.
bool is_at_a_call(FaultKind kind);

inline constexpr std::size_t kMostRanks = 64;  // of a drawn plan
JobPlan draw_plan(std::uint64_t seed);
// A fault or a call as text.
std::string describe(const Fault& fault);
std::string describe(const PlannedCall& call);
std::string describe(const JobPlan& plan);
// Renumbers the buffers of each step after some were removed.
void name_buffers(JobPlan& plan);
// The host of each rank.
std::vector<int> host_of(const JobPlan& plan);

}  // namespace smdp::simulation
