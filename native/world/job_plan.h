// What a simulated job does and meets: drawn from a seed, and described for people.
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
  kCut,             // two hosts do not reach each other any more
  kOneWayCut,       // one host does not reach another, which it still hears
  kPause,           // a process gets no processor for a while
  kLeap,            // the clock of a process leaps forward
  kLate,            // a process begins late, when the others are connected to it
  kLostMemory,      // one allocation of a process fails
  kLeave,           // a process closes its engine before its calls are made
  kEarlyDestroy,    // a process destroys a group before its calls are made
  kOtherCall,       // a process makes another call than the others
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
  Descriptor what;          // of a message: from rank `root` of the group
  std::uint32_t group = 0;  // place in JobPlan::groups
  int to = 0;               // of a message
  // Of a buffer named by (step, index, count): all of a step are behind each other in the plan, and each rank
  // submits them in an order of its own.
  bool keyed = false;
  std::uint32_t step = 0;
  std::uint32_t index = 0;
  std::uint32_t buffers = 0;

  // Whether this rank of the group makes the call.
  [[nodiscard]] bool is_made_by(int group_rank) const {
    return what.collective != Collective::kSend || std::cmp_equal(what.root, group_rank) || to == group_rank;
  }
};

// All that a run depends on, beside the seed of its world.
struct JobPlan {
  std::vector<int> hosts;  // ranks of each
  std::vector<std::vector<int>> groups;
  // By group: an earlier one with the same name and members, which each rank destroys before it makes this.
  std::map<std::uint32_t, std::uint32_t> replaces;
  bool destroys_groups = false;  // each rank, as soon as its own calls are complete
  bool closes_early = false;     // the same, and closes its engine then
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
  int copy_threads = 0;  // any: copies and sums take time, and are done in any order
  int arena_mib = 4;
  int buffer_kib = 0;  // what two ranks may have under way, as NetworkCosts::buffer; 0: as much as they like
  Breach breach = Breach::kNone;  // of the network's promises, which has to be judged wrong
  FrameType breached = FrameType::kPing;
};

// Whether a fault comes with a call, and not at a time.
bool is_at_a_call(FaultKind kind);

inline constexpr std::size_t kMostRanks = 64;  // of a plan that is drawn
JobPlan draw_plan(std::uint64_t seed);
// What a rank meets, or makes.
std::string describe(const Fault& fault);
std::string describe(const PlannedCall& call);
std::string describe(const JobPlan& plan);
// Numbers the buffers of each step again, after some were left out.
void name_buffers(JobPlan& plan);
// The host of each rank.
std::vector<int> host_of(const JobPlan& plan);

}  // namespace smdp::simulation
