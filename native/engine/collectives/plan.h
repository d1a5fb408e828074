// How a collective is cut into pieces, and who does what with each.
//
// Every rank of a group computes the same plan from the call, the group's layout and the shared options;
// nothing is negotiated. All collectives are made of two kinds of piece:
//
//   reducing    every rank has values. They are summed inside each host, then over the hosts, then published.
//   publishing  one rank (the origin) has the bytes. They are published.
//
// A piece has a lane: on each host the rank with local index `lane mod local size` is the piece's agent, the
// only one that talks to other hosts about it. So the host's share of the network is split over its ranks,
// whatever their number. The pieces that one rank of a reduce_scatter gets have that rank as agent, which
// adds them up where they stay.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "net/frame.h"

namespace smdp {

// A group's ranks by host. "Rank" in this file is the rank within the group.
struct GroupLayout {
  std::vector<std::vector<int>> hosts;  // ranks of each host, ascending; hosts by their first rank
  std::vector<int> host_of;
  std::vector<int> local_of;

  [[nodiscard]] int size() const { return static_cast<int>(host_of.size()); }
  [[nodiscard]] int agent(int host, std::uint32_t lane) const {
    const auto& ranks = hosts[static_cast<std::size_t>(host)];
    return ranks[lane % ranks.size()];
  }
};

GroupLayout make_group_layout(const std::vector<int>& job_hosts_of_members);

// With more hosts a sum takes longer, as all wait for all: then more has to be under way.
inline constexpr std::size_t kFewHosts = 16;

struct PlanOptions {
  std::uint64_t piece_bytes = 256U << 10U;
  std::uint64_t small_bytes = 96U << 10U;
  std::uint64_t bulk_bytes = 4U << 20U;  // that a host of a few has in flight
  std::optional<DType> wire_dtype;       // of fp32 sums between hosts, where it is not their own

  // What a host has in flight where there are so many. A sum waits for all of them, so with many more has to
  // be under way for all to be supplied. Modelled with 64 hosts of 8 ranks at 100 Gbit/s: 4 MiB take twice as
  // long.
  [[nodiscard]] std::uint64_t in_flight(std::size_t hosts) const {
    return hosts > kFewHosts ? bulk_bytes * hosts / (kFewHosts / 2) : bulk_bytes;
  }
};

struct Piece {
  static constexpr int kEveryHost = -1;  // owner_host: each host adds all host sums up for itself
  static constexpr int kReducing = -1;   // origin
  static constexpr int kEveryRank = -1;  // target

  std::uint64_t in_offset = 0;  // bytes
  std::uint64_t out_offset = 0;
  std::uint64_t bytes = 0;
  std::uint32_t lane = 0;
  int owner_host = kEveryHost;
  int origin = kReducing;
  int target = kEveryRank;  // else the only rank that gets the result
  std::uint32_t round = 0;  // by which rounds are told apart in Plan::order

  [[nodiscard]] bool to_all() const { return target == kEveryRank; }
};

struct Plan {
  std::vector<Piece> pieces;
  // The order in which this rank's host handles the pieces: round by round over the shards, its own shard
  // last, so that at any moment every host is sent something. All pieces of a round precede the next round on
  // every host, which keeps the windows of different hosts from waiting for each other.
  std::vector<std::uint32_t> order;
};

// `rotation`: the operation's number. Small buffers have fewer owners than there are hosts, and one agent on
// each; from operation to operation they change.
Plan make_plan(const Descriptor& call, const GroupLayout& layout, const PlanOptions& options, int my_host,
               std::uint32_t rotation = 0);

}  // namespace smdp
