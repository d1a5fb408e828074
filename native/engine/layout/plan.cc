#include "layout/plan.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace smdp {
namespace {

constexpr std::uint64_t kCut = 64;                 // bytes: pieces begin on cache lines of the buffer
constexpr std::uint64_t kLeastPiece = 16U << 10U;  // bytes; smaller pieces cost more than they balance
// Between many hosts: smaller messages cost more than their overlap gains. Modelled with 64 hosts of 8 ranks
// at 100 Gbit/s and copy threads: pieces of 32 KiB take a fifth longer.
constexpr std::uint64_t kLeastMessage = 64U << 10U;

std::uint64_t divide_up(std::uint64_t value, std::uint64_t by) { return (value + by - 1) / by; }
std::uint64_t round_up(std::uint64_t value, std::uint64_t to) { return divide_up(value, to) * to; }

// Up to this many hosts exchange small sums directly. With more, the messages of a full exchange cost more
// than the second step through an owner.
constexpr std::size_t kFullExchange = 4;
constexpr std::uint64_t kLeastShard = 16U << 10U;  // bytes; a smaller one is not worth its messages

std::size_t most_local(const GroupLayout& layout) {
  std::size_t most = 1;
  for (const auto& ranks : layout.hosts) {
    most = std::max(most, ranks.size());
  }
  return most;
}

// Bytes per piece of a range. At most the option. The bytes in flight of a host hold two pieces for each of
// its ranks and each host, or four for a rank alone on its host, for which a piece costs less. The number of
// pieces is a multiple of the local size, unless that makes them tiny or, with many hosts, their messages too
// many.
std::uint64_t piece_size(std::uint64_t bytes, const GroupLayout& layout, const PlanOptions& options) {
  const std::size_t local = most_local(layout);
  const std::size_t hosts = layout.hosts.size();
  std::uint64_t most = options.piece_bytes;
  if (hosts > 1) {
    const std::uint64_t rounds = local == 1 ? 4 : 2;
    most = std::min(most, std::max(kLeastMessage, options.in_flight(hosts) / (rounds * hosts * local)));
  }
  std::uint64_t count = std::max<std::uint64_t>(1, divide_up(bytes, most));
  if (bytes / local >= (hosts > kFewHosts ? kLeastMessage / 2 : kLeastPiece)) {
    count = round_up(count, local);
  }
  return std::max(kCut, round_up(divide_up(bytes, count), kCut));
}

enum class Lanes : std::uint8_t { kTurn, kStay };

void cut(std::vector<Piece>& pieces, Piece first, std::uint64_t bytes, std::uint64_t step,
         Lanes lanes = Lanes::kTurn) {
  for (std::uint64_t at = 0; at < bytes; at += step) {
    Piece piece = first;
    piece.in_offset += at;
    piece.out_offset += at;
    piece.bytes = std::min(step, bytes - at);
    piece.round = static_cast<std::uint32_t>(at / step);
    piece.lane = first.lane + (lanes == Lanes::kTurn ? piece.round : 0);
    pieces.push_back(piece);
  }
}

// A piece without bytes: no rank passes it before all ranks have made the call.
Piece barrier_piece(std::size_t hosts, std::uint32_t rotation) {
  Piece piece;
  piece.lane = rotation;
  if (hosts > kFullExchange) {
    piece.owner_host = static_cast<int>(rotation % hosts);
  }
  return piece;
}

bool exchanges_whole(std::uint64_t bytes, std::size_t hosts, const PlanOptions& options) {
  return hosts <= kFullExchange && bytes * (hosts - 1) <= options.small_bytes;
}

void plan_reduction(std::vector<Piece>& pieces, const Descriptor& call, const GroupLayout& layout,
                    const PlanOptions& options, std::uint32_t rotation) {
  const std::uint64_t bytes = call.count * size_of(call.dtype);
  const std::size_t hosts = layout.hosts.size();
  Piece piece;
  piece.target = call.collective == Collective::kReduce ? static_cast<int>(call.root) : Piece::kEveryRank;
  piece.lane = rotation;
  if (hosts == 1 || bytes == 0 || exchanges_whole(bytes, hosts, options)) {
    if (hosts == 1 && bytes > 0) {
      cut(pieces, piece, bytes, piece_size(bytes, layout, options));
    } else {
      piece.bytes = bytes;
      pieces.push_back(piece);
    }
    return;
  }
  const std::uint64_t owners = std::clamp<std::uint64_t>(bytes / kLeastShard, 1, hosts);
  const std::uint64_t shard = round_up(divide_up(bytes, owners), kCut);
  const std::uint64_t step = piece_size(shard, layout, options);
  // From operation to operation, other agents add the pieces of a shard.
  const std::uint32_t first_lane = rotation * static_cast<std::uint32_t>(divide_up(shard, step));
  for (std::uint64_t index = 0; index * shard < bytes; ++index) {
    piece.in_offset = piece.out_offset = index * shard;
    // From shard to shard another agent begins, so that all agents work even where a shard has few pieces.
    piece.lane = first_lane + static_cast<std::uint32_t>(index);
    piece.owner_host = static_cast<int>((index + (owners < hosts ? rotation : 0)) % hosts);
    cut(pieces, piece, std::min(shard, bytes - index * shard), step);
  }
}

// Each rank's part goes from each host directly to that rank.
void plan_scattered_reduction(std::vector<Piece>& pieces, const Descriptor& call, const GroupLayout& layout,
                              const PlanOptions& options) {
  const std::uint64_t bytes = call.count * size_of(call.dtype);
  const std::uint64_t step = piece_size(bytes, layout, options);
  for (int rank = 0; rank < layout.size() && bytes > 0; ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    Piece piece;
    piece.target = rank;
    piece.owner_host = layout.host_of[index];
    piece.lane = static_cast<std::uint32_t>(layout.local_of[index]);
    const std::size_t first = pieces.size();
    cut(pieces, piece, bytes, step, Lanes::kStay);
    for (std::size_t at = first; at < pieces.size(); ++at) {
      pieces[at].in_offset += index * bytes;
    }
  }
}

void plan_publishing(std::vector<Piece>& pieces, int origin, std::uint64_t out_offset, std::uint64_t bytes,
                     const GroupLayout& layout, const PlanOptions& options) {
  Piece piece;
  piece.origin = origin;
  piece.out_offset = out_offset;
  piece.lane = static_cast<std::uint32_t>(layout.local_of[static_cast<std::size_t>(origin)]);
  cut(pieces, piece, bytes, piece_size(bytes, layout, options));
}

}  // namespace

