#include "networks.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace smdp::model {

// -- Wires --------------------------------------------------------------------------------------------------

void Wires::send(Flow& flow, std::uint64_t bytes, Action sent, Action arrived) {
  // Who sends may be some way into its turn.
  world_.at(world_.now(),
            [this, &flow, load = Flow::Load{bytes, std::move(sent), std::move(arrived)}]() mutable {
              enqueue(flow, std::move(load));
            });
}

void Wires::enqueue(Flow& flow, Flow::Load load) {
  Host& host = hosts_[static_cast<std::size_t>(flow.from_host_)];
  bytes_ += load.left;
  flow.loads_.push_back(std::move(load));
  if (flow.loads_.size() == 1) {
    host.turns.push_back(&flow);
  }
  if (!host.sending) {
    send_next(host);
  }
}

void Wires::send_next(Host& host) {
  host.sending = !host.turns.empty();
  if (!host.sending) {
    return;
  }
  Flow& flow = *host.turns.front();
  host.turns.pop_front();
  const std::uint64_t bytes =
      std::min(flow.loads_.front().left, static_cast<std::uint64_t>(costs_.link_quantum));
  const Clock::duration time = seconds(static_cast<double>(bytes) * costs_.wire_overhead / costs_.link_rate);
  host.out_free = std::max(host.out_free, world_.now() - credit_) + time;
  world_.at(host.out_free, [this, &flow, bytes, time] { sent(flow, bytes, time); });
}

void Wires::sent(Flow& flow, std::uint64_t bytes, Clock::duration time) {
  // What leaves one queue enters the other packet by packet: it is there when both are through with it.
  Host& to = hosts_[static_cast<std::size_t>(flow.to_host_)];
  to.in_free = std::max(to.in_free + time, world_.now() - credit_);
  const TimePoint there = std::max(to.in_free, world_.now()) + seconds(costs_.link_latency);
  Flow::Load& load = flow.loads_.front();
  load.left -= bytes;
  Host& from = hosts_[static_cast<std::size_t>(flow.from_host_)];
  if (load.left == 0) {
    if (load.sent) {
      load.sent();
    }
    world_.at(there, std::move(load.arrived));
    flow.loads_.pop_front();
  }
  if (!flow.loads_.empty()) {
    from.turns.push_back(&flow);
  }
  send_next(from);
}

// -- Transports ---------------------------------------------------------------------------------------------

class Networks::Between final : public Transport {
 public:
  Between(Networks& networks, int rank) : networks_(networks), rank_(rank) {}

  void start(Events& events) override { me().network = &events; }
  void cancel(std::uint64_t, std::uint64_t) override {}
  void finish() override {}

  void post(int peer, Message message) override {
    ++networks_.messages_;
    message.header.sender = static_cast<std::uint32_t>(rank_);
    message.header.payload = message.payload.size();
    const Costs& costs = networks_.costs_;
    const auto bytes = static_cast<double>(message.header.payload);
    networks_.world_.spend(seconds(costs.send_frame + bytes * costs.send_byte));
    Rank& to = networks_.ranks_[static_cast<std::size_t>(peer)];
    // The tasks may outlive this, where engines end one after the other.
    auto arrived = [&networks = networks_, from = rank_, &to, header = message.header] {
      to.executor->post_received([&networks, from, &to, header] {
        const Costs& spent = networks.costs_;
        networks.world_.spend(
            seconds(spent.receive_frame + static_cast<double>(header.payload) * spent.receive_byte));
        if (auto landing = to.network->place(from, header)) {
          to.network->arrived(from, header, std::move(*landing));
        }
      });
    };
    Wires::Action sent;
    if (message.sent) {
      sent = [&from = me(), keep = std::move(message.keep), done = std::move(message.sent)]() mutable {
        from.executor->post(std::move(done));
      };
    }
    // Each connection of two ranks: one for small frames, one for bulk.
    const bool small = goes_first(message.header.call, message.header.payload);
    Wires::Flow& flow =
        flows_.try_emplace(static_cast<std::uint64_t>(peer) * 2 + (small ? 0U : 1U), host(rank_), host(peer))
            .first->second;
    networks_.wires_.send(flow, message.header.payload + kFrameBytes, std::move(sent), std::move(arrived));
  }

 private:
  Rank& me() { return networks_.ranks_[static_cast<std::size_t>(rank_)]; }
  [[nodiscard]] int host(int rank) const { return networks_.host_of_[static_cast<std::size_t>(rank)]; }

  Networks& networks_;
  int rank_;
  std::unordered_map<std::uint64_t, Wires::Flow> flows_;
};

class Networks::Within final : public Transport {
 public:
  Within(Networks& networks, int rank) : networks_(networks), rank_(rank) {}

  void start(Events& events) override { networks_.ranks_[static_cast<std::size_t>(rank_)].local = &events; }
  void cancel(std::uint64_t, std::uint64_t) override {}
  void finish() override {}

  void post(int peer, Message message) override {
    ++networks_.local_messages_;
    message.header.sender = static_cast<std::uint32_t>(rank_);
    networks_.world_.spend(seconds(networks_.costs_.local_frame));
    Rank& to = networks_.ranks_[static_cast<std::size_t>(peer)];
    to.executor->post([&networks = networks_, from = rank_, &to, header = message.header] {
      networks.world_.spend(seconds(networks.costs_.local_frame));
      if (auto landing = to.local->place(from, header)) {
        to.local->arrived(from, header, std::move(*landing));
      }
    });
  }

 private:
  Networks& networks_;
  int rank_;
};

Networks::Networks(simulation::World& world, Wires& wires, const Costs& costs, std::vector<int> host_of)
    : world_(world), wires_(wires), costs_(costs), host_of_(std::move(host_of)), ranks_(host_of_.size()) {}

std::unique_ptr<Transport> Networks::network(ChargedExecutor& executor, int rank) {
  ranks_[static_cast<std::size_t>(rank)].executor = &executor;
  return std::make_unique<Between>(*this, rank);
}

std::unique_ptr<Transport> Networks::local(ChargedExecutor& executor, int rank) {
  ranks_[static_cast<std::size_t>(rank)].executor = &executor;
  return std::make_unique<Within>(*this, rank);
}

}  // namespace smdp::model
