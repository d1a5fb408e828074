#include "virtual_network.h"

#include <algorithm>
#include <string>
#include <utility>

namespace smdp::simulation {
namespace {

std::string describe(const FrameHeader& header) {
  return "type " + std::to_string(static_cast<int>(header.type)) + " operation " +
         std::to_string(header.operation) + " piece " + std::to_string(header.piece) + ", " +
         std::to_string(header.payload) + " bytes";
}

std::uint64_t digest(const FrameHeader& header) {
  return static_cast<std::uint64_t>(header.type) ^ header.operation << 8U ^
         static_cast<std::uint64_t>(header.piece) << 24U ^ header.payload << 40U;
}

}  // namespace

class VirtualNetwork::Endpoint final : public Transport {
 public:
  Endpoint(VirtualNetwork& network, Executor& executor, int rank)
      : network_(network), executor_(executor), rank_(rank) {}
  ~Endpoint() override { network_.endpoints_.erase(rank_); }
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  void start(Events& events) override {
    events_ = &events;
    network_.endpoints_[rank_] = this;
  }

  void post(int peer, Message message) override {
    message.header.payload = message.payload.size();
    if (gone_.contains(peer)) {
      return;
    }
    out_.push_back({next_++, peer, std::move(message)});
    const TimePoint sent = network_.on_its_way_out(network_.host(rank_), out_.back().message.header.payload);
    network_.world_.at(sent, [this, alive = std::weak_ptr(alive_), id = out_.back().id] {
      if (!alive.expired()) {
        executor_.post([this, id] { send(id); });
      }
    });
  }

  void cancel(std::uint64_t group, std::uint64_t operation) override {
    const auto is_of_it = [&](const FrameHeader& header) {
      return header.group == group && header.operation == operation && header.payload > 0 &&
             header.type != FrameType::kAbort;
    };
    std::erase_if(out_, [&](const Out& one) { return is_of_it(one.message.header); });
    for (auto& [id, one] : in_) {
      if (is_of_it(one.header) && !one.landing.owned) {
        one.landing = Landing::fresh(one.header.payload);
      }
    }
  }

  void finish() override {
    finishing_ = true;
    say_goodbye();
  }

  // A message that has come as far as this host.
  void receive(int from, const FrameHeader& header, std::shared_ptr<const std::vector<std::byte>> payload) {
    executor_.post([this, from, header, payload = std::move(payload)] {
      if (gone_.contains(from)) {
        settle(from);
        return;
      }
      auto landing = events_->place(from, header);
      if (!landing) {
        settle(from);
        lose(from, false, {Code::kPeerLost, "a frame broke the protocol"});
        return;
      }
      if (payload->empty()) {
        arrive(from, header, std::move(*landing));
        return;
      }
      // What is written is written byte by byte, and the operation may be cancelled meanwhile.
      const std::uint64_t id = next_++;
      in_.emplace(id, In{from, header, std::move(*landing), payload});
      network_.world_.after(network_.time_of(header.payload), [this, alive = std::weak_ptr(alive_), id] {
        if (!alive.expired()) {
          executor_.post([this, id] { land(id); });
        }
      });
    });
  }

  // A message that the network dropped.
  void miss(int from) {
    executor_.post([this, from] { settle(from); });
  }

  // Once nothing is under way from `peer` any more.
  void lose_later(int peer, bool orderly) {
    executor_.post([this, peer, orderly] {
      if (network_.under_way_[{peer, rank_}] > 0) {
        leaving_[peer] = orderly;
      } else {
        lose(peer, orderly, {Code::kPeerLost, "the connection was closed"});
      }
    });
  }

 private:
  struct Out {
    std::uint64_t id = 0;
    int peer = 0;
    Message message;
  };
  struct In {
    int from = 0;
    FrameHeader header;
    Landing landing;
    std::shared_ptr<const std::vector<std::byte>> payload;
  };

  void send(std::uint64_t id) {
    const auto found = std::ranges::find(out_, id, &Out::id);
    if (found == out_.end()) {
      return;  // cancelled
    }
    Out one = std::move(*found);
    out_.erase(found);
    const FrameHeader& header = one.message.header;
    if (!gone_.contains(one.peer)) {
      auto payload = std::make_shared<const std::vector<std::byte>>(one.message.payload.begin(),
                                                                    one.message.payload.end());
      network_.world_.note(rank_, digest(header),
                           [&] { return "sends rank " + std::to_string(one.peer) + " " + describe(header); });
      carry(one.peer, header, std::move(payload));
    }
    if (one.message.sent) {
      one.message.sent();
    }
    if (finishing_) {
      say_goodbye();
    }
  }

  void carry(int peer, const FrameHeader& header, std::shared_ptr<const std::vector<std::byte>> payload) {
    if (header.type != network_.breached_ || network_.breach_ == Breach::kNone) {
      deliver(peer, header, std::move(payload));
      return;
    }
    network_.was_breached_ = true;
    const Breach breach = std::exchange(network_.breach_, Breach::kNone);
    if (breach == Breach::kRepeat) {
      deliver(peer, header, payload);
    }
    if (breach == Breach::kCorrupt && !payload->empty()) {
      auto other = std::make_shared<std::vector<std::byte>>(*payload);
      other->back() ^= std::byte{1};
      payload = std::move(other);
    }
    if (breach != Breach::kDrop) {
      deliver(peer, header, std::move(payload));
    }
  }

