#include <gtest/gtest.h>

#include <algorithm>

#include "layout/plan.h"

namespace smdp {
namespace {

TEST(Plan, PiecesCoverTheBufferOnce) {
  for (const auto& hosts :
       std::vector<std::vector<int>>{{0}, {0, 0, 0, 1}, {0, 1, 2, 2, 2, 2, 2, 2}, {0, 1, 0, 1}}) {
    const GroupLayout layout = make_group_layout(hosts);
    for (const std::uint64_t count : {0ULL, 1ULL, 7919ULL, 262144ULL, 6700417ULL}) {
      Descriptor call{Collective::kAllReduce, DType::kFloat16, ReduceOp::kSum, 0, count};
      const Plan plan = make_plan(call, layout, {}, 0);
      ASSERT_FALSE(plan.pieces.empty());
      std::uint64_t at = 0;
      for (const Piece& piece : plan.pieces) {
        EXPECT_EQ(piece.in_offset, at);
        EXPECT_EQ(piece.bytes % 2, 0U);
        at += piece.bytes;
      }
      EXPECT_EQ(at, 2 * count);
      auto order = plan.order;
      std::ranges::sort(order);
      for (std::uint32_t i = 0; i < order.size(); ++i) {
        EXPECT_EQ(order[i], i);
      }
    }
  }
}

TEST(Plan, SharesOfHostsAndOfTheirRanksAreBalanced) {
  const GroupLayout layout = make_group_layout({0, 0, 0, 0, 1, 1, 1, 1});
  const Plan plan =
      make_plan({Collective::kAllReduce, DType::kFloat32, ReduceOp::kSum, 0, 25U << 18U}, layout, {}, 0);
  std::vector<std::uint64_t> by_owner(8);
  for (const Piece& piece : plan.pieces) {
    by_owner[static_cast<std::size_t>(layout.agent(piece.owner_host, piece.lane))] += piece.bytes;
  }
  const auto [least, most] = std::ranges::minmax(by_owner);
  EXPECT_LE(static_cast<double>(most - least), 0.01 * static_cast<double>(most));
}

// Also with fewer pieces per shard than ranks per host: otherwise the agents work one after the other.
TEST(Plan, EveryAgentOfAHostHasPiecesInTheFirstRound) {
  std::vector<int> hosts;
  for (int rank = 0; rank < 16 * 8; ++rank) {
    hosts.push_back(rank / 8);
  }
  const GroupLayout layout = make_group_layout(hosts);
  const Plan plan =
      make_plan({Collective::kAllReduce, DType::kFloat32, ReduceOp::kSum, 0, 1U << 18U}, layout, {}, 0);
  std::vector<int> of_agent(8);
  for (const Piece& piece : plan.pieces) {
    if (piece.round == 0) {
      ++of_agent[static_cast<std::size_t>(layout.agent(0, piece.lane))];
    }
  }
  EXPECT_EQ(of_agent, std::vector<int>(8, 2));
}

}  // namespace
}  // namespace smdp
