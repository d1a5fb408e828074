// Jobs in simulated time: correct despite faults of networks and processes, and the same for the same seed.
//
// SMDP_WORLD_SEEDS sets how many seeds are run (10,000); explore_world runs any, and prints the first that is
// wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
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
  EXPECT_GT(failures, seeds());  // the faults have an effect
}

// Regressions: a rank that waited for its pieces in flight named no rank; bytes for a rank that had closed; a
// rank behind in an earlier call, reported too early; a rank that waits in one call was named in another one,
// which it had not made; memory that ran out when a rank had released what it read; and, in the judge, a rank
// that is late because it waits in another group, also in another call than the one that ended, and calls
// that differ behind one that waits for a late rank.
TEST(World, JobsThatWereJudgedWrongAreRight) {
  for (const std::uint64_t seed :
       {471452U, 573448U, 625404U, 951395U, 1523113U, 3453898U, 6933265U, 13116388U}) {
    const Verdict verdict = run(draw_plan(seed));
    EXPECT_TRUE(verdict.wrong.empty()) << explain(draw_plan(seed));
  }
}

TEST(World, ASeedGivesTheSameRunEachTime) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const JobPlan plan = draw_plan(seed);
    EXPECT_EQ(run(plan).hash, run(plan, true).hash) << describe(plan);
  }
}

TEST(World, SeedsGiveDifferentRuns) { EXPECT_NE(run(draw_plan(1)).hash, run(draw_plan(2)).hash); }

// Two hosts of two ranks, and sums of several pieces: uses every kind of message.
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

class Breached : public ::testing::TestWithParam<std::pair<Breach, FrameType>> {};

TEST_P(Breached, ALostOrChangedMessageIsReported) {
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
                         ::testing::Values(std::pair(Breach::kDrop, FrameType::kHostSum),
                                           std::pair(Breach::kDrop, FrameType::kPublish),
                                           std::pair(Breach::kDrop, FrameType::kCredit),
                                           std::pair(Breach::kDrop, FrameType::kContribute),
                                           std::pair(Breach::kDrop, FrameType::kConsumed),
                                           std::pair(Breach::kDrop, FrameType::kOffer),
                                           std::pair(Breach::kDrop, FrameType::kTaken),
                                           std::pair(Breach::kCorrupt, FrameType::kHostSum),
                                           std::pair(Breach::kCorrupt, FrameType::kPublish)));

