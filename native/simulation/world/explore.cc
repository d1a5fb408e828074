// Runs simulated jobs of many seeds. Reduces the first that is judged wrong to the smallest plan, and prints
// it:
//
//   explore_world [FIRST [COUNT]]     from seed FIRST (0), COUNT seeds (10,000)
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "scenario.h"

using namespace smdp::simulation;  // NOLINT(google-build-using-namespace)

int main(int argc, char** argv) {
  const std::uint64_t first = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 0;
  const std::uint64_t count = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 10000;
  const auto began = std::chrono::steady_clock::now();
  std::uint64_t hash = 0;
  std::uint64_t messages = 0;
  std::uint64_t failures = 0;
  std::uint64_t largest = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const JobPlan plan = draw_plan(seed);
    const Verdict verdict = run(plan);
    largest += host_of(plan).size() == kMostRanks ? 1 : 0;
    hash = hash * 31 + verdict.hash;
    messages += verdict.messages;
    failures += verdict.failures;
    if (!verdict.wrong.empty()) {
      std::printf("seed %llu is judged wrong. At its smallest:\n%s", static_cast<unsigned long long>(seed),
                  explain(plan).c_str());
      return 1;
    }
  }
  const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  std::printf(
      "%llu seeds, %llu of them with %d ranks, 0 judged wrong, %llu messages, %llu calls ended with an "
      "error, hash %016llx, %.0f seeds/s\n",
      static_cast<unsigned long long>(count), static_cast<unsigned long long>(largest),
      static_cast<int>(kMostRanks), static_cast<unsigned long long>(messages),
      static_cast<unsigned long long>(failures), static_cast<unsigned long long>(hash),
      static_cast<double>(count) / took);
  return 0;
}
