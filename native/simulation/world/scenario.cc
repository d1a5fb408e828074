#include "scenario.h"

#include <algorithm>

#include "job.h"

namespace smdp::simulation {

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
