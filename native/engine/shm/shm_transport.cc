#include "shm/shm_transport.h"

#include <algorithm>

namespace smdp {
namespace {

// The offset of every rank's board: the first one behind the proof's page.
constexpr std::uint64_t kBoardOffset = 4096;

}  // namespace

ShmTransport::ShmTransport(Loop& loop, int rank, double heartbeat_s, Arena& arena,
                           std::map<int, LocalPeer> peers)
    : rank_(rank), board_(nullptr) {
  std::vector<int> ranks{rank};
  std::map<int, std::vector<UniqueFd>> sockets;
  for (auto& [peer, link] : peers) {
    ranks.push_back(peer);
    sockets[peer].push_back(std::move(link.socket));
  }
  std::ranges::sort(ranks);
  const auto index_of = [&](int wanted) {
    return static_cast<std::size_t>(std::ranges::find(ranks, wanted) - ranks.begin());
  };
  const std::size_t bytes = Board::bytes(ranks.size());
  if (!peers.empty() && arena.allocate(bytes) == kBoardOffset) {
    board_ = Board::at(arena.bytes().subspan(kBoardOffset), ranks.size());
    for (const auto& [peer, link] : peers) {
      if (const Board* other = Board::at(link.arena.subspan(kBoardOffset), ranks.size())) {
        index_[peer] = peers_.size();
        peers_.push_back({peer, Mailbox(*board_, *other, index_of(rank), index_of(peer)), {}, false});
      }
    }
  }
  bells_ = std::make_unique<StreamTransport>(loop, rank, heartbeat_s, std::move(sockets));
  if (!peers_.empty()) {
    loop.add_poller(this);
  }
}

void ShmTransport::start(Events& events) {
  events_ = &events;
  bells_->start(events);
}

void ShmTransport::post(int peer, Message message) {
  const auto found = index_.find(peer);
  if (found == index_.end() || !message.payload.empty()) {
    bells_->post(peer, std::move(message));
    return;
  }
  message.header.sender = static_cast<std::uint32_t>(rank_);
  message.header.payload = 0;
  put(peers_[found->second], message.header);
}

void ShmTransport::put(Peer& peer, const FrameHeader& header) {
  if (!peer.waiting.empty() || !peer.mailbox.post(header)) {
    peer.waiting.push_back(header);
  }
  if (peer.mailbox.must_wake()) {
    FrameHeader bell;
    bell.type = FrameType::kPing;
    bells_->post(peer.rank, {bell, {}, nullptr, nullptr});
  }
}

bool ShmTransport::poll() {
  bool any = false;
  for (Peer& peer : peers_) {
    while (!peer.waiting.empty() && peer.mailbox.post(peer.waiting.front())) {
      peer.waiting.pop_front();
    }
    any = take_all(peer) || any;
  }
  return any;
}

bool ShmTransport::take_all(Peer& peer) {
  bool any = false;
  FrameHeader header;
  while (!peer.lost) {
    const Mailbox::Taken taken = peer.mailbox.take(header);
    if (taken == Mailbox::Taken::kNothing) {
      break;
    }
    any = true;
    if (taken == Mailbox::Taken::kBreach || std::cmp_not_equal(header.sender, peer.rank) ||
        header.payload != 0 || !events_->place(peer.rank, header)) {
      peer.lost = true;
      events_->lost(peer.rank, false, {Code::kPeerLost, "a frame broke the protocol"});
      break;
    }
    events_->arrived(peer.rank, header, {});
  }
  return any;
}

bool ShmTransport::fall_asleep() {
  board_->naps.store(board_->naps.load() + 1);
  const bool work = std::ranges::any_of(peers_, [](const Peer& peer) {
    return !peer.lost && peer.mailbox.has_frames();  // full rings are retried on every tick
  });
  if (work) {
    wake_up();
  }
  return !work;
}

void ShmTransport::wake_up() { board_->naps.store(board_->naps.load() + 1); }

}  // namespace smdp