  void deliver(int peer, const FrameHeader& header, std::shared_ptr<const std::vector<std::byte>> payload) {
    ++network_.messages_;
    if (!network_.connected(rank_, peer)) {
      return;
    }
    ++network_.under_way_[{rank_, peer}];
    const TimePoint there = network_.world_.now() + network_.world_.between(network_.costs_.least_latency,
                                                                            network_.costs_.most_latency);
    const TimePoint in = network_.on_its_way_in(network_.host(peer), there, header.payload);
    network_.world_.at(in, [&network = network_, from = rank_, peer, header, payload = std::move(payload)] {
      const auto endpoint = network.endpoints_.find(peer);
      if (endpoint == network.endpoints_.end()) {
        return;  // nobody is there any more
      }
      if (network.connected(from, peer)) {
        endpoint->second->receive(from, header, payload);
      } else {
        endpoint->second->miss(from);
      }
    });
  }

  void land(std::uint64_t id) {
    In one = std::move(in_.at(id));
    in_.erase(id);
    std::ranges::copy(*one.payload, one.landing.data);
    arrive(one.from, one.header, std::move(one.landing));
  }

  void arrive(int from, const FrameHeader& header, Landing landing) {
    if (!gone_.contains(from)) {
      network_.world_.note(rank_, ~digest(header),
                           [&] { return "hears rank " + std::to_string(from) + " " + describe(header); });
      events_->arrived(from, header, std::move(landing));
    }
    settle(from);
  }

  void settle(int from) {
    if (--network_.under_way_[{from, rank_}] == 0) {
      if (const auto leaving = leaving_.find(from); leaving != leaving_.end()) {
        lose(from, leaving->second, {Code::kPeerLost, "the connection was closed"});
      }
    }
  }

  void lose(int peer, bool orderly, const Status& why) {
    if (gone_.insert(peer).second) {
      network_.world_.note(rank_, static_cast<std::uint64_t>(peer) << 1U | (orderly ? 1U : 0U), [&] {
        return (orderly ? "hears the goodbye of rank " : "loses rank ") + std::to_string(peer);
      });
      events_->lost(peer, orderly, why);
    }
  }

  // When all is sent.
  void say_goodbye() {
    if (!out_.empty() || std::exchange(said_goodbye_, true)) {
      return;
    }
    for (const auto& [peer, endpoint] : network_.endpoints_) {
      if (network_.reaches(rank_, peer)) {
        network_.lose(peer, rank_, true, network_.costs_.least_latency);
      }
    }
  }

  VirtualNetwork& network_;
  Executor& executor_;
  int rank_;
  Events* events_ = nullptr;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::uint64_t next_ = 0;
  std::deque<Out> out_;
  std::map<std::uint64_t, In> in_;  // messages that are half received
  std::set<int> gone_;
  std::map<int, bool> leaving_;  // peers that are lost when what is under way has come; whether they said so
  bool finishing_ = false;
  bool said_goodbye_ = false;
};

VirtualNetwork::VirtualNetwork(World& world, Reach reach, NetworkCosts costs, std::vector<int> host_of)
    : world_(world), reach_(reach), costs_(costs), host_of_(std::move(host_of)) {}

std::unique_ptr<Transport> VirtualNetwork::attach(Executor& executor, int rank) {
  return std::make_unique<Endpoint>(*this, executor, rank);
}

bool VirtualNetwork::reaches(int from, int to) const {
  return from != to && (host(from) == host(to)) == (reach_ == Reach::kWithinHosts);
}

bool VirtualNetwork::connected(int from, int to) const {
  return !cuts_.contains(std::minmax(host(from), host(to)));
}

void VirtualNetwork::lose(int rank, int peer, bool orderly, Clock::duration after) {
  world_.after(after, [this, rank, peer, orderly] {
    if (const auto endpoint = endpoints_.find(rank); endpoint != endpoints_.end()) {
      endpoint->second->lose_later(peer, orderly);
    }
  });
}

void VirtualNetwork::kill(int rank, bool host_too) {
  for (const auto& [peer, endpoint] : endpoints_) {
    if (reaches(rank, peer)) {
      lose(peer, rank, false,
           host_too ? costs_.silence : world_.between(costs_.least_latency, costs_.most_latency * 4));
    }
  }
}

void VirtualNetwork::cut(int host_a, int host_b) {
  cuts_.insert(std::minmax(host_a, host_b));
  for (const auto& [rank, endpoint] : endpoints_) {
    for (const auto& [peer, other] : endpoints_) {
      if (reaches(rank, peer) && !connected(rank, peer)) {
        lose(rank, peer, false, costs_.silence);
      }
    }
  }
}

Clock::duration VirtualNetwork::time_of(std::uint64_t bytes) const {
  return seconds(slowness_ * static_cast<double>(bytes + kFrameBytes) / costs_.bytes_per_s);
}

TimePoint VirtualNetwork::on_its_way_out(int host, std::uint64_t bytes) {
  TimePoint& taken = out_[host];
  taken = std::max(taken, world_.now()) + time_of(bytes);
  return taken;
}

TimePoint VirtualNetwork::on_its_way_in(int host, TimePoint there, std::uint64_t bytes) {
  TimePoint& taken = in_[host];
  taken = std::max(taken, there) + time_of(bytes);
  return taken;
}

}  // namespace smdp::simulation
