// A job drawn from a seed, run in a world, and judged.
//
// What is judged: every result equals the reference bit for bit, and none is there before all ranks have made
// the call; where nothing failed every call succeeds; where a rank failed, every call of its groups ends in
// the stated time and blames it, and calls of other groups succeed; no call outlives its deadline; and in the
// end nothing is left in use.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "job_plan.h"

namespace smdp::simulation {

// How one call ended on one rank.
struct End {
  int rank = 0;
  std::uint32_t call = 0;
  Status status;
};

struct Verdict {
  std::vector<std::string> wrong;  // empty: the run was right
  std::uint64_t hash = 0;
  std::string timeline;  // where records were kept
  std::uint64_t messages = 0;
  std::uint64_t failures = 0;  // calls that ended with an error
  std::vector<End> ends;
  std::vector<std::string> warnings;
  bool was_breached = false;  // the message came that the plan's breach waited for
};

Verdict run(const JobPlan& plan, bool records = false);

// A plan as small as can be found whose run is judged wrong, as that of `plan` is.
JobPlan shrink(const JobPlan& plan);

// What is wrong with the run of `plan`, at its smallest: the plan, its timeline, and the verdict.
std::string explain(const JobPlan& plan);

}  // namespace smdp::simulation
