// Ways between the ranks of a simulated job: each message takes its time, on its host's way out, on the wire
// and on the other's way in, and may be overtaken.
//
// One such network stands for the wires between hosts, another for the shared memory within each. A payload
// is read from the sender's memory when it goes out and written to the receiver's while it comes in, so that
// memory which is given back too early is seen to change. What the contract (net/transport.h) promises is
// kept: every message arrives once, or its sender is lost; a goodbye and a loss come behind all that arrives.
// Between two ranks only so much is under way that the receiver has not read; the rest waits at its sender.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "base/executor.h"
#include "net/transport.h"
#include "world.h"

namespace smdp::simulation {

// A breach of what a network promises, so that the judge has something to find.
enum class Breach : std::uint8_t { kNone, kDrop, kRepeat, kCorrupt };

struct NetworkCosts {
  double bytes_per_s = 0;  // of each host, each way
  Clock::duration least_latency{};
  Clock::duration most_latency{};
  Clock::duration silence{};          // after which a rank that cannot be reached is lost
  std::uint64_t buffer = UINT64_MAX;  // bytes that a rank may have under way to another that does not read
};

class VirtualNetwork {
 public:
  enum class Reach : std::uint8_t { kWithinHosts, kBetweenHosts };

  VirtualNetwork(World& world, Reach reach, NetworkCosts costs, std::vector<int> host_of);

  std::unique_ptr<Transport> attach(Executor& executor, int rank);
  // The process of `rank` has ended without a goodbye: the others lose it. `host_too`: its machine as well,
  // so that nothing tells them but its silence.
  void kill(int rank, bool host_too);
  // From now on nothing passes from the one host to the other. Neither is acknowledged what it sends then, so
  // both lose the other's ranks, of which one may still be heard.
  void cut(int from_host, int to_host);
  // From now on every message takes `factor` times as long.
  void slow_down(double factor) { slowness_ = factor; }
  // The next message of this type meets this.
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
  // Until what is returned dies.
  std::shared_ptr<const void> set_under_way(int from, int to, std::uint64_t bytes);
  void settle(int from, int to, std::uint64_t bytes);
  [[nodiscard]] bool connected(int from, int to) const { return !cuts_.contains({host(from), host(to)}); }
  [[nodiscard]] int host(int rank) const { return host_of_[static_cast<std::size_t>(rank)]; }
  // `peer` is lost to `rank` once all that is under way between them has arrived.
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
  std::map<int, TimePoint> out_;                       // by host: until then its way out is taken
  std::map<int, TimePoint> in_;
  std::uint64_t messages_ = 0;
  Breach breach_ = Breach::kNone;
  FrameType breached_ = FrameType::kPing;
  bool was_breached_ = false;
};

}  // namespace smdp::simulation
