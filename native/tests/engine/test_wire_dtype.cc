// Sums that are sent between hosts in a narrower type: their bits, their error, and the calls that are not
// narrowed.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "cluster.h"

namespace smdp::testing {
namespace {

struct Wire {
  const char* name;
  DType dtype;
  double unit;  // half the relative distance of two neighbours: the largest error of rounding
};
const std::array kWires = {Wire{"bfloat16", DType::kBFloat16, 1.0 / 256},
                           Wire{"float16", DType::kFloat16, 1.0 / 2048}};

// The outputs of all ranks.
std::vector<Buffer> run(Cluster& cluster, const Descriptor& what, const std::vector<Buffer>& inputs,
                        bool in_place) {
  const auto members = everybody(cluster);
  const std::uint64_t group = cluster.group(members, "all");
  std::vector<Job> jobs(members.size());
  for (const int rank : members) {
    Job& job = jobs[static_cast<std::size_t>(rank)];
    job.what = what;
    job.input = inputs[static_cast<std::size_t>(rank)];
    job.in_place = in_place;
    start(cluster, rank, group, members, job);
  }
  std::vector<Buffer> outputs;
  for (Job& job : jobs) {
    const Status status = finish(job);
    EXPECT_TRUE(status.ok()) << status.message();
    outputs.push_back(job.output);
  }
  return outputs;
}

std::vector<Buffer> random_inputs(int ranks, std::uint64_t count) {
  std::vector<Buffer> inputs;
  for (int rank = 0; rank < ranks; ++rank) {
    inputs.push_back(random_buffer(DType::kFloat32, count, static_cast<std::uint32_t>(rank) * 7919 + 5));
  }
  return inputs;
}

TEST(WireDtype, GivesTheReferencesBitsOnEveryRankLayoutAndSize) {
  for (const Wire& wire : kWires) {
    for (const std::vector<int>& hosts : {std::vector{2, 2}, {1, 1, 1}, {3, 1}, {1, 1, 1, 1, 1, 1}}) {
      FaultFabric fabric;
      Cluster cluster({.hosts = hosts, .fabric = &fabric, .options = {{"SMDP_WIRE_DTYPE", wire.name}}});
      ASSERT_TRUE(cluster.ok());
      for (const std::uint64_t count : {1U, 1000U, 300001U}) {
        for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
          const auto inputs = random_inputs(cluster.size(), count);
          const Buffer expected =
              reference_reduce_narrowed(wire.dtype, op, by_host(cluster, everybody(cluster), inputs));
          const Descriptor what{Collective::kAllReduce, DType::kFloat32, op, 0, count};
          for (const Buffer& output : run(cluster, what, inputs, count % 2 == 1)) {
            EXPECT_EQ(output, expected) << wire.name << " " << hosts.size() << " hosts, " << count;
          }
        }
      }
    }
  }
}

TEST(WireDtype, ReduceGivesTheRootTheSameBits) {
  FaultFabric fabric;
  Cluster cluster({.hosts = {2, 1, 1}, .fabric = &fabric, .options = {{"SMDP_WIRE_DTYPE", "bfloat16"}}});
  ASSERT_TRUE(cluster.ok());
  const auto inputs = random_inputs(cluster.size(), 200003);
  const Descriptor what{Collective::kReduce, DType::kFloat32, ReduceOp::kSum, 1, 200003};
  const auto outputs = run(cluster, what, inputs, false);
  EXPECT_EQ(outputs[1], reference_reduce_narrowed(DType::kBFloat16, ReduceOp::kSum,
                                                  by_host(cluster, everybody(cluster), inputs)));
}

// docs/explanation/engine.md: with H the hosts' sums and u the unit, the error is at most (2u + u^2) sum |H|,
// and what fp32 rounding adds.
TEST(WireDtype, KeepsTheStatedErrorBound) {
  constexpr std::size_t kCount = 100000;
  for (const Wire& wire : kWires) {
    FaultFabric fabric;
    Cluster cluster({.hosts = {2, 2, 2}, .fabric = &fabric, .options = {{"SMDP_WIRE_DTYPE", wire.name}}});
    ASSERT_TRUE(cluster.ok());
    std::mt19937 random(11);
    std::normal_distribution<float> normal(0, 1);
    std::vector<std::vector<float>> values(6, std::vector<float>(kCount));
    std::vector<Buffer> inputs;
    for (auto& of_rank : values) {
      std::ranges::generate(of_rank, [&] { return normal(random); });
      inputs.emplace_back(kCount * sizeof(float));
      std::memcpy(inputs.back().data(), of_rank.data(), inputs.back().size());
    }
    const Descriptor what{Collective::kAllReduce, DType::kFloat32, ReduceOp::kSum, 0, kCount};
    const auto outputs = run(cluster, what, inputs, false);
    double worst = 0;
    for (std::size_t i = 0; i < kCount; ++i) {
      double exact = 0;
      double of_hosts = 0;
      for (std::size_t host = 0; host < 3; ++host) {
        const double sum =
            static_cast<double>(values[2 * host][i]) + static_cast<double>(values[2 * host + 1][i]);
        exact += sum;
        of_hosts += std::abs(sum);
      }
      float got = 0;
      std::memcpy(&got, outputs[0].data() + i * sizeof(float), sizeof(got));
      const double bound = (2 * wire.unit + wire.unit * wire.unit + 1e-6) * of_hosts + 1e-7;
      worst = std::max(worst, std::abs(got - exact) / bound);
    }
    EXPECT_LE(worst, 1) << wire.name;
    EXPECT_GT(worst, 0.2) << wire.name << ": it was not narrowed, or the bound says nothing";
  }
}

TEST(WireDtype, DoesNotAffectOtherTypesOperationsOrSingleHosts) {
  for (const std::vector<int>& hosts : {std::vector{2, 2}, {3}}) {
    FaultFabric fabric;
    Cluster cluster({.hosts = hosts, .fabric = &fabric, .options = {{"SMDP_WIRE_DTYPE", "bfloat16"}}});
    ASSERT_TRUE(cluster.ok());
    for (const auto& [type, op] :
         {std::pair{DType::kFloat64, ReduceOp::kSum}, std::pair{DType::kFloat32, ReduceOp::kMax},
          std::pair{hosts.size() == 1 ? DType::kFloat32 : DType::kInt32, ReduceOp::kSum}}) {
      std::vector<Buffer> inputs;
      for (int rank = 0; rank < cluster.size(); ++rank) {
        inputs.push_back(random_buffer(type, 70001, static_cast<std::uint32_t>(rank) + 1));
      }
      const Buffer expected = reference_reduce(type, op, by_host(cluster, everybody(cluster), inputs));
      for (const Buffer& output : run(cluster, {Collective::kAllReduce, type, op, 0, 70001}, inputs, true)) {
        EXPECT_EQ(output, expected) << name_of(type) << " " << name_of(op);
      }
    }
  }
}

TEST(WireDtype, MustBeTheSameOnAllRanks) {
  const auto differ = [](int rank, EngineConfig& config) {
    config.options.wire_dtype = rank == 0 ? "bfloat16" : "";
    config.options.rendezvous_timeout_s = 10;
  };
  Cluster cluster({.hosts = {1, 1}, .adjust = differ});
  for (const Status& status : cluster.opened()) {
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.message().find("SMDP_WIRE_DTYPE"), std::string::npos) << status.message();
  }
}

TEST(WireDtype, RefusesAnUnknownType) {
  Options options;
  const Status status = set_option(options, "SMDP_WIRE_DTYPE", "fp8");
  EXPECT_NE(status.message().find("bfloat16, float16 or empty"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace smdp::testing
