// Results against the reference, bit for bit: types, operations, sizes and layouts, over TCP and over a
// transport that reorders.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "cluster.h"

namespace smdp::testing {
namespace {

std::string name_of_layout(const std::vector<int>& hosts) {
  std::string text;
  for (const int ranks : hosts) {
    text += (text.empty() ? "" : "+") + std::to_string(ranks);
  }
  return text;
}

std::vector<Buffer> random_inputs(std::size_t ranks, DType type, std::uint64_t count, std::uint32_t seed) {
  std::vector<Buffer> inputs;
  for (std::size_t i = 0; i < ranks; ++i) {
    inputs.push_back(random_buffer(type, count, seed + static_cast<std::uint32_t>(i) * 7919));
  }
  return inputs;
}

Buffer expected_of(Cluster& cluster, const std::vector<int>& members, const Descriptor& what,
                   const std::vector<Buffer>& inputs) {
  switch (what.collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
      return reference_reduce(what.dtype, what.op, by_host(cluster, members, inputs));
    case Collective::kBroadcast:
      return inputs[what.root];
    case Collective::kAllGather: {
      Buffer all;
      for (const Buffer& input : inputs) {
        all.insert(all.end(), input.begin(), input.end());
      }
      return all;
    }
    case Collective::kReduceScatter:  // of all ranks, one after the other
      return reference_reduce(what.dtype, what.op, by_host(cluster, members, inputs));
    default:
      break;
  }
  return {};
}

// The part of a reduce_scatter's result that belongs to rank `index`.
bool same_part(const Job& job, const Buffer& expected, std::size_t index) {
  const std::size_t bytes = job.output.size();
  const std::byte* made = job.in_place ? job.input.data() + index * bytes : job.output.data();
  return bytes == 0 || std::memcmp(made, expected.data() + index * bytes, bytes) == 0;
}

bool same_bytes(const Buffer& left, const Buffer& right) {
  return left.size() == right.size() &&
         (left.empty() || std::memcmp(left.data(), right.data(), left.size()) == 0);
}

// Runs one call on all members at once and compares every output.
void check_with(Cluster& cluster, std::uint64_t group, const std::vector<int>& members,
                const Descriptor& what, const std::vector<Buffer>& inputs, bool in_place = false) {
  SCOPED_TRACE(std::string(name_of(what.collective)) + " " + std::string(name_of(what.dtype)) + " " +
               std::string(name_of(what.op)) + " count " + std::to_string(what.count) + " root " +
               std::to_string(what.root) + " in place " + std::to_string(static_cast<int>(in_place)));
  std::vector<Job> jobs(members.size());
  for (std::size_t i = 0; i < members.size(); ++i) {
    jobs[i].what = what;
    jobs[i].input = inputs[i];
    jobs[i].in_place = in_place;
  }
  for (std::size_t i = 0; i < members.size(); ++i) {
    start(cluster, members[i], group, members, jobs[i]);
  }
  for (Job& job : jobs) {
    const Status status = finish(job);
    ASSERT_TRUE(status.ok()) << status.message();
  }
  if (what.collective == Collective::kBarrier) {
    return;
  }
  const Buffer expected = expected_of(cluster, members, what, inputs);
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (what.collective == Collective::kReduce && i != what.root) {
      continue;
    }
    if (what.collective == Collective::kReduceScatter) {
      ASSERT_TRUE(same_part(jobs[i], expected, i)) << "on rank " << members[i];
      continue;
    }
    ASSERT_TRUE(same_bytes(jobs[i].output, expected)) << "on rank " << members[i];
  }
}

void check(Cluster& cluster, std::uint64_t group, const std::vector<int>& members, const Descriptor& what,
           std::uint32_t seed, bool in_place = false) {
  const std::uint64_t parts = what.collective == Collective::kReduceScatter ? members.size() : 1;
  check_with(cluster, group, members, what,
             random_inputs(members.size(), what.dtype, what.count * parts, seed), in_place);
}

// Elements in 64 MiB and one more.
std::uint64_t count_past_64_mib(DType type) { return (64U << 20U) / size_of(type) + 1; }

class Layouts : public ::testing::TestWithParam<std::vector<int>> {};

TEST_P(Layouts, EveryTypeAndOperationEqualsTheReference) {
  Cluster cluster({.hosts = GetParam(), .options = {{"SMDP_PIECE_KIB", "4"}, {"SMDP_SMALL_KIB", "1"}}});
  ASSERT_TRUE(cluster.ok()) << cluster.opened()[0].message();
  const auto members = everybody(cluster);
  const std::uint64_t group = cluster.group(members, "all");
  std::uint32_t seed = 1;
  for (std::uint8_t t = 0; t < kDTypes; ++t) {
    for (std::uint8_t o = 0; o < kReduceOps; ++o) {
      const auto type = static_cast<DType>(t);
      const auto op = static_cast<ReduceOp>(o);
      if (!is_offered(type, op)) {
        continue;
      }
      for (const std::uint64_t count : {0ULL, 1ULL, 127ULL, 30011ULL}) {
        check(cluster, group, members, {Collective::kAllReduce, type, op, 0, count}, ++seed, count % 2 == 1);
        if (HasFatalFailure()) {
          return;
        }
      }
    }
  }
}

TEST_P(Layouts, EveryCollectiveAndRoot) {
  Cluster cluster({.hosts = GetParam(), .options = {{"SMDP_PIECE_KIB", "4"}, {"SMDP_SMALL_KIB", "1"}}});
  ASSERT_TRUE(cluster.ok()) << cluster.opened()[0].message();
  const auto members = everybody(cluster);
  const std::uint64_t group = cluster.group(members, "all");
  std::uint32_t seed = 1;
  for (const std::uint64_t count : {0ULL, 1ULL, 257ULL, 30011ULL}) {
    for (std::uint32_t root = 0; root < members.size(); ++root) {
      check(cluster, group, members, {Collective::kBroadcast, DType::kInt64, ReduceOp::kSum, root, count},
            ++seed, root % 2 == 0);
      check(cluster, group, members, {Collective::kReduce, DType::kBFloat16, ReduceOp::kSum, root, count},
            ++seed, root % 2 == 1);
    }
    check(cluster, group, members, {Collective::kAllGather, DType::kInt16, ReduceOp::kSum, 0, count}, ++seed);
    check(cluster, group, members, {Collective::kReduceScatter, DType::kFloat16, ReduceOp::kAvg, 0, count},
          ++seed);
    check(cluster, group, members, {Collective::kReduceScatter, DType::kFloat32, ReduceOp::kSum, 0, count},
          ++seed, true);
    check(cluster, group, members, {Collective::kBarrier, DType::kUInt8, ReduceOp::kSum, 0, 0}, ++seed);
    if (HasFatalFailure()) {
      return;
    }
  }
}

TEST_P(Layouts, ALargeBufferOfOddSize) {
  Cluster cluster({.hosts = GetParam()});
  ASSERT_TRUE(cluster.ok()) << cluster.opened()[0].message();
  const auto members = everybody(cluster);
  const std::uint64_t group = cluster.group(members, "all");
  for (const DType type : {DType::kUInt8, DType::kFloat32}) {
    check(cluster, group, members, {Collective::kAllReduce, type, ReduceOp::kSum, 0, count_past_64_mib(type)},
          1, is_float(type));
  }
}

INSTANTIATE_TEST_SUITE_P(All, Layouts,
                         ::testing::Values(std::vector{1}, std::vector{8}, std::vector{4, 4},
                                           std::vector{3, 1}, std::vector{8, 1}, std::vector{1, 1, 6},
                                           std::vector{1, 1, 1}),
                         [](const auto& info) {
                           std::string name = "hosts_" + name_of_layout(info.param);
                           std::ranges::replace(name, '+', '_');
                           return name;
                         });

TEST(Collectives, SubGroupsOfAnyShapeRunAtTheSameTime) {
  Cluster cluster({.hosts = {3, 2, 1}, .options = {{"SMDP_PIECE_KIB", "4"}, {"SMDP_SMALL_KIB", "1"}}});
  ASSERT_TRUE(cluster.ok());
  const std::vector<std::vector<int>> groups = {{0, 1, 2, 3, 4, 5}, {5, 3, 0}, {1, 2}, {4, 2}, {3}};
  std::vector<std::uint64_t> ids;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    ids.push_back(cluster.group(groups[g], "group-" + std::to_string(g)));
  }
  // Several operations on every group before any wait, and each rank uses the groups in its own order.
  constexpr int kRounds = 6;
  std::map<std::tuple<std::size_t, int, int>, Job> jobs;
  std::mt19937 random(5);
  for (int rank = 0; rank < cluster.size(); ++rank) {
    std::vector<std::size_t> order(groups.size());
    std::iota(order.begin(), order.end(), 0U);
    std::ranges::shuffle(order, random);
    for (const std::size_t g : order) {
      if (std::ranges::find(groups[g], rank) == groups[g].end()) {
        continue;
      }
      for (int round = 0; round < kRounds; ++round) {
        Job& job = jobs[{g, round, rank}];
        job.what = {Collective::kAllReduce, DType::kFloat32, ReduceOp::kAvg, 0, 5003};
        job.input = random_buffer(DType::kFloat32, 5003, static_cast<std::uint32_t>(1000 * rank + round));
        start(cluster, rank, ids[g], groups[g], job);
      }
    }
  }
  for (auto& [key, job] : jobs) {
    ASSERT_TRUE(finish(job).ok());
    const auto& [g, round, rank] = key;
    std::vector<Buffer> inputs;
    for (const int member : groups[g]) {
      inputs.push_back(
          random_buffer(DType::kFloat32, 5003, static_cast<std::uint32_t>(1000 * member + round)));
    }
    ASSERT_TRUE(job.output ==
                reference_reduce(DType::kFloat32, ReduceOp::kAvg, by_host(cluster, groups[g], inputs)));
  }
}