GroupLayout make_group_layout(const std::vector<int>& job_hosts_of_members) {
  GroupLayout layout;
  std::map<int, int> index_of;
  for (int rank = 0; rank < static_cast<int>(job_hosts_of_members.size()); ++rank) {
    const int job_host = job_hosts_of_members[static_cast<std::size_t>(rank)];
    const auto [found, fresh] = index_of.emplace(job_host, static_cast<int>(layout.hosts.size()));
    if (fresh) {
      layout.hosts.emplace_back();
    }
    auto& ranks = layout.hosts[static_cast<std::size_t>(found->second)];
    layout.host_of.push_back(found->second);
    layout.local_of.push_back(static_cast<int>(ranks.size()));
    ranks.push_back(rank);
  }
  return layout;
}

Plan make_plan(const Descriptor& call, const GroupLayout& layout, const PlanOptions& options, int my_host,
               std::uint32_t rotation) {
  Plan plan;
  rotation %= 1U << 16U;
  const std::uint64_t bytes = call.count * size_of(call.dtype);
  switch (call.collective) {
    case Collective::kAllReduce:
      plan_reduction(plan.pieces, call, layout, options, rotation);
      break;
    case Collective::kReduce:
      plan_reduction(plan.pieces, call, layout, options, rotation);
      plan.pieces.push_back(barrier_piece(layout.hosts.size(), rotation));
      break;
    case Collective::kBroadcast:
      plan_publishing(plan.pieces, static_cast<int>(call.root), 0, bytes, layout, options);
      plan.pieces.push_back(barrier_piece(layout.hosts.size(), rotation));
      break;
    case Collective::kAllGather:
      for (int rank = 0; rank < layout.size(); ++rank) {
        plan_publishing(plan.pieces, rank, static_cast<std::uint64_t>(rank) * bytes, bytes, layout, options);
      }
      if (bytes == 0) {
        plan.pieces.push_back(barrier_piece(layout.hosts.size(), rotation));
      }
      break;
    case Collective::kReduceScatter:
      plan_scattered_reduction(plan.pieces, call, layout, options);
      if (bytes == 0) {
        plan.pieces.push_back(barrier_piece(layout.hosts.size(), rotation));
      }
      break;
    default:
      plan.pieces.push_back(barrier_piece(layout.hosts.size(), rotation));
      break;
  }
  plan.order.resize(plan.pieces.size());
  std::iota(plan.order.begin(), plan.order.end(), 0U);
  const auto hosts = static_cast<int>(layout.hosts.size());
  std::ranges::stable_sort(plan.order, {}, [&](std::uint32_t index) {
    const Piece& piece = plan.pieces[index];
    const int turn = piece.owner_host < 0 ? 0 : (piece.owner_host - my_host - 1 + 2 * hosts) % hosts;
    return std::pair(piece.owner_host < 0 ? 0U : piece.round, turn);
  });
  return plan;
}

}  // namespace smdp
