// A job drawn from a seed, run in a world, and judged.
//
// What is judged: every sum equals the reference bit for bit; where nothing failed every call succeeds; where
// a rank failed, every call of the others ends in the stated time and names it; no call outlives its
// deadline; and in the end no memory is left in use.
#pragma once

#include <cstdint>
#include <string>
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
  Descriptor what;
  std::uint32_t group = 0;  // place in Plan::groups
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

struct Verdict {
  std::vector<std::string> wrong;  // empty: the run was right
  std::uint64_t hash = 0;
  std::string timeline;  // where records were kept
  std::uint64_t messages = 0;
  std::uint64_t failures = 0;  // calls that ended with an error
  double seconds = 0;          // of the world
  bool was_breached = false;   // the message came that the plan's breach waited for
};

Verdict run(const JobPlan& plan, bool records = false);

// A plan as small as can be found whose run is judged wrong, as that of `plan` is.
JobPlan shrink(const JobPlan& plan);

}  // namespace smdp::simulation