TEST(Collectives, GroupsAreCreatedAndDestroyedRepeatedly) {
  Cluster cluster({.hosts = {2, 1}});
  ASSERT_TRUE(cluster.ok());
  for (std::uint32_t i = 0; i < 200; ++i) {
    const std::vector<int> members = {0, 1, 2};
    const std::uint64_t group = cluster.group(members, "again");
    check(cluster, group, members, {Collective::kAllReduce, DType::kInt32, ReduceOp::kSum, 0, 10}, i);
    for (const int member : members) {
      cluster.engine(member).destroy_group(group);
    }
  }
}

TEST(Collectives, ReorderedMessagesGiveTheSameBits) {
  for (std::uint32_t seed = 1; seed <= 4; ++seed) {
    FaultFabric fabric({seed, 0.3});
    Cluster cluster({.hosts = {3, 1, 2},
                     .fabric = &fabric,
                     .options = {{"SMDP_PIECE_KIB", "4"}, {"SMDP_SMALL_KIB", "1"}, {"SMDP_WINDOW", "1"}}});
    ASSERT_TRUE(cluster.ok());
    const auto members = everybody(cluster);
    const std::uint64_t group = cluster.group(members, "all");
    check(cluster, group, members, {Collective::kAllReduce, DType::kFloat16, ReduceOp::kSum, 0, 60013}, seed,
          true);
    check(cluster, group, members, {Collective::kReduce, DType::kFloat32, ReduceOp::kSum, 4, 20011}, seed,
          true);
    check(cluster, group, members, {Collective::kAllGather, DType::kUInt8, ReduceOp::kSum, 0, 10007}, seed);
    check(cluster, group, members, {Collective::kBroadcast, DType::kFloat64, ReduceOp::kSum, 2, 5003}, seed);
    check(cluster, group, members, {Collective::kReduceScatter, DType::kInt64, ReduceOp::kSum, 0, 5003},
          seed);
  }
}

