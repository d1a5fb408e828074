// The ways between the ranks of a modelled job, with what they cost.
//
// Between hosts: a queue out of each host and one into it, both of the link's rate. The connections of a host
// take turns on its way out, as those of a fair queue do; a message comes in behind what came before it. So
// two hosts that send to a third get half its rate each, and nothing is lost.
//
// Within a host: a message is there at once, and costs both sides a little.
#pragma once

#include <list>
#include <memory>
#include <vector>

#include "charged_executor.h"
#include "costs.h"
#include "net/transport.h"
#include "world.h"

namespace smdp::model {

// The wires: what carries bytes from host to host, whoever sends them.
class Wires {
 public:
  using Action = simulation::World::Action;

  // One way of a connection, of which a host's way out sends a quantum at a time.
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

  // `sent` (or nothing) when the last byte has left; `arrived` when it is there.
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
  Clock::duration credit_;  // of a queue that was idle
  std::vector<Host> hosts_;
  std::uint64_t bytes_ = 0;
};

// Makes the transports of all ranks, which must end before it.
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
