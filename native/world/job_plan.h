// What a simulated job does and meets: drawn from a seed, and described for people.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/types.h"
#include "net/frame.h"
#include "virtual_network.h"

namespace smdp::simulation {

enum class FaultKind : std::uint8_t {
  kDeath,        // a process ends
  kHostDeath,    // a host stops, with all its processes
  kCut,          // two hosts do not reach each other any more
  kPause,        // a process gets no processor for a while
  kLeave,        // a process closes its engine before its calls are made
  kOtherCall,    // a process makes another call than the others
  kSlowNetwork,  // all messages take longer
};

struct Fault {
  FaultKind kind = FaultKind::kPause;
  int rank = 0;
  int other_host = 0;
  double at_ms = 0;
  double for_ms = 0;
  std::uint32_t call = 0;
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
  std::vector<PlannedCall> calls;
  std::vector<Fault> faults;
  std::uint64_t seed = 0;
  double timeout_s = 20;
  double heartbeat_s = 2;
  int piece_kib = 4;
  int small_kib = 4;
  int bulk_kib = 64;
  int buffers_in_flight = 4;
  int arena_mib = 4;
  Breach breach = Breach::kNone;  // of the network's promises, which has to be judged wrong
  FrameType breached = FrameType::kPing;
};

JobPlan draw_plan(std::uint64_t seed);
std::string describe(const Fault& fault);
std::string describe(const JobPlan& plan);
// Numbers the buffers of each step again, after some were left out.
void name_buffers(JobPlan& plan);
// The host of each rank.
std::vector<int> host_of(const JobPlan& plan);

}  // namespace smdp::simulation