TEST(Collectives, ALargeBufferOfOddSizeOnBothKernels) {
  std::vector<Buffer> outputs;
  for (const std::string kernels : {"portable", "auto"}) {
    Cluster cluster({.hosts = {2, 1}, .options = {{"SMDP_KERNELS", kernels}}});
    ASSERT_TRUE(cluster.ok());
    check(cluster, cluster.group({0, 1, 2}, "g"), {0, 1, 2},
          {Collective::kAllReduce, DType::kUInt8, ReduceOp::kSum, 0, count_past_64_mib(DType::kUInt8)}, 3);
    check(cluster, cluster.group({0, 1, 2}, "h"), {0, 1, 2},
          {Collective::kAllReduce, DType::kFloat32, ReduceOp::kAvg, 0, (4U << 20U) + 1}, 3, true);
  }
}

TEST(Collectives, ALargeBufferOfEveryTypeAndOperationInASubGroup) {
  Cluster cluster({.hosts = {3, 2}});
  ASSERT_TRUE(cluster.ok());
  const std::vector<int> members = {4, 0, 2};
  const std::uint64_t group = cluster.group(members, "sub");
  int checked = 0;
  for (std::uint8_t t = 0; t < kDTypes; ++t) {
    const auto type = static_cast<DType>(t);
    const std::vector<Buffer> inputs = random_inputs(members.size(), type, count_past_64_mib(type), 50U + t);
    for (std::uint8_t o = 0; o < kReduceOps; ++o) {
      const auto op = static_cast<ReduceOp>(o);
      if (!is_offered(type, op)) {
        continue;
      }
      check_with(cluster, group, members, {Collective::kAllReduce, type, op, 0, count_past_64_mib(type)},
                 inputs, ++checked % 2 == 0);
      if (HasFatalFailure()) {
        return;
      }
    }
  }
  EXPECT_EQ(checked, 4 * 5 + 5 * 8 + 7);
}

