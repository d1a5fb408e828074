// Calls that differ, dead ranks, lost connections and deadlines: every rank gets an error in time, with the
// right names.
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <thread>

#include "cluster.h"

namespace smdp::testing {
namespace {

using std::chrono::steady_clock;

double seconds_since(steady_clock::time_point start) {
  return std::chrono::duration<double>(steady_clock::now() - start).count();
}

// Each rank makes its own call; every one must fail with `code`, its message naming all `parts`.
void expect_mismatch(const std::vector<int>& hosts, const std::function<Descriptor(int rank)>& call,
                     const std::vector<std::string>& parts) {
  Cluster cluster({.hosts = hosts, .options = {{"SMDP_SMALL_KIB", "4"}, {"SMDP_PIECE_KIB", "4"}}});
  ASSERT_TRUE(cluster.ok());
  std::vector<int> members;
  for (int rank = 0; rank < cluster.size(); ++rank) {
    members.push_back(rank);
  }
  const std::uint64_t group = cluster.group(members, "g");
  std::vector<Job> jobs(members.size());
  const auto begin = steady_clock::now();
  for (const int rank : members) {
    Job& job = jobs[static_cast<std::size_t>(rank)];
    job.what = call(rank);
    job.input = random_buffer(job.what.dtype, job.what.count, 1);
    start(cluster, rank, group, members, job);
  }
  for (Job& job : jobs) {
    const Status status = finish(job, 10);
    EXPECT_EQ(status.code(), Code::kMismatch) << status.message();
    for (const std::string& part : parts) {
      EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
    }
  }
  EXPECT_LT(seconds_since(begin), 1);
}

constexpr std::uint64_t kMany = 40000;

TEST(Mismatch, DifferentSizesFailOnEveryLayout) {
  for (const auto& hosts : std::vector<std::vector<int>>{{2}, {4}, {1, 1}, {2, 2}, {3, 1}, {1, 1, 6}}) {
    for (const std::uint64_t other : {std::uint64_t{0}, std::uint64_t{1}, kMany / 2, kMany + 1, 3 * kMany}) {
      const int odd = hosts[0] - 1;  // the last rank of the first host
      expect_mismatch(hosts,
                      [&](int rank) {
                        return Descriptor{Collective::kAllReduce, DType::kFloat32, ReduceOp::kSum, 0,
                                          rank == odd ? other : kMany};
                      },
                      {"size", std::to_string(other), std::to_string(kMany), "rank " + std::to_string(odd),
                       "operation 0"});
    }
  }
}

TEST(Mismatch, DifferentTypeOperationRootOrOrderFails) {
  const auto base = [] {
    return Descriptor{Collective::kAllReduce, DType::kFloat32, ReduceOp::kSum, 0, 1000};
  };
  expect_mismatch({2, 1},
                  [&](int rank) {
                    Descriptor call = base();
                    call.dtype = rank == 2 ? DType::kInt32 : call.dtype;
                    return call;
                  },
                  {"dtype", "float32", "int32"});
  expect_mismatch({2, 1},
                  [&](int rank) {
                    Descriptor call = base();
                    call.op = rank == 1 ? ReduceOp::kMax : call.op;
                    return call;
                  },
                  {"operation (", "sum", "max"});
  expect_mismatch({2, 1},
                  [&](int rank) {
                    Descriptor call = base();
                    call.collective = Collective::kBroadcast;
                    call.root = rank == 1 ? 1 : 0;
                    return call;
                  },
                  {"root (", "broadcast"});
  expect_mismatch({1, 2},
                  [&](int rank) {
                    Descriptor call = base();
                    call.collective = rank == 0 ? Collective::kAllGather : Collective::kAllReduce;
                    return call;
                  },
                  {"collective", "all_gather", "all_reduce"});
}

TEST(Faults, ALostRankIsReportedOnEveryOtherRankWithinASecond) {
  FaultFabric fabric;
  Cluster cluster({.hosts = {1, 1, 1, 1}, .fabric = &fabric});
  ASSERT_TRUE(cluster.ok());
  const std::vector<int> members = {0, 1, 2, 3};
  const std::uint64_t group = cluster.group(members, "g");
  std::vector<Job> jobs(3);
  for (int rank = 0; rank < 3; ++rank) {
    jobs[static_cast<std::size_t>(rank)].what = {Collective::kAllReduce, DType::kFloat32, ReduceOp::kSum, 0,
                                                 100000};
    jobs[static_cast<std::size_t>(rank)].input = random_buffer(DType::kFloat32, 100000, 1);
    start(cluster, rank, group, members, jobs[static_cast<std::size_t>(rank)]);
  }
  const auto begin = steady_clock::now();
  fabric.cut(3);
  for (Job& job : jobs) {
    const Status status = finish(job, 10);
    EXPECT_EQ(status.code(), Code::kPeerLost);
    for (const char* part :
         {"rank 3", "host host-3", "all_reduce(float32[100000], sum)", "operation 0", "waiting for"}) {
      EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
    }
  }
  EXPECT_LT(seconds_since(begin), 1);
}

TEST(Faults, ADamagedFrameEndsTheLinkButNotTheProcess) {
  FaultFabric fabric;
  Cluster cluster({.hosts = {1, 1, 1}, .fabric = &fabric});
  ASSERT_TRUE(cluster.ok());
  const std::vector<int> members = {0, 1, 2};
  const std::uint64_t group = cluster.group(members, "g");
  fabric.damage_next(1);
  std::vector<Job> jobs(3);
  for (const int rank : members) {
    Job& job = jobs[static_cast<std::size_t>(rank)];
    job.what = {Collective::kAllReduce, DType::kFloat32, ReduceOp::kSum, 0, 1000};
    job.input = random_buffer(DType::kFloat32, 1000, 1);
    start(cluster, rank, group, members, job);
  }
  // The receiving rank fails and reports it to the others; a rank that had all it needed by then may have
  // succeeded.
  int failed = 0;
  for (Job& job : jobs) {
    failed += finish(job, 10).ok() ? 0 : 1;
  }
  EXPECT_GE(failed, 1);
}

TEST(Faults, AFailureDoesNotAffectOtherGroups) {
  Cluster cluster({.hosts = {2, 1}});
  ASSERT_TRUE(cluster.ok());
  const std::vector<int> members = {0, 1, 2};
  const std::uint64_t bad = cluster.group(members, "bad");
  const std::uint64_t good = cluster.group(members, "good");
  std::vector<Job> failing(3);
  std::vector<Job> fine(3);
  for (const int rank : members) {
    Job& job = failing[static_cast<std::size_t>(rank)];
    job.what = {Collective::kAllReduce, DType::kInt8, ReduceOp::kSum, 0, rank == 0 ? 5U : 6U};
    job.input = random_buffer(DType::kInt8, job.what.count, 1);
    start(cluster, rank, bad, members, job);
  }
  for (Job& job : failing) {
    EXPECT_EQ(finish(job, 10).code(), Code::kMismatch);
  }
  Job again;
  again.what = {Collective::kBarrier, DType::kUInt8, ReduceOp::kSum, 0, 0};
  start(cluster, 0, bad, members, again);
  EXPECT_EQ(finish(again).code(), Code::kMismatch);
  for (const int rank : members) {
    fine[static_cast<std::size_t>(rank)].what = {Collective::kBarrier, DType::kUInt8, ReduceOp::kSum, 0, 0};
    start(cluster, rank, good, members, fine[static_cast<std::size_t>(rank)]);
  }
  for (Job& job : fine) {
    EXPECT_TRUE(finish(job).ok());
  }
}

Job all_reduce_of(std::uint64_t count) {
  Job job;
  job.what = {Collective::kAllReduce, DType::kFloat32, ReduceOp::kSum, 0, count};
  job.input = random_buffer(DType::kFloat32, count, 1);
  return job;
}

std::vector<int> first_ranks(int size) {
  std::vector<int> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.push_back(rank);
  }
  return ranks;
}

// Its messages are in flight, so the others may take as long as they need, for example over a slow link.
TEST(Faults, ARankMayLeaveAndCloseOnceItsOwnCallIsComplete) {
  FaultFabric fabric;
  Cluster cluster({.hosts = {1, 1, 1}, .fabric = &fabric});
  ASSERT_TRUE(cluster.ok());
  const std::vector<int> members = first_ranks(3);
  const std::uint64_t group = cluster.group(members, "g");
  std::vector<Job> jobs(3);
  fabric.hold(2, 1);
  for (const int rank : members) {
    Job& job = jobs[static_cast<std::size_t>(rank)] = all_reduce_of(100);
    start(cluster, rank, group, members, job);
  }
  ASSERT_TRUE(finish(jobs[0], 10).ok());
  cluster.engine(0).destroy_group(group);
  std::thread closing([&] { cluster.engine(0).close(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(1200));
  fabric.release();
  for (const std::size_t rank : {1UL, 2UL}) {
    const Status status = finish(jobs[rank], 10);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  cluster.close();
  closing.join();
}

void expect_left(Job& job) {
  const Status status = finish(job, 10);
  EXPECT_EQ(status.code(), Code::kPeerLost) << status.message();
  EXPECT_NE(status.message().find("rank 0 (host host-0) destroyed the group"), std::string::npos)
      << status.message();
  EXPECT_NE(status.message().find("operation 1 of group 'leaving'"), std::string::npos) << status.message();
}

// Rank 0 destroys a group after one call, with a second one pending or not, before or after the others make
// it.
void leave_early(const std::vector<int>& hosts, bool pending, bool others_first) {
  Cluster cluster({.hosts = hosts});
  ASSERT_TRUE(cluster.ok());
  const std::vector<int> members = first_ranks(cluster.size());
  const std::uint64_t group = cluster.group(members, "leaving");
  std::vector<Job> done(members.size());
  std::vector<Job> jobs(members.size());
  for (const int rank : members) {
    Job& job = done[static_cast<std::size_t>(rank)] = all_reduce_of(100);
    start(cluster, rank, group, members, job);
  }
  for (Job& job : done) {
    EXPECT_TRUE(finish(job, 10).ok());
  }
  const auto call = [&](int rank) {
    Job& job = jobs[static_cast<std::size_t>(rank)] = all_reduce_of(100000);
    start(cluster, rank, group, members, job);
  };
  const auto call_on_others = [&] {
    for (const int rank : members) {
      if (rank != 0) {
        call(rank);
      }
    }
  };
  if (pending) {
    call(0);
  }
  // The last rank makes no call before the group is destroyed, so that the one of rank 0 stays pending.
  if (others_first && members.size() > 2) {
    call(1);
  }
  cluster.engine(0).destroy_group(group);
  if (pending) {
    EXPECT_EQ(finish(jobs[0], 10).code(), Code::kClosed);
  }
  if (others_first && members.size() > 2) {
    expect_left(jobs[1]);
  } else {
    call_on_others();
    for (const int rank : members) {
      if (rank != 0) {
        expect_left(jobs[static_cast<std::size_t>(rank)]);
      }
    }
  }
}

TEST(Faults, DestroyingAGroupOnOneRankFailsTheCallsOfTheOthers) {
  for (const auto& hosts : std::vector<std::vector<int>>{{2}, {3}, {1, 1}, {2, 1}, {1, 1, 1}}) {
    for (const bool pending : {false, true}) {
      for (const bool others_first : {false, true}) {
        leave_early(hosts, pending, others_first);
      }
    }
  }
}

TEST(Faults, ARankThatDestroyedTheGroupIsNamedEvenIfItsFramesAreLost) {
  FaultFabric fabric;
  Cluster cluster({.hosts = {1, 1, 1}, .fabric = &fabric});
  ASSERT_TRUE(cluster.ok());
  const std::vector<int> members = first_ranks(3);
  const std::uint64_t group = cluster.group(members, "leaving");
  fabric.hold(2, 1);
  cluster.engine(2).destroy_group(group);
  std::vector<Job> jobs(2);
  for (const int rank : {0, 1}) {
    start(cluster, rank, group, members, jobs[static_cast<std::size_t>(rank)] = all_reduce_of(100));
  }
  for (Job& job : jobs) {
    const Status status = finish(job, 10);
    EXPECT_EQ(status.code(), Code::kPeerLost);
    EXPECT_NE(status.message().find("rank 2 (host host-2) destroyed the group"), std::string::npos)
        << status.message();
  }
  fabric.release();
}

TEST(Faults, ANamedBufferFailsWhenOneRankDestroyedTheGroup) {
  Cluster cluster({.hosts = {1, 1}});
  ASSERT_TRUE(cluster.ok());
  const std::uint64_t group = cluster.group({0, 1}, "leaving");
  cluster.engine(0).destroy_group(group);
  Buffer buffer = random_buffer(DType::kFloat32, 10, 1);
  Call call;
  call.what = {Collective::kAllReduce, DType::kFloat32, ReduceOp::kSum, 0, 10};
  call.input = buffer;
  call.output = buffer;
  call.keyed = true;
  call.buffers = 2;
  call.handle = std::make_shared<OperationHandle>(nullptr);
  const auto handle = call.handle;
  ASSERT_TRUE(cluster.engine(1).submit(group, 2, 1, std::move(call)).ok());
  const Status status = handle->wait(std::chrono::seconds(10));
  EXPECT_EQ(status.code(), Code::kPeerLost) << status.message();
  EXPECT_NE(status.message().find("buffer (step 0, index 0) of group 'leaving'"), std::string::npos)
      << status.message();
}

// The last rank to finish still gets the messages of the first, which is gone already.
TEST(Faults, EachRankMayDestroyAGroupOnceItsOwnCallsAreComplete) {
  for (const auto& hosts : std::vector<std::vector<int>>{{3}, {1, 1, 1}, {2, 2}}) {
    Cluster cluster({.hosts = hosts});
    ASSERT_TRUE(cluster.ok());
    const std::vector<int> members = first_ranks(cluster.size());
    for (int round = 0; round < 20; ++round) {
      const std::uint64_t group = cluster.group(members, "g");
      std::vector<std::thread> threads;
      for (const int rank : members) {
        threads.emplace_back([&, rank] {
          std::vector<Job> jobs(6);
          for (Job& job : jobs) {
            job = all_reduce_of(50000);
            start(cluster, rank, group, members, job);
          }
          for (Job& job : jobs) {
            const Status status = finish(job, 20);
            EXPECT_TRUE(status.ok()) << status.message();
          }
          cluster.engine(rank).destroy_group(group);
        });
      }
      for (std::thread& thread : threads) {
        thread.join();
      }
    }
  }
}

TEST(Faults, AbandoningAnEngineCountsAsALoss) {
  for (const auto& hosts : std::vector<std::vector<int>>{{2}, {1, 1}}) {
    Cluster cluster({.hosts = hosts});
    ASSERT_TRUE(cluster.ok());
    const std::vector<int> members = {0, 1};
    const std::uint64_t group = cluster.group(members, "g");
    const std::uint64_t pending = cluster.group(members, "pending");
    Job job = all_reduce_of(1000);
    Job own = all_reduce_of(1000);
    start(cluster, 1, pending, members, own);
    cluster.engine(1).abandon();
    EXPECT_EQ(finish(own, 10).code(), Code::kClosed);
    start(cluster, 0, group, members, job);
    const Status status = finish(job, 10);
    EXPECT_EQ(status.code(), Code::kPeerLost);
    EXPECT_NE(status.message().find("rank 1 (host host-" + std::to_string(hosts.size() - 1) + ") was lost"),
              std::string::npos)
        << status.message();
    Job late = all_reduce_of(1000);
    start(cluster, 1, group, members, late);
    EXPECT_EQ(finish(late, 10).code(), Code::kClosed);
  }
}

// A later call also reports why the group failed, and which call failed.
TEST(Faults, ACallOnAFailedGroupNamesItselfAndThatItHadNotBegun) {
  Cluster cluster({.hosts = {1, 1}});
  ASSERT_TRUE(cluster.ok());
  const std::uint64_t group = cluster.group({0, 1}, "g");
  cluster.engine(1).abandon();
  Job first = all_reduce_of(10);
  start(cluster, 0, group, {0, 1}, first);
  EXPECT_EQ(finish(first, 10).code(), Code::kPeerLost);
  Job late = all_reduce_of(1000);
  start(cluster, 0, group, {0, 1}, late);
  const Status status = finish(late, 10);
  for (const char* part : {"group 'g' failed before", "rank 1 (host host-1) was lost", "float32[1000]",
                           "operation 1 of group 'g' had not begun"}) {
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  }
}

TEST(Faults, AnUnsupportedCallIsRefusedAtOnce) {
  Cluster cluster({.hosts = {1}});
  ASSERT_TRUE(cluster.ok());
  const std::uint64_t group = cluster.group({0}, "g");
  Job job;
  job.what = {Collective::kAllReduce, DType::kFloat32, ReduceOp::kBxor, 0, 4};
  job.input = random_buffer(DType::kFloat32, 4, 1);
  start(cluster, 0, group, {0}, job);
  const Status status = finish(job);
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_TRUE(status.message().ends_with("float32 has sum, avg, min, max, product")) << status.message();
}

// A call of a group of ranks 0 and `other`, which rank 0 alone makes.
Status make_alone(Cluster& cluster, int other, int number) {
  const std::vector<int> members = {0, other};
  const std::uint64_t group = cluster.group(members, "unmet " + std::to_string(number));
  Job job;
  job.what = {Collective::kAllReduce, DType::kFloat32, ReduceOp::kSum, 0, 1U << 20U};
  job.input.resize(4U << 20U);
  start(cluster, 0, group, members, job, 0.05);
  return finish(job);
}

// A call that both make.
std::vector<Status> make_together(Cluster& cluster, const std::string& name) {
  const std::vector<int> members = {0, 1};
  const std::uint64_t group = cluster.group(members, name);
  std::vector<Job> jobs(2);
  for (const int rank : members) {
    Job& job = jobs[static_cast<std::size_t>(rank)];
    job.what = {Collective::kAllReduce, DType::kFloat32, ReduceOp::kSum, 0, 1U << 20U};
    job.input.resize(4U << 20U);
    start(cluster, rank, group, members, job, 20);
  }
  return {finish(jobs[0]), finish(jobs[1])};
}

constexpr int kFill = 24;  // this many failed calls hold more memory than the smallest arena

TEST(Memory, OfFailedCallsIsFreed) {
  Cluster cluster({.hosts = {2}, .options = {{"SMDP_ARENA_MIB", "16"}}});
  ASSERT_TRUE(cluster.ok());
  for (int i = 0; i < kFill; ++i) {
    ASSERT_EQ(make_alone(cluster, 1, i).code(), Code::kTimeout);
  }
  for (const Status& status : make_together(cluster, "together")) {
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

TEST(Memory, ThatARankDoesNotReleaseFailsTheNextCallWithoutBlame) {
  Cluster cluster({.hosts = {3}, .options = {{"SMDP_ARENA_MIB", "16"}}});
  ASSERT_TRUE(cluster.ok());
  // Rank 2's loop is blocked.
  std::promise<void> resume;
  const std::uint64_t own = cluster.group({2}, "own");
  Call call;
  call.what = {Collective::kBarrier, DType::kUInt8, ReduceOp::kSum, 0, 0};
  call.handle = std::make_shared<OperationHandle>(
      [stopped = resume.get_future().share()](const Status&) { stopped.wait(); });
  ASSERT_TRUE(cluster.engine(2).submit(own, 1, 0, std::move(call)).ok());
  for (int i = 0; i < kFill; ++i) {
    ASSERT_EQ(make_alone(cluster, 2, i).code(), Code::kTimeout);
  }
  for (const Status& status : make_together(cluster, "too early")) {
    EXPECT_EQ(status.code(), Code::kExhausted) << status.message();
    EXPECT_NE(status.message().find("rank 0"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("SMDP_ARENA_MIB"), std::string::npos) << status.message();
  }
  resume.set_value();
  std::vector<Status> ended;
  for (int again = 0; again < 200 && (ended.empty() || !ended[0].ok()); ++again) {
    ended = make_together(cluster, "later " + std::to_string(again));
  }
  EXPECT_TRUE(ended[0].ok()) << ended[0].message();
}

}  // namespace
}  // namespace smdp::testing
