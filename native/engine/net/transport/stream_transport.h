// Transport over stream sockets: TCP between hosts, and, for the control frames of a host's ranks, Unix
// sockets.
//
// Over TCP each peer has one connection for small frames and SMDP_STREAMS for bulk data. Two kinds of
// connection keep a barrier from waiting behind 100 MB of gradients. A bulk frame takes the connection with
// the least queued bytes. liveness.h decides that a peer is lost.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "net/loop.h"
#include "net/transport/liveness.h"
#include "net/transport/transport.h"

namespace smdp {

class StreamTransport final : public Transport {
 public:
  // `connections[peer]`: connected sockets, the one for small frames first.
  StreamTransport(Loop& loop, int rank, double heartbeat_s, std::map<int, std::vector<UniqueFd>> connections);
  ~StreamTransport() override;

  void start(Events& events) override;
  void post(int peer, Message message) override;
  void cancel(std::uint64_t group, std::uint64_t operation) override;
  void finish() override;
  void tick() override;

 private:
  struct Peer;
  struct Rail;

  void report(const Peer& peer, std::optional<PeerLiveness::Loss> loss);
  void rail_ended(Peer& peer, bool orderly, Status why);
  void look_after(Rail& rail, TimePoint now, bool attentive);

  Loop& loop_;
  int rank_;
  Heartbeat heartbeat_;
  Events* events_ = nullptr;
  std::map<int, std::unique_ptr<Peer>> peers_;
};

}  // namespace smdp
