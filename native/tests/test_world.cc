// Jobs in simulated time: right whatever the network and the processes do, and the same for the same seed.
//
// SMDP_WORLD_SEEDS sets how many seeds are run (10,000); explore_world runs any, and shows one that is wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "scenario.h"

namespace smdp::simulation {
namespace {

std::uint64_t seeds() {
  const char* given = std::getenv("SMDP_WORLD_SEEDS");
  return given == nullptr ? 10000 : std::strtoull(given, nullptr, 10);
}

TEST(World, JobsOfManySeedsAreJudgedRight) {
  std::uint64_t failures = 0;
  for (std::uint64_t seed = 0; seed < seeds(); ++seed) {
    const Verdict verdict = run(draw_plan(seed));
    ASSERT_TRUE(verdict.wrong.empty()) << explain(draw_plan(seed));
    failures += verdict.failures;
  }
  EXPECT_GT(failures, seeds());  // the faults are not idle
}

TEST(World, ASeedGivesTheSameRunEachTime) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const JobPlan plan = draw_plan(seed);
    EXPECT_EQ(run(plan).hash, run(plan, true).hash) << describe(plan);
  }
}

TEST(World, SeedsGiveDifferentRuns) { EXPECT_NE(run(draw_plan(1)).hash, run(draw_plan(2)).hash); }

// Two hosts of two ranks, and sums of several pieces: every kind of message comes.
JobPlan plain_plan(std::uint64_t seed) {
  JobPlan plan;
  plan.seed = seed;
  plan.hosts = {2, 2};
  plan.groups = {{0, 1, 2, 3}};
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kBroadcast, Collective::kAllReduce}) {
    plan.calls.push_back({{collective, DType::kFloat32, ReduceOp::kSum, 0, 9000}, 0});
  }
  plan.timeout_s = 5;
  return plan;
}

TEST(World, TheJudgeAcceptsAJobWithoutFaults) {
  const Verdict verdict = run(plain_plan(1));
  EXPECT_TRUE(verdict.wrong.empty()) << verdict.wrong.front();
  EXPECT_EQ(verdict.failures, 0);
  EXPECT_FALSE(verdict.was_breached);
}

class Breached : public testing::TestWithParam<std::pair<Breach, FrameType>> {};

TEST_P(Breached, AMessageThatIsLostOrChangedIsFound) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    JobPlan plan = plain_plan(seed);
    plan.breach = GetParam().first;
    plan.breached = GetParam().second;
    const Verdict verdict = run(plan);
    ASSERT_TRUE(verdict.was_breached) << "no such message came";
    EXPECT_FALSE(verdict.wrong.empty()) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Each, Breached,
                         testing::Values(std::pair(Breach::kDrop, FrameType::kHostSum),
                                         std::pair(Breach::kDrop, FrameType::kPublish),
                                         std::pair(Breach::kDrop, FrameType::kCredit),
                                         std::pair(Breach::kDrop, FrameType::kContribute),
                                         std::pair(Breach::kDrop, FrameType::kConsumed),
                                         std::pair(Breach::kDrop, FrameType::kOffer),
                                         std::pair(Breach::kDrop, FrameType::kTaken),
                                         std::pair(Breach::kCorrupt, FrameType::kHostSum),
                                         std::pair(Breach::kCorrupt, FrameType::kPublish)));

// Shrinking keeps what is wrong, and leaves out what has nothing to do with it.
TEST(World, AWrongRunIsShrunk) {
  JobPlan plan = plain_plan(1);
  plan.breach = Breach::kDrop;
  plan.breached = FrameType::kPublish;
  plan.faults.push_back({.kind = FaultKind::kPause, .rank = 1, .at_ms = 1, .for_ms = 5});
  const JobPlan smallest = shrink(plan);
  EXPECT_FALSE(run(smallest).wrong.empty());
  EXPECT_TRUE(smallest.faults.empty());
  EXPECT_EQ(smallest.calls.size(), 1);
  EXPECT_LT(smallest.calls[0].what.count, 9000);
  const std::string text = explain(plan);
  EXPECT_EQ(text.find(describe(smallest)), 0);
  EXPECT_NE(text.find("\nwrong: "), std::string::npos) << text;
  EXPECT_LE(std::ranges::count(text, '\n'), 60) << text;
}

}  // namespace
}  // namespace smdp::simulation
