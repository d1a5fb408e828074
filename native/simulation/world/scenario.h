// A job drawn from a seed, run in a world, and judged.
//
// The judge checks: every result equals the reference bit for bit, and no call completes before all ranks
// have made it; without a fault every call succeeds; where a rank fails, every call of its groups ends in the
// stated time and names that rank, and calls of other groups succeed; no call outlives its deadline; at the
// end no resource is in use.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "job_plan.h"

namespace smdp::simulation {

// The result of one call on one rank.
struct End {
  int rank = 0;
  std::uint32_t call = 0;
  Status status;
};

struct Verdict {
  std::vector<std::string> wrong;  // what is wrong with the run
  std::uint64_t hash = 0;
  std::string timeline;  // when the run was recorded
  std::uint64_t messages = 0;
  std::uint64_t failures = 0;  // calls that ended with an error
  std::vector<End> ends;
  std::vector<std::string> warnings;
  bool was_breached = false;  // the plan's breach took place
};

Verdict run(const JobPlan& plan, bool records = false);

// The smallest plan found whose run is judged wrong, as the run of `plan` is.
JobPlan shrink(const JobPlan& plan);

// Describes the run of the smallest such plan: the plan, its timeline, and the verdict.
std::string explain(const JobPlan& plan);

}  // namespace smdp::simulation