TEST(Collectives, ALargeBufferInEveryCollective) {
  Cluster cluster({.hosts = {2, 1}});
  ASSERT_TRUE(cluster.ok());
  const auto members = everybody(cluster);
  const std::uint64_t group = cluster.group(members, "all");
  const std::uint64_t count = count_past_64_mib(DType::kUInt8);
  const std::vector<Buffer> inputs = random_inputs(members.size(), DType::kUInt8, count, 9);
  for (const auto collective : {Collective::kReduce, Collective::kBroadcast, Collective::kAllGather}) {
    const std::uint32_t root = collective == Collective::kAllGather ? 0 : 1;
    check_with(cluster, group, members, {collective, DType::kUInt8, ReduceOp::kSum, root, count}, inputs);
  }
}

TEST(Collectives, NamedBuffersMayBeSubmittedInAnyOrder) {
  Cluster cluster({.hosts = {2, 2}, .options = {{"SMDP_BUFFERS_IN_FLIGHT", "2"}}});
  ASSERT_TRUE(cluster.ok());
  const auto members = everybody(cluster);
  const std::uint64_t group = cluster.group(members, "all");
  constexpr std::uint32_t kBuffers = 7;
  std::mt19937 random(3);
  for (std::uint32_t step = 0; step < 3; ++step) {
    std::map<std::pair<int, std::uint32_t>, Job> jobs;
    for (const int rank : members) {
      std::vector<std::uint32_t> order(kBuffers);
      std::iota(order.begin(), order.end(), 0U);
      std::ranges::shuffle(order, random);
      for (const std::uint32_t index : order) {
        Job& job = jobs[{rank, index}];
        job.input = random_buffer(DType::kInt32, 1000 + index, static_cast<std::uint32_t>(rank) + 10 * index);
        job.output.resize(job.input.size());
        job.handle = std::make_shared<OperationHandle>(nullptr);
        Call call;
        call.what = {Collective::kAllReduce, DType::kInt32, ReduceOp::kSum, 0, 1000 + index};
        call.input = job.input;
        call.output = job.output;
        call.keyed = true;
        call.step = step;
        call.index = index;
        call.buffers = kBuffers;
        call.handle = job.handle;
        job.refused = cluster.engine(rank).submit(group, 4, rank, std::move(call));
      }
    }
    for (auto& [key, job] : jobs) {
      ASSERT_TRUE(finish(job).ok());
      std::vector<Buffer> inputs;
      for (const int rank : members) {
        inputs.push_back(jobs[{rank, key.second}].input);
      }
      EXPECT_TRUE(job.output ==
                  reference_reduce(DType::kInt32, ReduceOp::kSum, by_host(cluster, members, inputs)));
    }
  }
}