// Reducing keeps the error, and removes what does not contribute to it.
TEST(World, AWrongRunIsReduced) {
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

// -- Faults at fixed times, and their errors --------------------------------------------------------

JobPlan sums(const std::vector<int>& hosts, std::size_t calls, Fault fault) {
  JobPlan plan;
  plan.seed = 1;
  plan.hosts = hosts;
  std::vector<int> all(host_of(plan).size());
  std::iota(all.begin(), all.end(), 0);
  plan.groups = {all};
  plan.calls.assign(calls, {{Collective::kAllReduce, DType::kFloat32, ReduceOp::kSum, 0, 100}, 0});
  plan.faults = {fault};
  plan.timeout_s = 1.5;
  return plan;
}

JobPlan message(const std::vector<int>& hosts, int from, int to, std::uint64_t bytes, Fault fault) {
  JobPlan plan = sums(hosts, 1, fault);
  PlannedCall& call = plan.calls.front();
  call.what = {Collective::kSend, DType::kUInt8, ReduceOp::kSum, static_cast<std::uint32_t>(from), bytes};
  call.to = to;
  return plan;
}

Verdict right(const JobPlan& plan) {
  const Verdict verdict = run(plan);
  EXPECT_TRUE(verdict.wrong.empty()) << explain(plan);
  return verdict;
}

Status end_of(const Verdict& verdict, int rank, std::uint32_t call) {
  const auto found = std::ranges::find_if(
      verdict.ends, [&](const End& one) { return one.rank == rank && one.call == call; });
  return found == verdict.ends.end() ? Status(Code::kInternal, "it never ended") : found->status;
}

std::size_t count_of(const std::string& part, const std::string& text) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

TEST(WorldFaults, APausedRankIsNamedByAWarningAndThenByTheDeadline) {
  const Verdict verdict =
      right(sums({2, 1, 1}, 1, {.kind = FaultKind::kPause, .rank = 3, .at_ms = 0, .for_ms = 10000}));
  for (int rank = 0; rank < 3; ++rank) {
    const Status status = end_of(verdict, rank, 0);
    EXPECT_EQ(status.code(), Code::kTimeout);
    EXPECT_NE(status.message().find("rank 3 (host host-2)"), std::string::npos) << status.message();
  }
  EXPECT_TRUE(std::ranges::any_of(verdict.warnings, [](const std::string& warning) {
    return warning.find("slow") != std::string::npos &&
           warning.find("rank 3 (host host-2)") != std::string::npos;
  }));
}

TEST(WorldFaults, ARankThatClosesWithoutMakingTheCallIsNamed) {
  const Verdict verdict = right(sums({1, 1}, 1, {.kind = FaultKind::kLeave, .rank = 1, .call = 0}));
  const Status status = end_of(verdict, 0, 0);
  EXPECT_EQ(status.code(), Code::kPeerLost);
  EXPECT_NE(status.message().find("rank 1 (host host-1) ended or closed its engine"), std::string::npos)
      << status.message();
}

TEST(WorldFaults, CallsThatWaitForTheSameRankGiveOneWarningAndTheDeadlineNamesEachPlaceOnce) {
  const Verdict verdict = right(sums({1, 1}, 4, {.kind = FaultKind::kLate, .rank = 1, .for_ms = 10000}));
  const Status first = end_of(verdict, 0, 0);
  EXPECT_EQ(first.code(), Code::kTimeout);
  EXPECT_EQ(count_of("on rank 0 (host host-0): all_reduce", first.message()), 1) << first.message();
  EXPECT_EQ(count_of("operation 0 of group 'group 0'", first.message()), 1) << first.message();
  // The others report whose deadline passed, and the state of their own call.
  const Status second = end_of(verdict, 0, 1);
  EXPECT_EQ(count_of("operation 1 of group 'group 0'", second.message()), 1) << second.message();
  EXPECT_EQ(std::ranges::count_if(
                verdict.warnings,
                [](const std::string& warning) { return warning.find("slow") != std::string::npos; }),
            1);
}

// Rank 1 waits in operation 0, which is complete on rank 0: rank 0 must use the report that rank 1 waits for
// rank 2 there in operation 1.
TEST(WorldFaults, ARankThatIsBehindBecauseOfAnotherIsNotNamed) {
  JobPlan plan = sums({1, 1, 1}, 2, {.kind = FaultKind::kOneWayCut, .rank = 2, .other_host = 1});
  plan.faults.push_back({.kind = FaultKind::kPause, .rank = 2, .at_ms = 3.5, .for_ms = 10000});
  plan.buffers_in_flight = 1;
  const Verdict verdict = right(plan);
  EXPECT_TRUE(end_of(verdict, 0, 0).ok());
  const Status status = end_of(verdict, 0, 1);
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_NE(status.message().find("of rank 2 (host host-2)"), std::string::npos) << status.message();
  EXPECT_EQ(status.message().find("rank 1 (host"), std::string::npos) << status.message();
}

TEST(WorldFaults, ARankThatDoesNotSendIsNamedAtTheDeadline) {
  const Verdict verdict =
      right(message({2, 1}, 2, 0, 10, {.kind = FaultKind::kLate, .rank = 2, .for_ms = 10000}));
  const Status status = end_of(verdict, 0, 0);
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_NE(status.message().find("waiting for a message of rank 2"), std::string::npos) << status.message();
}

TEST(WorldFaults, ARankThatDoesNotReceiveIsNamedAtTheDeadline) {
  const Verdict verdict =
      right(message({2, 1}, 0, 1, 1U << 20U, {.kind = FaultKind::kLate, .rank = 1, .for_ms = 10000}));
  const Status status = end_of(verdict, 0, 0);
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_NE(status.message().find("waiting for the receiver of rank 1"), std::string::npos)
      << status.message();
}

// The pause begins at many moments of the call. At some of them, all pieces in flight of rank 0 are for the
// paused rank, and earlier pieces wait until they are complete.
TEST(WorldFaults, ARankWhosePiecesInFlightAreNotTakenNamesTheirReceiver) {
  JobPlan plan = sums({1, 2, 3}, 1, {.kind = FaultKind::kPause, .rank = 2, .for_ms = 10000});
  plan.calls.front().what = {Collective::kReduceScatter, DType::kFloat64, ReduceOp::kMin, 0, 59720};
  plan.piece_kib = 8;
  plan.bulk_kib = 128;
  for (plan.seed = 0; plan.seed < 40; ++plan.seed) {
    plan.faults[0].at_ms = 1 + 0.1 * static_cast<double>(plan.seed);
    right(plan);
  }
}

// The others complete their calls without it, however long they take: the pause begins at every moment of the
// job, also between two frames of the paused rank.
TEST(WorldFaults, ARankMayLeaveOnceItsOwnCallsAreComplete) {
  JobPlan plan = sums({1, 2, 1}, 3, {.kind = FaultKind::kPause, .rank = 1, .for_ms = 1200});
  plan.timeout_s = 20;
  for (const auto& [destroys, closes] : {std::pair(true, true), {true, false}, {false, true}}) {
    plan.destroys_groups = destroys;
    plan.closes_early = closes;
    for (plan.seed = 0; plan.seed < 100; ++plan.seed) {
      plan.faults[0].at_ms = 0.05 * static_cast<double>(plan.seed);
      EXPECT_EQ(right(plan).failures, 0);
    }
  }
}

// A rank loses frames of a group before it creates the group: the others get the error when it does.
TEST(WorldFaults, ARankThatRunsOutOfMemoryIsNamedWhereverThatHappens) {
  JobPlan plan = sums({2, 1}, 3, {.kind = FaultKind::kLostMemory, .rank = 1, .at_ms = 0});
  plan.timeout_s = 20;
  std::uint64_t failures = 0;
  for (plan.faults[0].allocations = 1; plan.faults[0].allocations < 200; ++plan.faults[0].allocations) {
    failures += right(plan).failures;
  }
  EXPECT_GT(failures, 0);
}

}  // namespace
}  // namespace smdp::simulation
