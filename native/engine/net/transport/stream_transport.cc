#include "net/transport/stream_transport.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

namespace smdp {
namespace {

constexpr std::chrono::milliseconds kDrainTime{100};  // for frames on the other connections to arrive

}  // namespace

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
  TimePoint heard =
      Clock::now();  // at the last look; for bulk data also when nothing was left to acknowledge
  bool goodbye = false;
  bool ended = false;
};

struct StreamTransport::Peer {
  int rank = 0;
  std::vector<std::unique_ptr<Rail>> rails;
  bool lost = false;
  std::optional<Status> torn;  // why a connection ended without a goodbye
  TimePoint lost_at{};         // when the peer then counts as lost
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
    : loop_(loop), rank_(rank), heartbeat_s_(heartbeat_s) {
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
  if (found == peers_.end() || found->second->lost) {
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

// A peer is gone with its last connection, and lost soon after the first one that ends without a goodbye:
// frames on its other connections, which may report a failure, are read first.
void StreamTransport::rail_ended(Peer& peer, bool orderly, Status why) {
  if (peer.lost) {
    return;
  }
  if (!orderly && !peer.torn) {
    peer.torn = why;
    peer.lost_at = Clock::now() + kDrainTime;
  }
  if (std::ranges::all_of(peer.rails, [](const auto& rail) { return rail->ended; })) {
    peer.lost = true;
    events_->lost(peer.rank, !peer.torn, peer.torn.value_or(std::move(why)));
  }
}

void StreamTransport::tick() {
  const TimePoint now = Clock::now();
  for (auto& [rank, peer] : peers_) {
    if (!peer->lost && peer->torn && now >= peer->lost_at) {
      peer->lost = true;
      events_->lost(rank, false, *peer->torn);
    }
  }
  if (now < next_ping_) {
    return;
  }
  // A process that was itself paused has sent nothing that a peer could acknowledge: it skips this check and
  // restarts the count. The same holds at the start, when a link may have been idle for long.
  const bool attentive = now - next_ping_ < seconds(heartbeat_s_ / 2);
  next_ping_ = now + seconds(heartbeat_s_ / 4);
  for (auto& [rank, peer] : peers_) {
    for (auto& rail : peer->rails) {
      if (!peer->lost && !rail->ended) {
        look_after(*rail, now, attentive);
      }
    }
  }
}

// Bulk data serves as its own ping: a connection for it on which nothing is in flight owes no
// acknowledgement.
void StreamTransport::look_after(Rail& rail, TimePoint now, bool attentive) {
  const bool is_small = &rail == rail.peer.rails.front().get();
  tcp_info info{};
  socklen_t size = sizeof(info);
  (void)::getsockopt(rail.stream.fd(), IPPROTO_TCP, TCP_INFO, &info,
                     &size);  // all zero on other sockets than TCP
  const TimePoint spoke = now - std::chrono::milliseconds(info.tcpi_last_ack_recv);
  // Probes: the peer's window was full. A paused process takes no bulk data. Its kernel acknowledges
  // retransmissions and probes, which become rare, and it ignores a probe that comes soon after another.
  const bool is_answered = !is_small && info.tcpi_last_ack_recv <= info.tcpi_last_data_sent;
  const bool owes_answer = (info.tcpi_unacked > 0 && !is_answered) || info.tcpi_probes > (is_small ? 0 : 2);
  rail.heard = attentive && (owes_answer || is_small) ? std::max(rail.heard, spoke) : now;
  if (owes_answer && now - rail.heard > seconds(heartbeat_s_)) {
    rail.peer.lost = true;
    const auto silent_s = std::chrono::duration_cast<std::chrono::seconds>(now - rail.heard).count();
    events_->lost(
        rail.peer.rank, false,
        {Code::kPeerLost, "its host or the link acknowledged nothing for " + std::to_string(silent_s) + " s" +
                              (is_small ? "" : " on a connection for bulk data")});
  } else if (is_small && now - spoke >= seconds(heartbeat_s_ / 4)) {
    FrameHeader ping;
    ping.type = FrameType::kPing;
    ping.sender = static_cast<std::uint32_t>(rank_);
    rail.stream.post({ping, {}, nullptr, nullptr});
  }
}

}  // namespace smdp
