// Transport between the ranks of one host: frames through mailboxes in shared memory. A Unix socket to each
// rank carries frames with a payload (the reason of a failure) and the goodbye, closes when its process dies,
// and wakes a rank that sleeps.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "net/loop.h"
#include "net/transport/stream_transport.h"
#include "shm/arena.h"
#include "shm/mailbox.h"

namespace smdp {

struct LocalPeer {
  UniqueFd socket;
  std::span<const std::byte> arena;
};

class ShmTransport final : public Transport, public Loop::Poller {
 public:
  // `arena`: of this rank, with no regions allocated yet. Every rank of the host is in `peers` or is `rank`.
  ShmTransport(Loop& loop, int rank, double heartbeat_s, Arena& arena, std::map<int, LocalPeer> peers);

  void start(Events& events) override;
  void post(int peer, Message message) override;
  void cancel(std::uint64_t group, std::uint64_t operation) override { bells_->cancel(group, operation); }
  void finish() override { bells_->finish(); }

  // Loop::Poller
  bool poll() override;
  bool fall_asleep() override;
  void wake_up() override;

 private:
  struct Peer {
    int rank = 0;
    Mailbox mailbox;
    std::deque<FrameHeader> waiting;  // posted while the ring was full
    bool lost = false;
  };

  void put(Peer& peer, const FrameHeader& header);
  bool take_all(Peer& peer);

  int rank_;
  Board* board_;
  std::vector<Peer> peers_;
  std::map<int, std::size_t> index_;  // rank to place in peers_
  std::unique_ptr<StreamTransport> bells_;
  Events* events_ = nullptr;
};

}  // namespace smdp
