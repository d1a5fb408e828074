// Copies and sums on copy threads: the same bits, and no byte is used after a call has ended.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <future>
#include <numeric>

#include "base/copy_threads.h"
#include "cluster.h"

namespace smdp::testing {
namespace {

// Pieces that are large enough to offload, and more of them than threads.
const std::map<std::string, std::string> kThreads = {{"SMDP_COPY_THREADS", "3"}, {"SMDP_PIECE_KIB", "32"}};

std::unique_ptr<CopyThreads::Job> job_that(Executor::Task work) {
  auto job = std::make_unique<CopyThreads::Job>();
  job->work = std::move(work);
  return job;
}

TEST(CopyThreads, EachJobRunsOnceAndIsReturned) {
  constexpr int kJobs = 2000;
  std::atomic<int> ran = 0;
  std::atomic<int> handed_back = 0;
  std::promise<void> all;
  CopyThreads threads;
  ASSERT_TRUE(threads
                  .start(3, std::chrono::microseconds(20),
                         [&](std::unique_ptr<CopyThreads::Job> job) {
                           job->done();
                           if (++handed_back == kJobs) {
                             all.set_value();
                           }
                         })
                  .ok());
  for (int i = 0; i < kJobs; ++i) {
    auto job = job_that([&ran] { ++ran; });
    job->done = [] {};
    threads.add(std::move(job));
  }
  all.get_future().wait();
  threads.stop();
  EXPECT_EQ(ran, kJobs);
  EXPECT_EQ(handed_back, kJobs);
}

TEST(CopyThreads, StopWaitsForRunningJobsAndDropsTheOthers) {
  std::promise<void> begun;
  std::promise<void> resume;
  std::atomic<bool> ended = false;
  std::atomic<int> later = 0;
  CopyThreads threads;
  ASSERT_TRUE(threads.start(1, std::chrono::microseconds(0), [](const auto&) {}).ok());
  threads.add(job_that([&] {
    begun.set_value();
    resume.get_future().wait();
    ended = true;
  }));
  begun.get_future().wait();
  for (int i = 0; i < 100; ++i) {
    threads.add(job_that([&later] { ++later; }));
  }
  std::thread stopper([&threads] { threads.stop(); });
  resume.set_value();
  stopper.join();
  EXPECT_TRUE(ended);
  EXPECT_LE(later, 100);  // the jobs that began before stop()
}

class OnCopyThreads : public ::testing::TestWithParam<std::vector<int>> {};

TEST_P(OnCopyThreads, ResultsEqualTheReference) {
  Cluster cluster({.hosts = GetParam(), .options = kThreads});
  ASSERT_TRUE(cluster.ok());
  const std::vector<int> all = everybody(cluster);
  const std::uint64_t group = cluster.group(all, "all");
  const auto ranks = static_cast<std::uint64_t>(all.size());
  std::uint32_t seed = 1;
  for (const DType type : {DType::kFloat32, DType::kFloat16, DType::kInt64}) {
    for (const Collective collective : {Collective::kAllReduce, Collective::kReduce, Collective::kBroadcast,
                                        Collective::kAllGather, Collective::kReduceScatter}) {
      const Descriptor what = {collective, type, ReduceOp::kSum, 1, 300001};
      const std::uint64_t parts = collective == Collective::kReduceScatter ? ranks : 1;
      std::vector<Buffer> inputs;
      std::vector<Job> jobs(all.size());
      for (std::size_t i = 0; i < all.size(); ++i) {
        inputs.push_back(random_buffer(type, what.count * parts, seed++));
        jobs[i].what = what;
        jobs[i].input = inputs[i];
        start(cluster, all[i], group, all, jobs[i]);
      }
      Buffer expected;
      for (const Buffer& input : inputs) {
        expected.insert(expected.end(), input.begin(), input.end());
      }
      if (collective == Collective::kBroadcast) {
        expected = inputs[what.root];
      } else if (collective != Collective::kAllGather) {
        expected = reference_reduce(type, what.op, by_host(cluster, all, inputs));
      }
      for (std::size_t i = 0; i < all.size(); ++i) {
        SCOPED_TRACE(std::string(name_of(collective)) + " " + std::string(name_of(type)) + " on rank " +
                     std::to_string(i));
        const Status status = finish(jobs[i]);
        ASSERT_TRUE(status.ok()) << status.message();
        if (collective == Collective::kReduce && i != what.root) {
          continue;
        }
        const Buffer& made = jobs[i].output;
        const std::size_t from = collective == Collective::kReduceScatter ? i * made.size() : 0;
        ASSERT_EQ(std::memcmp(made.data(), expected.data() + from, made.size()), 0);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, OnCopyThreads,
                         ::testing::Values(std::vector<int>{4}, std::vector<int>{1, 1, 1},
                                           std::vector<int>{2, 2}, std::vector<int>{3, 1}));

// If a copy continued, a sanitizer would find it in freed memory.
TEST(CopyThreads, ACallThatFailsInTheMiddleStopsUsingItsMemory) {
  for (int round = 0; round < 20; ++round) {
    Cluster cluster({.hosts = {2, 1}, .options = kThreads});
    ASSERT_TRUE(cluster.ok());
    const std::vector<int> all = everybody(cluster);
    const std::uint64_t group = cluster.group(all, "all");
    std::vector<std::unique_ptr<Job>> jobs;
    for (std::size_t i = 0; i < all.size(); ++i) {
      auto job = std::make_unique<Job>();
      job->what = {Collective::kAllReduce, DType::kFloat32, ReduceOp::kSum, 0, 1000000};
      job->input = random_buffer(DType::kFloat32, job->what.count, static_cast<std::uint32_t>(i));
      start(cluster, all[i], group, all, *job);
      jobs.push_back(std::move(job));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(300 * round));
    cluster.engine(2).abandon();
    for (std::unique_ptr<Job>& job : jobs) {
      const Status status = finish(*job);
      EXPECT_TRUE(status.ok() || job->handle->is_complete()) << status.message();
      job.reset();
    }
  }
}

}  // namespace
}  // namespace smdp::testing
