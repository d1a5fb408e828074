// How a tensor is divided among the ranks of hosts that sum it first.
#include <gtest/gtest.h>

#include "../../adapters/torch/host_parts.h"

namespace smdp_torch {
namespace {

std::vector<std::vector<int>> ranks_of(const HostParts& parts) {
  std::vector<std::vector<int>> ranks;
  for (const Segment& segment : parts.segments) {
    ranks.push_back(segment.ranks);
  }
  return ranks;
}

TEST(HostParts, EquallyManyRanksHaveASegmentEach) {
  const HostParts parts({5, 5, 7, 7});
  EXPECT_EQ(parts.lanes, 2);
  EXPECT_EQ(ranks_of(parts), (std::vector<std::vector<int>>{{0, 2}, {1, 3}}));
}

TEST(HostParts, TheOnlyRankOfAHostHasAllSegments) {
  const HostParts parts({0, 0, 0, 1});
  EXPECT_EQ(parts.lanes, 3);
  EXPECT_EQ(ranks_of(parts), (std::vector<std::vector<int>>{{0, 3}, {1, 3}, {2, 3}}));
}

TEST(HostParts, UnevenHostsAreCutWhereEitherIs) {
  const HostParts parts({0, 0, 0, 1, 1});
  EXPECT_EQ(parts.lanes, 6);
  EXPECT_EQ(ranks_of(parts), (std::vector<std::vector<int>>{{0, 3}, {1, 3}, {1, 4}, {2, 4}}));
  EXPECT_EQ(parts.segments[1].begin, 2);
  EXPECT_EQ(parts.segments[1].end, 3);
}

TEST(HostParts, HostsAreInTheOrderOfTheirFirstRank) {
  const HostParts parts({9, 2, 9, 2});
  EXPECT_EQ(parts.hosts, (std::vector<std::vector<int>>{{0, 2}, {1, 3}}));
  EXPECT_EQ(ranks_of(parts), (std::vector<std::vector<int>>{{0, 1}, {2, 3}}));
}

TEST(HostParts, TheSegmentsCoverAllLanesOnce) {
  const HostParts parts({0, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2});
  int64_t end = 0;
  for (const Segment& segment : parts.segments) {
    EXPECT_EQ(segment.begin, end);
    EXPECT_GT(segment.end, segment.begin);
    EXPECT_EQ(segment.ranks.size(), 3U);
    end = segment.end;
  }
  EXPECT_EQ(end, parts.lanes);
}

}  // namespace
}  // namespace smdp_torch
