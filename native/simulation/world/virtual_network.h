// The network between the ranks of a simulated job: each message takes time on the outgoing link of its host,
// on the wire, and on the incoming link of the other host, and others may overtake it.
//
// One such network simulates the wires between hosts, another the shared memory within hosts. It reads a
// payload from the sender's memory when it is sent, and writes it to the receiver's memory as it arrives, so
// that memory which is freed too early is found out. It fulfils the contract of net/transport/transport.h:
// every message arrives once, or its sender is lost; a goodbye and a loss come after everything that arrives.
// A limited number of unread bytes is in flight between two ranks; the rest waits at the sender.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "base/executor.h"
#include "net/transport/transport.h"
#include "world.h"

namespace smdp::simulation {

// A breach of the network's contract, to test the judge.
enum class Breach : std::uint8_t { kNone, kDrop, kRepeat, kCorrupt };

struct NetworkCosts {
  double bytes_per_s = 0;  // of each host, in each direction
  Clock::duration least_latency{};
  Clock::duration most_latency{};
  Clock::duration heartbeat{};        // after which a rank that cannot be reached is lost
  std::uint64_t buffer = UINT64_MAX;  // bytes in flight to a rank that does not read
};

class VirtualNetwork {
 public:
  enum class Reach : std::uint8_t { kWithinHosts, kBetweenHosts };

  VirtualNetwork(World& world, Reach reach, NetworkCosts costs, std::vector<int> host_of);

  std::unique_ptr<Transport> attach(Executor& executor, int rank);
  // The process of `rank` has ended without a goodbye: the others lose it. `host_too`: its machine stops as
  // well, so that only the missing heartbeat shows it.
  void kill(int rank, bool host_too);
  // From now on nothing passes from one host to the other. Neither gets acknowledgements then, so both lose
  // the other's ranks, although one direction may still work.
  void cut(int from_host, int to_host);
  // From now on every message takes `factor` times as long.
  void slow_down(double factor) { slowness_ = factor; }
  // Applies the breach to the next message of this type.
  void breach(Breach breach, FrameType type) {
    breach_ = breach;
    breached_ = type;
  }
  [[nodiscard]] bool was_breached() const { return was_breached_; }

  [[nodiscard]] std::uint64_t messages() const { return messages_; }

 private:
  class Endpoint;
  [[nodiscard]] bool reaches(int from, int to) const;
  [[nodiscard]] bool has_room(int from, int to, const FrameHeader& header);
  // Until the returned object is destroyed.
  std::shared_ptr<const void> set_under_way(int from, int to, std::uint64_t bytes);
  void settle(int from, int to, std::uint64_t bytes);
  [[nodiscard]] bool connected(int from, int to) const { return !cuts_.contains({host(from), host(to)}); }
  [[nodiscard]] int host(int rank) const { return host_of_[static_cast<std::size_t>(rank)]; }
  // `rank` loses `peer` once everything in flight between them has arrived.
  void lose(int rank, int peer, bool orderly, Clock::duration after);
  TimePoint on_its_way_out(int host, std::uint64_t bytes);
  TimePoint on_its_way_in(int host, TimePoint there, std::uint64_t bytes);
  [[nodiscard]] Clock::duration time_of(std::uint64_t bytes) const;

  World& world_;
  Reach reach_;
  NetworkCosts costs_;
  std::vector<int> host_of_;
  double slowness_ = 1;
  std::map<int, Endpoint*> endpoints_;
  struct UnderWay {
    std::uint64_t messages = 0;
    std::uint64_t bytes = 0;
  };
  std::map<std::pair<int, int>, UnderWay> under_way_;  // from, to: sent, and neither read nor dropped
  std::set<std::pair<int, int>> cuts_;                 // from, to: hosts
  std::map<int, TimePoint> out_;                       // by host: until when its outgoing link is busy
  std::map<int, TimePoint> in_;
  std::uint64_t messages_ = 0;
  Breach breach_ = Breach::kNone;
  FrameType breached_ = FrameType::kPing;
  bool was_breached_ = false;
};

}  // namespace smdp::simulation
