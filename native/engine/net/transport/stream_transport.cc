#include "net/transport/stream_transport.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace smdp {

// One connection. A stream that ends after kGoodbye ended orderly; any other end is a loss.
struct StreamTransport::Rail final : Stream::Events {
  Rail(StreamTransport& owner, Peer& peer, UniqueFd fd)
      : owner(owner), peer(peer), stream(owner.loop_, std::move(fd), *this) {}

  std::optional<Landing> place(const FrameHeader& header) override;
  void arrived(const FrameHeader& header, Landing landing) override;
  void lost(Status why) override;

  StreamTransport& owner;
  Peer& peer;
  Stream stream;
  LinkLiveness liveness;
  bool goodbye = false;
  bool ended = false;
};

struct StreamTransport::Peer {
  int rank = 0;
  std::vector<std::unique_ptr<Rail>> rails;
  PeerLiveness liveness;
};

std::optional<Landing> StreamTransport::Rail::place(const FrameHeader& header) {
  if (std::cmp_not_equal(header.sender, peer.rank)) {
    return std::nullopt;
  }
  if (header.type == FrameType::kPing || header.type == FrameType::kGoodbye) {
    return Landing{};
  }
  return owner.events_->place(peer.rank, header);
}

void StreamTransport::Rail::arrived(const FrameHeader& header, Landing landing) {
  if (header.type == FrameType::kGoodbye) {
    goodbye = true;
  } else if (header.type != FrameType::kPing) {
    owner.events_->arrived(peer.rank, header, std::move(landing));
  }
}

void StreamTransport::Rail::lost(Status why) {
  ended = true;
  owner.rail_ended(peer, goodbye, std::move(why));
}

StreamTransport::StreamTransport(Loop& loop, int rank, double heartbeat_s,
                                 std::map<int, std::vector<UniqueFd>> connections)
    : loop_(loop), rank_(rank), heartbeat_(heartbeat_s) {
  for (auto& [peer_rank, fds] : connections) {
    auto peer = std::make_unique<Peer>();
    peer->rank = peer_rank;
    for (UniqueFd& fd : fds) {
      const int on = 1;
      ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      peer->rails.push_back(std::make_unique<Rail>(*this, *peer, std::move(fd)));
    }
    peers_[peer_rank] = std::move(peer);
  }
}

StreamTransport::~StreamTransport() = default;

void StreamTransport::start(Events& events) {
  events_ = &events;
  for (auto& [rank, peer] : peers_) {
    for (auto& rail : peer->rails) {
      rail->stream.start();
    }
  }
}

void StreamTransport::post(int peer_rank, Message message) {
  const auto found = peers_.find(peer_rank);
  if (found == peers_.end() || found->second->liveness.lost()) {
    return;
  }
  auto& rails = found->second->rails;
  message.header.sender = static_cast<std::uint32_t>(rank_);
  if (goes_first(message.header.call, message.payload.size()) || rails.size() == 1) {
    rails.front()->stream.post(std::move(message));
    return;
  }
  const auto least =
      std::min_element(rails.begin() + 1, rails.end(), [](const auto& left, const auto& right) {
        return left->stream.queued_bytes() < right->stream.queued_bytes();
      });
  (*least)->stream.post(std::move(message));
}

void StreamTransport::cancel(std::uint64_t group, std::uint64_t operation) {
  for (auto& [rank, peer] : peers_) {
    for (auto& rail : peer->rails) {
      rail->stream.cancel(group, operation);
    }
  }
}

void StreamTransport::finish() {
  for (auto& [rank, peer] : peers_) {
    for (auto& rail : peer->rails) {
      FrameHeader goodbye;
      goodbye.type = FrameType::kGoodbye;
      goodbye.sender = static_cast<std::uint32_t>(rank_);
      rail->stream.post({goodbye, {}, nullptr, nullptr});
      rail->stream.finish();
    }
  }
}

void StreamTransport::report(const Peer& peer, std::optional<PeerLiveness::Loss> loss) {
  if (loss) {
    events_->lost(peer.rank, loss->orderly, std::move(loss->why));
  }
}

void StreamTransport::rail_ended(Peer& peer, bool orderly, Status why) {
  const bool is_last = std::ranges::all_of(peer.rails, [](const auto& rail) { return rail->ended; });
  report(peer, peer.liveness.connection_ended(orderly, is_last, std::move(why)));
}

void StreamTransport::tick() {
  const TimePoint now = Clock::now();
  for (auto& [rank, peer] : peers_) {
    report(*peer, peer->liveness.look(now));
  }
  const Heartbeat::Look look = heartbeat_.next(now);
  if (look == Heartbeat::Look::kNotDue) {
    return;
  }
  for (auto& [rank, peer] : peers_) {
    for (auto& rail : peer->rails) {
      if (!peer->liveness.lost() && !rail->ended) {
        look_after(*rail, now, look == Heartbeat::Look::kAttentive);
      }
    }
  }
}

void StreamTransport::look_after(Rail& rail, TimePoint now, bool attentive) {
  Peer& peer = rail.peer;
  const bool is_small = &rail == peer.rails.front().get();
  LinkLiveness::Verdict found = rail.liveness.look(rail.stream.fd(), is_small, now, attentive, heartbeat_);
  if (found.silent) {
    report(peer, peer.liveness.silent(*std::move(found.silent)));
  } else if (found.needs_ping) {
    FrameHeader ping;
    ping.type = FrameType::kPing;
    ping.sender = static_cast<std::uint32_t>(rank_);
    rail.stream.post({ping, {}, nullptr, nullptr});
  }
}

}  // namespace smdp
