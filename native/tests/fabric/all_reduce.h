// Calls of every rank of a cluster, compared with the reference.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "cluster.h"
#include "reference.h"

namespace smdp::testing {

inline Job float_job(Collective collective, std::uint64_t count, std::uint32_t seed) {
  Job job;
  job.what = {collective, DType::kFloat32, ReduceOp::kSum, 0, count};
  job.input = random_buffer(DType::kFloat32, count, seed);
  return job;
}

// One all_reduce on all ranks, compared with the reference.
inline void check_all_reduce(Cluster& cluster, std::uint64_t group, std::uint64_t count, std::uint32_t seed) {
  const std::vector<int> members = everybody(cluster);
  std::vector<Job> jobs;
  std::vector<Buffer> inputs;
  for (const int rank : members) {
    jobs.push_back(float_job(Collective::kAllReduce, count, seed + static_cast<std::uint32_t>(rank)));
    inputs.push_back(jobs.back().input);
  }
  for (const int rank : members) {
    start(cluster, rank, group, members, jobs[static_cast<std::size_t>(rank)]);
  }
  const Buffer expected =
      reference_reduce(DType::kFloat32, ReduceOp::kSum, by_host(cluster, members, inputs));
  for (Job& job : jobs) {
    const Status status = finish(job);
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_EQ(std::memcmp(job.output.data(), expected.data(), expected.size()), 0) << count;
  }
}

}  // namespace smdp::testing
