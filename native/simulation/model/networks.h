// The connections between the ranks of a modelled job, with their costs.
//
// Between hosts: a queue out of each host and one into it, both of the link's rate. The connections of a host
// take turns on its outgoing link, as in a fair queue; on the incoming link messages queue in order of
// arrival. So two hosts that send to a third get half its rate each, and nothing is lost.
//
// Within a host: a message arrives at once, and costs both sides a little.
#pragma once

#include <list>
#include <memory>
#include <vector>

#include "charged_executor.h"
#include "costs.h"
#include "net/transport/transport.h"
#include "world.h"

namespace smdp::model {

// The wires: carry bytes from host to host, for the engine and for the ring.
class Wires {
 public:
  using Action = simulation::World::Action;

  // One direction of a connection. The outgoing link of its host sends a quantum of it at a time.
  class Flow {
   public:
    Flow(int from_host, int to_host) : from_host_(from_host), to_host_(to_host) {}

   private:
    friend class Wires;
    struct Load {
      std::uint64_t left = 0;
      Action sent;
      Action arrived;
    };
    int from_host_;
    int to_host_;
    std::list<Load> loads_;
  };

  Wires(simulation::World& world, const Costs& costs, int hosts)
      : world_(world),
        costs_(costs),
        credit_(seconds(costs.link_burst / costs.link_rate)),
        hosts_(static_cast<std::size_t>(hosts)) {}

  // Calls `sent` (may be empty) when the last byte has left, and `arrived` when it has arrived.
  void send(Flow& flow, std::uint64_t bytes, Action sent, Action arrived);
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

 private:
  struct Host {
    std::list<Flow*> turns;
    bool sending = false;
    TimePoint out_free{};
    TimePoint in_free{};
  };

  void enqueue(Flow& flow, Flow::Load load);
  void send_next(Host& host);
  void sent(Flow& flow, std::uint64_t bytes, Clock::duration time);

  simulation::World& world_;
  const Costs& costs_;
  Clock::duration credit_;  // burst that an idle queue has earned
  std::vector<Host> hosts_;
  std::uint64_t bytes_ = 0;
};

// Creates the transports of all ranks. It must outlive them.
class Networks {
 public:
  Networks(simulation::World& world, Wires& wires, const Costs& costs, std::vector<int> host_of);
  std::unique_ptr<Transport> network(ChargedExecutor& executor, int rank);
  std::unique_ptr<Transport> local(ChargedExecutor& executor, int rank);
  [[nodiscard]] std::uint64_t messages() const { return messages_; }
  [[nodiscard]] std::uint64_t local_messages() const { return local_messages_; }

 private:
  class Between;
  class Within;
  struct Rank {
    ChargedExecutor* executor = nullptr;
    Transport::Events* network = nullptr;
    Transport::Events* local = nullptr;
  };

  simulation::World& world_;
  Wires& wires_;
  const Costs& costs_;
  std::vector<int> host_of_;
  std::vector<Rank> ranks_;
  std::uint64_t messages_ = 0;
  std::uint64_t local_messages_ = 0;
};

}  // namespace smdp::model
