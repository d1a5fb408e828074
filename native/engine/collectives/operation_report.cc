// What an operation waits for, in words.
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
    if (p.origin != Piece::kReducing && p.origin != rank_) {
      return {"waiting for the data", {p.origin}};
    }
    if (p.origin == rank_) {
      Wait wait{"waiting for the receivers", {}};
      for (int other = 0; other < layout_.size(); ++other) {
        if (other != rank_) {
          wait.ranks.push_back(other);
        }
      }
      return wait;
    }
    if (is_agent(piece) && summed_[piece] == 0) {
      Wait wait{"waiting for the values of the host's ranks", {}};
      for (const int local : local_->missing(piece)) {
        wait.ranks.push_back(
            layout_.hosts[static_cast<std::size_t>(my_host_)][static_cast<std::size_t>(local)]);
      }
      return wait;
    }
    if (adds_hosts(piece)) {
      Wait wait{"waiting for the sums of the other hosts", {}};
      const auto found = flights_.find(piece);
      for (int host = 0; host < hosts_; ++host) {
        if (host != my_host_ &&
            (found == flights_.end() || found->second.sums[static_cast<std::size_t>(host)] == nullptr)) {
          wait.ranks.push_back(layout_.agent(host, p.lane));
        }
      }
      return wait;
    }
    const int from = is_agent(piece) && p.owner_host >= 0 ? layout_.agent(p.owner_host, p.lane)
                                                          : layout_.agent(my_host_, p.lane);
    return {"waiting for the result", {from}};
  }
  return {"sending", {}};
}

}  // namespace smdp
