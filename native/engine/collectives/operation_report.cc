// What an operation waits for: for error texts and for traces.
#include <set>

#include "collectives/operation.h"

namespace smdp {

Operation::Wait Operation::waiting_for() const {
  if (!started_) {
    return {"waiting for its turn", {}};
  }
  for (std::uint32_t piece = 0; piece < plan_.pieces.size(); ++piece) {
    if (waits_[piece] == 0) {
      continue;
    }
    const Piece& p = at(piece);
    if (p.origin != Piece::kReducing) {
      const std::vector<int> receivers = receivers_of(piece);
      return receivers.empty() ? Wait{"waiting for the data", {p.origin}}
                               : Wait{"waiting for the receivers", receivers};
    }
    if (is_agent(piece) && !has_passed(piece, kSummed)) {
      Wait wait{"waiting for the values of the host's ranks", {}};
      for (const int local : local_->missing(piece)) {
        wait.ranks.push_back(
            layout_.hosts[static_cast<std::size_t>(my_host_)][static_cast<std::size_t>(local)]);
      }
      // With all values, the piece waits until others are no longer in flight (may_send).
      return wait.ranks.empty() ? wait_of_flights() : wait;
    }
    return adds_hosts(piece) ? Wait{"waiting for the sums of the other hosts", absent_sums(piece)}
                             : Wait{"waiting for the result", {sender_of_result(piece)}};
  }
  Wait wait{"waiting for the receivers", {}};
  for (const auto& [rank, messages] : sending_) {
    wait.ranks.push_back(rank);
  }
  return wait;
}

// What the reducing pieces in flight wait for: those that this agent has summed, and that are not settled.
Operation::Wait Operation::wait_of_flights() const {
  std::set<int> ranks;
  for (std::uint32_t piece = 0; piece < plan_.pieces.size(); ++piece) {
    if (waits_[piece] == 0 || !has_passed(piece, kSummed) || has_passed(piece, kPublished)) {
      continue;
    }
    if (!adds_hosts(piece)) {
      ranks.insert(sender_of_result(piece));
    } else if (flights_.contains(piece)) {
      const std::vector<int> absent = absent_sums(piece);
      ranks.insert(absent.begin(), absent.end());
    }
  }
  return {"waiting for the pieces in flight", {ranks.begin(), ranks.end()}};
}

// The agents of the other hosts whose sums of the piece have not arrived.
std::vector<int> Operation::absent_sums(std::uint32_t piece) const {
  std::vector<int> ranks;
  const auto found = flights_.find(piece);
  for (int host = 0; host < hosts_; ++host) {
    if (host != my_host_ &&
        (found == flights_.end() || found->second.sums[static_cast<std::size_t>(host)] == nullptr)) {
      ranks.push_back(layout_.agent(host, at(piece).lane));
    }
  }
  return ranks;
}

int Operation::sender_of_result(std::uint32_t piece) const {
  const Piece& p = at(piece);
  return layout_.agent(is_agent(piece) && p.owner_host >= 0 ? p.owner_host : my_host_, p.lane);
}

// The ranks to which this rank publishes the piece, and that have not acknowledged it.
std::vector<int> Operation::receivers_of(std::uint32_t piece) const {
  std::vector<int> ranks;
  for (const int local : local_->takers(piece)) {
    ranks.push_back(layout_.hosts[static_cast<std::size_t>(my_host_)][static_cast<std::size_t>(local)]);
  }
  const auto credited = credited_.find(piece);
  for (int host = 0; host < hosts_ && at(piece).origin == rank_; ++host) {
    if (host != my_host_ && (credited == credited_.end() || !credited->second.contains(host))) {
      ranks.push_back(layout_.agent(host, at(piece).lane));
    }
  }
  return ranks;
}

// Marks the ranks and hosts that must send something to this rank in this operation.
void Operation::expect_frames() {
  for (std::uint32_t piece = 0; piece < plan_.pieces.size(); ++piece) {
    if (at(piece).origin == Piece::kReducing) {
      expect_sums(piece);
    } else if (at(piece).origin != rank_) {
      expect_origin(piece);
    }
  }
}

void Operation::expect_origin(std::uint32_t piece) {
  const int origin = at(piece).origin;
  const int host = layout_.host_of[static_cast<std::size_t>(origin)];
  if (host != my_host_ && is_agent(piece)) {
    marks().expect_host(static_cast<std::size_t>(host));
  } else {
    marks().expect_local(local_of(host == my_host_ ? origin : layout_.agent(my_host_, at(piece).lane)));
  }
}

void Operation::expect_sums(std::uint32_t piece) {
  const Piece& p = at(piece);
  if (!is_agent(piece)) {
    if (!p.to_all() && p.owner_host != Piece::kEveryHost && p.owner_host != my_host_ && gets_result(piece)) {
      marks().expect_host(static_cast<std::size_t>(p.owner_host));  // the root gets it directly
    } else if (gets_result(piece)) {
      marks().expect_local(local_of(layout_.agent(my_host_, p.lane)));
    }
    return;
  }
  for (const int mate : layout_.hosts[static_cast<std::size_t>(my_host_)]) {
    if (mate != rank_) {
      marks().expect_local(local_of(mate));
    }
  }
  for (int host = 0; host < hosts_; ++host) {
    if (host != my_host_ && (adds_hosts(piece) || host == p.owner_host)) {
      marks().expect_host(static_cast<std::size_t>(host));
    }
  }
}

}  // namespace smdp
