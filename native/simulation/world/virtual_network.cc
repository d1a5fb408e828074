#include "virtual_network.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "lost_memory.h"
#include "net/call_number.h"

namespace smdp::simulation {
namespace {

std::string_view name_of(FrameType type) {
  static constexpr std::array<std::string_view, kFrameTypes> kNames = {
      "",      "host sum", "publish",  "credit",        "contribute", "consumed",  "offer",        "taken",
      "abort", "goodbye",  "ping",     "suspect",       "leave",      "clock ask", "clock answer", "announce",
      "ready", "send",     "released", "fabric credit", "fabric end"};
  return kNames.at(static_cast<std::size_t>(type));
}

// The call that the frame belongs to.
std::string name_call(const FrameHeader& header) {
  const std::uint64_t number = header.operation;
  if (is_named(number)) {
    return "buffer (" + std::to_string(step_of(number)) + ", " + std::to_string(index_of(number)) + ")";
  }
  if (is_message_call(number)) {
    return "message call " + std::to_string(number & ~kMessageCall);
  }
  return "operation " + std::to_string(number);
}

std::string describe(const FrameHeader& header) {
  std::string text(name_of(header.type));
  text += " of " + name_call(header);
  if (header.type == FrameType::kSuspect) {
    return text + ": rank " + std::to_string(header.piece) + " of the group";
  }
  if (header.type != FrameType::kAbort && header.type != FrameType::kLeave) {
    text += " piece " + std::to_string(header.piece);
  }
  return header.payload > 0 ? text + ", " + std::to_string(header.payload) + " bytes" : text;
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
    const Uncounted spared;
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
    const Uncounted spared;
    std::erase_if(out_, [&](const Out& one) { return is_of_it(one.message.header); });
    for (auto& [id, one] : in_) {
      if (is_of_it(one.message.header) && !one.landing.owned) {
        one.landing = Landing::fresh(one.message.header.payload);
      }
    }
  }

  void finish() override {
    const Uncounted spared;
    finishing_ = true;
    say_goodbye();
  }

  struct Arrival {
    int from = 0;
    FrameHeader header;
    std::shared_ptr<const std::vector<std::byte>> payload;
    std::size_t line = 0;                   // of the timeline
    TimePoint written{};                    // when all its bytes are at the receiver's host
    std::shared_ptr<const void> under_way;  // until it was read, or dropped
  };

  // A message that has reached this host.
  void receive(Arrival message) {
    executor_.post([this, message = std::move(message)] {
      if (gone_.contains(message.from)) {
        return;
      }
      auto landing = events_->place(message.from, message.header);
      if (!landing) {
        lose(message.from, false, {Code::kPeerLost, "a frame broke the protocol"});
      } else if (network_.world_.now() >= message.written) {
        std::ranges::copy(*message.payload, landing->data);
        arrive(message, std::move(*landing));
      } else {
        begin_to_land(message, std::move(*landing));
      }
    });
  }

  // Once nothing is in flight from `peer` any more.
  void lose_later(int peer, bool orderly) {
    leaving_[peer] = orderly;
    lose_if_nothing_is_under_way(peer);
  }

  void lose_if_nothing_is_under_way(int peer) {
    const auto leaving = leaving_.find(peer);
    if (leaving != leaving_.end() && network_.under_way_[{peer, rank_}].messages == 0) {
      executor_.post([this, peer, orderly = leaving->second] {
        lose(peer, orderly, {Code::kPeerLost, "the connection was closed"});
      });
      leaving_.erase(leaving);
    }
  }

