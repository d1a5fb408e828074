// How a tensor is divided when each host sums it first: which rank of a host has which part of the host's
// sum, and with which ranks of the other hosts it exchanges that part.
//
// A tensor has as many equal lanes as the least common multiple of the numbers of ranks on the hosts, so that
// the part of each rank is a whole number of lanes on every host. A segment is a range of lanes that one
// rank of each host has. Hosts with equally many ranks have one segment a rank; 3+1 ranks have three.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <vector>

namespace smdp_torch {

struct Segment {
  int64_t begin = 0;  // lanes
  int64_t end = 0;
  std::vector<int> ranks;  // of the group: one of each host, in the order of hosts
};

struct HostParts {
  std::vector<std::vector<int>> hosts;  // ranks of the group by host, hosts by their first rank
  int64_t lanes = 1;
  std::vector<Segment> segments;

  // `host_of`: by rank of the group, any number for each host.
  explicit HostParts(const std::vector<int>& host_of) {
    std::vector<int> order;
    for (std::size_t rank = 0; rank < host_of.size(); ++rank) {
      const auto found = std::find(order.begin(), order.end(), host_of[rank]);
      const auto index = static_cast<std::size_t>(found - order.begin());
      if (found == order.end()) {
        order.push_back(host_of[rank]);
        hosts.emplace_back();
      }
      hosts[index].push_back(static_cast<int>(rank));
    }
    std::set<int64_t> cuts;
    for (const auto& ranks : hosts) {
      lanes = std::lcm(lanes, static_cast<int64_t>(ranks.size()));
    }
    for (const auto& ranks : hosts) {
      const int64_t step = lanes / static_cast<int64_t>(ranks.size());
      for (int64_t cut = step; cut <= lanes; cut += step) {
        cuts.insert(cut);
      }
    }
    int64_t begin = 0;
    for (const int64_t end : cuts) {
      Segment segment{begin, end, {}};
      for (const auto& ranks : hosts) {
        const int64_t step = lanes / static_cast<int64_t>(ranks.size());
        segment.ranks.push_back(ranks[static_cast<std::size_t>(begin / step)]);
      }
      segments.push_back(std::move(segment));
      begin = end;
    }
  }
};

}  // namespace smdp_torch
