// Fuzzes the hello: a Handshaker that accepts two ranks (one of them with two rails) and connects to rank 0,
// while other processes follow the script of the input. It must end, at the latest at its deadline.
#include <sys/socket.h>
#include <unistd.h>

#include <optional>

#include "net/handshake/handshaker.h"
#include "others.h"
#include "targets.h"
#include "world.h"

namespace smdp::fuzzing {
namespace {

constexpr std::array kDeadlines{0.3, 3.0, 30.0, 300.0};  // seconds

// Abstract names are global on a machine, where several fuzzers may run.
std::string name_of(const char* who) { return "@smdp-fuzz-" + std::to_string(::getpid()) + "-" + who; }

Hello hello_of_rank(std::uint32_t rank) {
  Hello self;
  self.protocol = 3;
  self.rank = rank;
  self.world_size = 4;
  self.generation = 1;
  self.session = 9;
  self.build = "build";
  return self;
}

// The addresses of rank 0: the right one, one behind an address without listener, one behind an invalid one,
// or none.
std::vector<Address> addresses_of_rank_zero(unsigned choice) {
  const Address there{name_of("there"), 0};
  switch (choice) {
    case 0:
      return {there};
    case 1:
      return {{"127.0.0.1", 1}, there};
    case 2:
      return {{"nonsense", 1}, there, there};
    default:
      return {};
  }
}

Result<std::vector<Address>> look_up(Input& input) {
  const unsigned choice = input.u8();
  if (choice == 0xff) {
    return Status(Code::kPeerLost, "the store does not answer");
  }
  return addresses_of_rank_zero(choice & 3U);
}

class Scene {
 public:
  explicit Scene(Input& input)
      : shape_(input.u8()),
        others_(input, self_, token_),
        world_([this] { return others_.turn(); }),
        deadline_(after(kDeadlines[shape_ >> 4U & 3U])),
        handshaker_(self_, token_, deadline_) {
    if ((shape_ & 1U) != 0) {
      expect_callers();
    }
    if ((shape_ & 2U) != 0) {
      call_rank_zero(input);
    }
    if ((shape_ & 8U) != 0) {
      handshaker_.set_refusal_grace(1);
    }
    if ((shape_ & 0x40U) != 0) {
      attend_another();
    }
  }

  void play() {
    const Status met = handshaker_.run();
    const auto made = static_cast<int>(handshaker_.connections().size());
    require(met.ok() == (met.message().empty()), "an error has a message");
    require(plain_text(as_bytes_of(met.message())) == met.message(),
            "no client writes control characters to the terminal");
    require(!met.ok() || made == wanted_, "success means every connection");
    require(made <= others_.proofs(), "no client is accepted without the token");
    require(!handshaker_.connections().contains({0, 0}) || others_.welcomes() > 0,
            "a connection is made when both sides say so");
  }

 private:
  void expect_callers() {
    Result<UniqueFd> listener = listen_abstract(name_of("here"));
    require(listener.ok(), "an abstract name is free");
    listener_ = std::move(*listener);
    others_.call_at({name_of("here"), 0});
    handshaker_.accept_on(listener_.get());
    for (const auto& [rank, rail] :
         {Handshaker::Link{1, 0}, Handshaker::Link{2, 0}, Handshaker::Link{2, 1}}) {
      handshaker_.expect(rank, rail);
      ++wanted_;
    }
  }

  // A watched connection, whose end ends the hello.
  void attend_another() {
    std::array<int, 2> pair{};
    require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair.data()) == 0,
            "socketpair");
    watched_ = UniqueFd(pair[0]);
    others_.hold(UniqueFd(pair[1]));
    handshaker_.watch(watched_.get(), "rank 9", (shape_ & 0x80U) != 0);
  }

  void call_rank_zero(Input& input) {
    Result<UniqueFd> listener = listen_abstract(name_of("there"));
    require(listener.ok(), "an abstract name is free");
    others_.answer_on(std::move(*listener));
    const unsigned choice = input.u8();
    const bool retries =
        (choice & 4U) != 0 && (choice & 3U) != 3;  // a connection with retries needs a first address
    if (retries && (choice & 8U) != 0) {
      handshaker_.set_lookup([&input] { return look_up(input); });
    }
    handshaker_.set_congestion("cubic");
    handshaker_.connect(0, 0, addresses_of_rank_zero(choice & 3U), retries);
    ++wanted_;
  }

  unsigned shape_;
  Hello self_ = hello_of_rank(3);
  Bytes token_ = Bytes(16, std::byte{7});
  Others others_;
  World world_;
  TimePoint deadline_;
  Handshaker handshaker_;
  UniqueFd listener_;
  UniqueFd watched_;
  int wanted_ = 0;
};

}  // namespace

void fuzz_hello(std::span<const std::byte> data) {
  Input input(data);
  Scene(input).play();
}

}  // namespace smdp::fuzzing