TEST(Buffers, AWrongLengthAndAnUnalignedAddressHaveTheirOwnMessages) {
  Buffer memory(64);
  Cluster cluster({.hosts = {1}});
  ASSERT_TRUE(cluster.ok());
  const std::uint64_t group = cluster.group({0}, "all");
  const auto refusal = [&](std::span<const std::byte> input, std::span<std::byte> output) {
    Call call;
    call.what = {Collective::kAllReduce, DType::kFloat32, ReduceOp::kSum, 0, 4};
    call.input = input;
    call.output = output;
    call.handle = std::make_shared<OperationHandle>(nullptr);
    return cluster.engine(0).submit(group, 1, 0, std::move(call)).message();
  };
  const auto buffer = std::span(memory).first(16);
  EXPECT_EQ(refusal(buffer.first(12), buffer),
            "all_reduce(float32[4], sum): the input has 12 bytes, and the call needs 16");
  EXPECT_EQ(refusal(buffer, std::span(memory).subspan(33, 16)),
            "all_reduce(float32[4], sum): the output is at offset 1 from a multiple of 4, the size of its "
            "elements: align its memory");
}

// The other ranks' parts are written while the input is still read.
TEST(Overlap, AnInputInAnotherRanksPartOfTheOutputIsRefused) {
  constexpr std::size_t kBytes = 400;
  Buffer memory(2 * kBytes);  // outlives the accepted call, which ends with the cluster
  Cluster cluster({.hosts = {2}});
  ASSERT_TRUE(cluster.ok());
  const std::uint64_t group = cluster.group({0, 1}, "all");
  const auto gathered = [&](int rank, std::size_t from) {
    Call call;
    call.what = {Collective::kAllGather, DType::kFloat32, ReduceOp::kSum, 0, kBytes / sizeof(float)};
    call.input = std::span(memory).subspan(from, kBytes);
    call.output = memory;
    call.handle = std::make_shared<OperationHandle>(nullptr);
    return cluster.engine(rank).submit(group, 2, rank, std::move(call)).code();
  };
  EXPECT_EQ(gathered(0, kBytes), Code::kInvalid);
  EXPECT_EQ(gathered(1, 0), Code::kInvalid);
  EXPECT_EQ(gathered(0, kBytes / 2), Code::kInvalid);
  EXPECT_EQ(gathered(0, 0), Code::kOk);
}

// The sum of eight such values is beyond float16, their average is one of them.
TEST(Average, OverflowsOnlyIfTheAverageItselfIsTooLarge) {
  constexpr float kLarge = 20000;
  for (const std::vector<int>& hosts : std::vector<std::vector<int>>{{8}, {4, 4}, {5, 2, 1}, {1, 1, 1}}) {
    for (const bool narrowed : {false, true}) {
      SCOPED_TRACE(::testing::PrintToString(hosts) + (narrowed ? " float32 in float16" : " float16"));
      Cluster cluster({.hosts = hosts, .options = {{"SMDP_WIRE_DTYPE", narrowed ? "float16" : ""}}});
      ASSERT_TRUE(cluster.ok());
      const std::vector<int> members = everybody(cluster);
      const std::uint64_t group = cluster.group(members, "all");
      std::vector<Job> jobs(members.size());
      for (const int rank : members) {
        Job& job = jobs[static_cast<std::size_t>(rank)];
        job.what = {Collective::kAllReduce, narrowed ? DType::kFloat32 : DType::kFloat16, ReduceOp::kAvg, 0,
                    4};
        job.input.resize(4 * size_of(job.what.dtype));
        for (std::size_t i = 0; i < 4; ++i) {
          const float value = kLarge;
          const std::uint16_t half = narrow(DType::kFloat16, value);
          std::memcpy(job.input.data() + i * size_of(job.what.dtype),
                      narrowed ? static_cast<const void*>(&value) : &half, size_of(job.what.dtype));
        }
        start(cluster, rank, group, members, job);
      }
      for (Job& job : jobs) {
        const Status status = finish(job);
        ASSERT_TRUE(status.ok()) << status.message();
        EXPECT_EQ(job.output, job.input);
      }
    }
  }
}

}  // namespace
}  // namespace smdp::testing