  // `peer` has read a message.
  void resume(int peer) {
    if (!waiting_.contains(peer)) {
      return;
    }
    executor_.post([this, peer] {
      const std::vector<std::uint64_t> waiting = std::exchange(waiting_[peer], {});
      waiting_.erase(peer);
      for (const std::uint64_t id : waiting) {
        send(id);
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
    Arrival message;
    Landing landing;
  };

  void send(std::uint64_t id) {
    const auto found = std::ranges::find(out_, id, &Out::id);
    if (found == out_.end()) {
      return;  // cancelled
    }
    const bool is_gone = gone_.contains(found->peer);
    if (!is_gone && !network_.has_room(rank_, found->peer, found->message.header)) {
      const Uncounted spared;
      waiting_[found->peer].push_back(id);
      return;
    }
    const Out one = std::move(*found);
    out_.erase(found);
    if (!is_gone) {
      carry(one.peer, one.message);
    }
    if (one.message.sent) {
      one.message.sent();
    }
    if (finishing_) {
      say_goodbye();
    }
  }

  void carry(int peer, const Message& message) {
    const Uncounted spared;
    const FrameHeader& header = message.header;
    auto payload = std::make_shared<std::vector<std::byte>>(message.payload.begin(), message.payload.end());
    const std::size_t line = note_sending(peer, header);
    Breach breach = Breach::kNone;
    if (header.type == network_.breached_ && network_.breach_ != Breach::kNone) {
      network_.was_breached_ = true;
      breach = std::exchange(network_.breach_, Breach::kNone);
    }
    if (breach == Breach::kCorrupt && !payload->empty()) {
      payload->back() ^= std::byte{1};
    }
    const int copies = breach == Breach::kDrop ? 0 : breach == Breach::kRepeat ? 2 : 1;
    for (int copy = 0; copy < copies; ++copy) {
      deliver(peer, {rank_, header, payload, line, {}, nullptr});
    }
  }

  // A message to several ranks is one line.
  std::size_t note_sending(int peer, const FrameHeader& header) {
    World& world = network_.world_;
    const std::tuple what{world.now(), digest(header), world.lines()};
    if (noted_ == what) {
      world.add(std::get<2>(what) - 1, static_cast<std::uint64_t>(peer),
                [&] { return ", " + std::to_string(peer); });
    } else {
      world.note(rank_, digest(header) + static_cast<std::uint64_t>(peer),
                 [&] { return "sends " + describe(header) + " to rank " + std::to_string(peer); });
    }
    noted_ = {world.now(), digest(header), world.lines()};
    return world.lines() - 1;
  }

  void deliver(int peer, Arrival message) {
    ++network_.messages_;
    if (!network_.connected(rank_, peer)) {
      return;
    }
    const std::uint64_t bytes = message.header.payload;
    message.under_way = network_.set_under_way(rank_, peer, bytes);
    const TimePoint there = network_.world_.now() + network_.world_.between(network_.costs_.least_latency,
                                                                            network_.costs_.most_latency);
    const TimePoint in = network_.on_its_way_in(network_.host(peer), there, bytes);
    message.written = bytes == 0 ? in : in + network_.time_of(bytes);
    network_.world_.at(in, [&network = network_, peer, message = std::move(message)] {
      const auto endpoint = network.endpoints_.find(peer);
      if (endpoint != network.endpoints_.end() && network.connected(message.from, peer)) {
        endpoint->second->receive(message);
      }
    });
  }

  // The payload arrives byte by byte, and the operation may be cancelled meanwhile.
  void begin_to_land(const Arrival& message, Landing landing) {
    const Uncounted spared;
    const std::uint64_t id = next_++;
    in_.emplace(id, In{message, std::move(landing)});
    network_.world_.at(message.written, [this, alive = std::weak_ptr(alive_), id] {
      if (!alive.expired()) {
        executor_.post([this, id] { land(id); });
      }
    });
  }

  void land(std::uint64_t id) {
    In one = std::move(in_.at(id));
    in_.erase(id);
    std::ranges::copy(*one.message.payload, one.landing.data);
    arrive(one.message, std::move(one.landing));
  }

  void arrive(const Arrival& message, Landing landing) {
    if (!gone_.contains(message.from)) {
      World& world = network_.world_;
      world.add(message.line, ~digest(message.header),
                [&] { return "; rank " + std::to_string(rank_) + " reads it at " + world.time(); });
      events_->arrived(message.from, message.header, std::move(landing));
    }
  }

  void lose(int peer, bool orderly, const Status& why) {
    if (gone_.insert(peer).second) {
      network_.world_.note(rank_, static_cast<std::uint64_t>(peer) << 1U | (orderly ? 1U : 0U), [&] {
        return (orderly ? "hears the goodbye of rank " : "loses rank ") + std::to_string(peer);
      });
      resume(peer);  // drops the messages that wait for it
      events_->lost(peer, orderly, why);
    }
  }

  // Once everything is sent.
  void say_goodbye() {
    if (!out_.empty() || std::exchange(said_goodbye_, true)) {
      return;
    }
    for (const auto& [peer, endpoint] : network_.endpoints_) {
      if (network_.reaches(rank_, peer) && network_.connected(rank_, peer)) {
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
  std::tuple<TimePoint, std::uint64_t, std::size_t> noted_;  // when, what, and the number of lines then
  std::deque<Out> out_;
  std::map<std::uint64_t, In> in_;  // messages that are partly received
  std::set<int> gone_;
  std::map<int, bool> leaving_;  // peers that are lost once everything in flight has arrived; true: orderly
  std::map<int, std::vector<std::uint64_t>> waiting_;  // by peer: messages that it has no room for
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

bool VirtualNetwork::has_room(int from, int to, const FrameHeader& header) {
  const UnderWay& now = under_way_[{from, to}];
  return now.messages == 0 || now.bytes + header.payload <= costs_.buffer;
}

std::shared_ptr<const void> VirtualNetwork::set_under_way(int from, int to, std::uint64_t bytes) {
  UnderWay& now = under_way_[{from, to}];
  ++now.messages;
  now.bytes += bytes;
  return {this, [this, from, to, bytes](const void*) { settle(from, to, bytes); }};
}

void VirtualNetwork::settle(int from, int to, std::uint64_t bytes) {
  const Uncounted spared;
  UnderWay& now = under_way_[{from, to}];
  --now.messages;
  now.bytes -= bytes;
  if (const auto receiver = endpoints_.find(to); receiver != endpoints_.end()) {
    receiver->second->lose_if_nothing_is_under_way(from);
  }
  if (const auto sender = endpoints_.find(from); sender != endpoints_.end()) {
    sender->second->resume(to);
  }
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
           host_too ? costs_.heartbeat : world_.between(costs_.least_latency, costs_.most_latency * 4));
    }
  }
}

void VirtualNetwork::cut(int from_host, int to_host) {
  cuts_.insert({from_host, to_host});
  for (const auto& [rank, endpoint] : endpoints_) {
    for (const auto& [peer, other] : endpoints_) {
      if (host(rank) == from_host && host(peer) == to_host && reaches(rank, peer)) {
        lose(rank, peer, false, costs_.heartbeat);
        lose(peer, rank, false, costs_.heartbeat);
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
