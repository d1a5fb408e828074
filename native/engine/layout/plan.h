// How a collective is divided into pieces, and what each rank does with each piece.
//
// Every rank of a group computes the same plan from the call, the group's layout and the shared options;
// nothing is negotiated. All collectives are made of two kinds of piece:
//
//   reducing    every rank has values. They are summed inside each host, then over the hosts; the result is
//   published. publishing  one rank (the origin) has the bytes. They are published.
//
// A piece has a lane: on each host the rank with local index `lane mod local size` is the piece's agent, the
// only rank that exchanges it with other hosts. So the host's share of the network is divided over its ranks,
// whatever their number. The pieces of a reduce_scatter have the rank that gets them as agent.
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
  // The ranks of the host of `rank`, itself included.
  [[nodiscard]] const std::vector<int>& mates_of(int rank) const {
    return hosts[static_cast<std::size_t>(host_of[static_cast<std::size_t>(rank)])];
  }
};

GroupLayout make_group_layout(const std::vector<int>& job_hosts_of_members);

// With more hosts than this, a sum takes longer, because all hosts wait for all, so more data is in flight.
inline constexpr std::size_t kFewHosts = 16;

struct PlanOptions {
  std::uint64_t piece_bytes = 256U << 10U;
  std::uint64_t small_bytes = 96U << 10U;
  std::uint64_t bulk_bytes = 4U << 20U;  // in flight per host, where there are few hosts
  std::optional<DType> wire_dtype;       // of fp32 sums between hosts, where it is not fp32

  // The bytes that a host has in flight. A sum waits for all hosts, so with many hosts more data must be in
  // flight to keep all of them busy. Modelled with 64 hosts of 8 ranks at 100 Gbit/s: 4 MiB take twice as
  // long.
  [[nodiscard]] std::uint64_t in_flight(std::size_t hosts) const {
    return hosts > kFewHosts ? bulk_bytes * hosts / (kFewHosts / 2) : bulk_bytes;
  }
};

struct Piece {
  static constexpr int kEveryHost = -1;  // owner_host: each host adds the sums of all hosts itself
  static constexpr int kReducing = -1;   // origin
  static constexpr int kEveryRank = -1;  // target

  std::uint64_t in_offset = 0;  // bytes
  std::uint64_t out_offset = 0;
  std::uint64_t bytes = 0;
  std::uint32_t lane = 0;
  int owner_host = kEveryHost;
  int origin = kReducing;
  int target = kEveryRank;  // or the only rank that gets the result
  std::uint32_t round = 0;  // the round in Plan::order

  [[nodiscard]] bool to_all() const { return target == kEveryRank; }
};

struct Plan {
  std::vector<Piece> pieces;
  // The order in which this rank's host handles the pieces: round by round over the shards, its own shard
  // last, so that every host receives data at any moment. On every host all pieces of a round precede the
  // next round, so the windows of different hosts do not wait for each other.
  std::vector<std::uint32_t> order;
};

// `rotation`: the operation's number. Small buffers have fewer owners than hosts, and one agent on each;
// rotation changes them from operation to operation.
Plan make_plan(const Descriptor& call, const GroupLayout& layout, const PlanOptions& options, int my_host,
               std::uint32_t rotation = 0);

}  // namespace smdp
