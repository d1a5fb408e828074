// When a link counts as lost, and when it does not.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <map>
#include <thread>
#include <vector>

#include "net/socket.h"
#include "net/stream_transport.h"

namespace smdp::testing {
namespace {

struct Ends {
  UniqueFd ours;
  UniqueFd theirs;
};

Ends connected() {
  const auto listener = listen_tcp("127.0.0.1", "0");
  EXPECT_TRUE(listener.ok());
  auto ours = begin_connect({"127.0.0.1", listener->port});
  EXPECT_TRUE(ours.ok());
  UniqueFd theirs(::accept4(listener->fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  EXPECT_TRUE(theirs.valid());
  return {std::move(*ours), std::move(theirs)};
}

// After some turns of conversation the kernel holds its acknowledgements back, for 40 ms or so.
void converse(const Ends& ends) {
  std::byte word{1};
  for (int turn = 0; turn < 40; ++turn) {
    for (const auto& [from, to] :
         {std::pair(ends.ours.get(), ends.theirs.get()), {ends.theirs.get(), ends.ours.get()}}) {
      ASSERT_TRUE(send_all(from, {&word, 1}, after(1)).ok());
      ASSERT_TRUE(receive_all(to, {&word, 1}, after(1)).ok());
    }
  }
}

class NoEvents final : public Transport::Events {
 public:
  std::optional<Landing> place(int, const FrameHeader&) override { return Landing{}; }
  void arrived(int, const FrameHeader&, Landing) override {}
  void lost(int, bool, Status why) override { losses.push_back(why.message()); }

  std::vector<std::string> losses;
};

// As after a start for which one rank came late: the links of the others have been idle for long, and the
// first word on them is not acknowledged yet when the transport looks.
TEST(Liveness, ALinkThatWasIdleIsNotLostWithItsFirstWord) {
  constexpr double kHeartbeat = 0.2;
  Ends ends = connected();
  converse(ends);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  std::map<int, std::vector<UniqueFd>> connections;
  connections[1].push_back(std::move(ends.ours));
  Loop loop;
  NoEvents events;
  {
    StreamTransport transport(loop, 0, kHeartbeat, std::move(connections));
    transport.start(events);
    FrameHeader word;
    word.type = FrameType::kPing;
    transport.post(1, {word, {}, nullptr, nullptr});
    transport.tick();
  }
  EXPECT_EQ(events.losses, std::vector<std::string>());
}

// Between two ranks one asks, and its question is all that the other needs.
TEST(Liveness, OnlyAPeerThatWasSilentIsAsked) {
  for (const auto& [heartbeat_s, asked] : {std::pair(40.0, false), {0.2, true}}) {
    Ends ends = connected();
    converse(ends);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    std::map<int, std::vector<UniqueFd>> connections;
    connections[1].push_back(std::move(ends.ours));
    Loop loop;
    NoEvents events;
    StreamTransport transport(loop, 0, heartbeat_s, std::move(connections));
    transport.start(events);
    transport.tick();
    std::byte received{};
    const bool came = receive_all(ends.theirs.get(), {&received, 1}, after(asked ? 5 : 0.2)).ok();
    EXPECT_EQ(came, asked) << heartbeat_s;
  }
}

}  // namespace
}  // namespace smdp::testing
