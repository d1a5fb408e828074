// Fuzzes the rendezvous: rank 0 with two others, or a rank that connects to rank 0, over TCP on loopback,
// with a store whose answers the input gives or with a fixed port. Ranks that meet continue with two
// exchanges.
#include <netinet/in.h>

#include <optional>

#include "net/handshake/handshaker.h"
#include "net/handshake/rendezvous.h"
#include "others.h"
#include "targets.h"
#include "world.h"

namespace smdp::fuzzing {
namespace {

constexpr const char* kHere = "127.0.0.1";
constexpr std::array kDeadlines{0.3, 3.0, 30.0, 300.0};  // seconds

// A port that was free when the program started.
std::uint16_t fixed_port() {
  static const std::uint16_t port = [] {
    const auto listener = listen_tcp(kHere, "0");
    require(listener.ok(), "loopback has a free port");
    return listener->port;
  }();
  return port;
}

// The others connect to what rank 0 writes; the input decides what a rank reads.
class ScriptedStore final : public KeyValueStore {
 public:
  ScriptedStore(Input& input, Others& others, std::span<const std::byte> token, std::uint16_t port)
      : input_(input), others_(others), token_(token), port_(port) {}

  Status set(const std::string& key, const std::string& value) override {
    require(key == "smdp/rendezvous", "the store has one entry");
    if (!value.empty() && (input_.u8() & 7U) == 7) {
      return {Code::kPeerLost, "the store does not answer"};
    }
    if (!value.empty()) {
      others_.call_at({kHere, static_cast<std::uint16_t>(std::stoi(value))});
    }
    return {};
  }

  Result<std::string> get(const std::string& /*key*/, TimePoint /*deadline*/) override {
    switch (input_.u8() & 7U) {
      case 1:
        return std::string();
      case 2:
        return Status(Code::kPeerLost, "the store does not answer");
      case 3:
        return sign_entry(token_, "1/" + std::string(kHere) + ",::1");
      case 4: {
        const auto text = input_.take(input_.u8());
        return std::string(reinterpret_cast<const char*>(text.data()), text.size());
      }
      case 5: {
        const auto text = input_.take(input_.u8());
        return sign_entry(token_, std::string(reinterpret_cast<const char*>(text.data()), text.size()));
      }
      default:
        return sign_entry(token_, std::to_string(port_) + "/" + kHere);
    }
  }

 private:
  Input& input_;
  Others& others_;
  std::span<const std::byte> token_;
  std::uint16_t port_;
};

class Scene {
 public:
  explicit Scene(Input& input)
      : input_(input),
        shape_(input.u8()),
        odd_(input.u8()),
        self_(hello()),
        others_(input, self_, token_),
        world_([this] { return others_.turn(); }),
        deadline_(after(kDeadlines[shape_ >> 4U & 3U])) {}

  void play() {
    const Options options = options_of_shape();
    std::uint16_t port = fixed_port();
    if (self_.rank != 0) {
      Result<Listener> listener = listen_tcp(kHere, "0");
      require(listener.ok(), "loopback has a free port");
      port = listener->port;
      others_.answer_on(std::move(listener->fd));
    }
    others_.call_at({kHere, fixed_port()});
    ScriptedStore store(input_, others_, token_, port);
    Options chosen = options;
    chosen.rendezvous_port = port;
    auto met = Rendezvous::meet(self_, token_, chosen, master(), (shape_ & 2U) != 0 ? &store : nullptr,
                                deadline_, [](const std::string&) {});
    require(met.ok() || !met.status().message().empty(), "an error has a message");
    if (!met.ok()) {
      return;
    }
    const int others = self_.world_size == 1 ? 0 : (self_.rank == 0 ? 2 : 1);
    require(others_.proofs() >= others, "no rank is met without the token");
    exchange_twice(**met);
  }

 private:
  Hello hello() const {
    Hello self;
    self.protocol = 3;
    self.rank = shape_ & 1U;
    self.world_size = (shape_ & 4U) != 0 ? 1 : (self.rank == 0 ? 3 : 2);
    self.rank = self.world_size == 1 ? 0 : self.rank;
    self.generation = 1;
    self.build = "build";
    return self;
  }

  Options options_of_shape() const {
    Options options;
    options.interface = (odd_ & 1U) != 0 ? "" : kHere;
    options.port_range = (odd_ & 2U) != 0 ? "7-x" : "0";
    options.refusal_grace_s = (odd_ & 4U) != 0 ? 0 : 1;
    options.ipv6 = (odd_ & 8U) != 0;
    return options;
  }

  // Numeric, so that no name server is queried; an empty name has no address.
  std::string master() const { return (odd_ & 16U) != 0 ? "" : kHere; }

  void exchange_twice(Rendezvous& meeting) {
    const Bytes mine(5, std::byte{42});
    const bool fails = (odd_ & 32U) != 0;
    const auto given = fails ? Result<Bytes>(Status(Code::kSystem, "no memory")) : Result<Bytes>(mine);
    const auto size = static_cast<std::size_t>(self_.world_size);
    if (const auto blobs = meeting.exchange(given, deadline_); blobs.ok()) {
      require(blobs->size() == size, "every rank has a blob");
      require(self_.rank != 0 || (!fails && (*blobs)[0] == mine), "a rank gets its own blob back");
    } else {
      require(blobs.status().code() <= kLastCode && !blobs.status().message().empty(),
              "an error has a message");
    }
    if ((odd_ & 128U) != 0) {
      make_connections_beside(meeting);
      return;
    }
    bool judged = false;
    const auto verdict = meeting.decide(
        mine,
        [&](const std::vector<Bytes>& all) -> Result<Bytes> {
          judged = true;
          require(all.size() == size, "every rank's blob reaches the judge");
          return (odd_ & 64U) != 0 ? Result<Bytes>(Status(Code::kRefused, "options differ"))
                                   : Result<Bytes>(all[0]);
        },
        deadline_);
    require(!judged || verdict.ok() == ((odd_ & 64U) == 0), "the verdict comes from the judge");
    require(self_.rank != 0 || judged || !verdict.ok(), "without the judge there is no verdict");
  }

  // While a rank makes its other connections, it reports the death of a rank that it has met.
  void make_connections_beside(Rendezvous& meeting) {
    Handshaker handshaker(self_, token_, deadline_);
    meeting.watch_during(handshaker);
    handshaker.expect(1, 0);
    const Status met = handshaker.run();
    require(!met.ok() && !met.message().empty(), "an absent rank is reported");
  }

  Input& input_;
  unsigned shape_;
  unsigned odd_;
  Hello self_;
  Bytes token_ = Bytes(16, std::byte{7});
  Others others_;
  World world_;
  TimePoint deadline_;
};

}  // namespace

void fuzz_rendezvous(std::span<const std::byte> data) {
  Input input(data);
  Scene(input).play();
}

}  // namespace smdp::fuzzing
