// The traffic between hosts, as the fabric counts it: how many messages must follow each other, and how much
// bulk data is in flight at a time.
#include <gtest/gtest.h>

#include <deque>
#include <future>
#include <vector>

#include "cluster.h"

namespace smdp::testing {
namespace {

// Returns when the loop of every rank has run all tasks that were posted before.
void run_posted_tasks(Cluster& cluster) {
  for (const int rank : everybody(cluster)) {
    std::promise<void> done;
    cluster.engine(rank).executor().post([&done] { done.set_value(); });
    done.get_future().wait();
  }
}

// No message arrives before all ranks have begun: a rank that begins late would count as one step more,
// though what it sends first depends on nothing that it received.
TEST(SmallOperations, TakeAtMostTwoStepsBetweenHostsWhateverTheirNumber) {
  for (const std::size_t hosts : {2U, 3U, 4U, 5U, 8U, 12U}) {
    FaultFabric fabric;
    Cluster cluster({.hosts = std::vector<int>(hosts, 1), .fabric = &fabric});
    ASSERT_TRUE(cluster.ok());
    const auto members = everybody(cluster);
    const std::uint64_t group = cluster.group(members, "all");
    for (const int from : members) {
      for (const int to : members) {
        fabric.hold(from, to);
      }
    }
    std::deque<Job> jobs;
    std::vector<Buffer> inputs;
    for (const int rank : members) {
      jobs.push_back(float_job(Collective::kAllReduce, 1024, static_cast<std::uint32_t>(rank)));
      inputs.push_back(jobs.back().input);
      start(cluster, rank, group, members, jobs.back());
    }
    run_posted_tasks(cluster);
    EXPECT_EQ(fabric.longest_chain(), 1) << hosts;
    fabric.release();
    const Buffer sum = float_sum(by_host(cluster, members, inputs));
    for (Job& job : jobs) {
      ASSERT_TRUE(finish(job).ok());
      ASSERT_TRUE(job.output == sum) << hosts;
    }
    EXPECT_LE(fabric.longest_chain(), 2) << hosts;
  }
}

// Also where a large call is divided into pieces of the size of small messages, as with many hosts and ranks.
TEST(Bulk, IsBoundedOverAllOperationsOfAHost) {
  for (const char* piece_kib : {"256", "16"}) {
    constexpr std::uint64_t kBulk = 1U << 20U;
    constexpr int kOperations = 4;
    FaultFabric fabric;
    Cluster cluster({.hosts = {1, 1, 1},
                     .fabric = &fabric,
                     .options = {{"SMDP_BULK_KIB", "1024"}, {"SMDP_PIECE_KIB", piece_kib}}});
    ASSERT_TRUE(cluster.ok());
    const auto members = everybody(cluster);
    const std::uint64_t group = cluster.group(members, "all");
    std::deque<Job> jobs;
    for (int operation = 0; operation < kOperations; ++operation) {
      for (const int rank : members) {
        jobs.push_back(float_job(Collective::kAllReduce, 6U << 18U, static_cast<std::uint32_t>(rank)));
        start(cluster, rank, group, members, jobs.back());
      }
    }
    for (Job& job : jobs) {
      ASSERT_TRUE(finish(job).ok());
    }
    for (const int rank : members) {
      // The budget, and what the oldest operation may send beyond it; without a limit it would be 16 MiB.
      EXPECT_LE(fabric.most_unanswered(rank), 2 * kBulk);
      EXPECT_GT(fabric.most_unanswered(rank), kBulk / 4);
    }
  }
}

}  // namespace
}  // namespace smdp::testing
