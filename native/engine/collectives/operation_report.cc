// What an operation waits for, in words and for traces.
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

// From whom this rank will hear in this operation, whatever its part in it.
void Operation::expect_words() {
  for (std::uint32_t piece = 0; piece < plan_.pieces.size(); ++piece) {
    if (at(piece).origin == Piece::kReducing) {
      expect_words_of_sums(piece);
    } else if (at(piece).origin != rank_) {
      expect_words_of_origin(piece);
    }
  }
}

void Operation::expect_words_of_origin(std::uint32_t piece) {
  const int origin = at(piece).origin;
  const int host = layout_.host_of[static_cast<std::size_t>(origin)];
  if (host != my_host_ && is_agent(piece)) {
    marks().expect_host(static_cast<std::size_t>(host));
  } else {
    marks().expect_local(local_of(host == my_host_ ? origin : layout_.agent(my_host_, at(piece).lane)));
  }
}

void Operation::expect_words_of_sums(std::uint32_t piece) {
  const Piece& p = at(piece);
  if (!is_agent(piece)) {
    if (!p.to_all() && p.owner_host != Piece::kEveryHost && p.owner_host != my_host_ && gets_result(piece)) {
      marks().expect_host(static_cast<std::size_t>(p.owner_host));  // straight to the root
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
