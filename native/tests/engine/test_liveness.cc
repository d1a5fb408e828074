// When a link counts as lost, and when it does not.
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <thread>
#include <vector>

#include "net/socket.h"
#include "net/transport/stream_transport.h"

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

// This side of the two connections to another rank.
std::map<int, std::vector<UniqueFd>> to_rank_1(Ends& small, Ends& bulk) {
  std::map<int, std::vector<UniqueFd>> connections;
  connections[1].push_back(std::move(small.ours));
  connections[1].push_back(std::move(bulk.ours));
  return connections;
}

// After some messages the kernel delays its acknowledgements, by about 40 ms.
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

// After a start with one late rank: the links of the others have been idle for long, and their first frame is
// not acknowledged yet when the transport checks.
TEST(Liveness, AnIdleLinkIsNotLostAtItsFirstFrame) {
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

// Of two ranks one sends pings, and the other needs none of its own.
TEST(Liveness, OnlyAnIdlePeerGetsAPing) {
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

// Drops incoming packets of the socket before TCP gets them, so that nothing is acknowledged any more.
void mute(int fd) {
  sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
  const sock_fprog program = {1, &drop};
  ASSERT_EQ(::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)), 0);
}

// A network routes each connection separately, so one may fail alone.
TEST(Liveness, EachConnectionWithBytesInFlightIsChecked) {
  constexpr double kHeartbeat = 0.4;
  for (const bool bulk_is_dead : {false, true}) {
    SCOPED_TRACE(bulk_is_dead);
    Ends small = connected();
    Ends bulk = connected();
    if (bulk_is_dead) {
      mute(bulk.theirs.get());
    }
    std::map<int, std::vector<UniqueFd>> connections = to_rank_1(small, bulk);
    Loop loop;
    NoEvents events;
    {
      StreamTransport transport(loop, 0, kHeartbeat, std::move(connections));
      transport.start(events);
      const std::vector<std::byte> payload(64U << 10U);
      FrameHeader sum;
      sum.type = FrameType::kHostSum;
      sum.call = {Collective::kAllReduce, DType::kUInt8, ReduceOp::kSum, 0, payload.size() * 1024};
      transport.post(1, {sum, payload, nullptr, nullptr});
      // Several heartbeats, in which the other side's kernel acknowledges what it can.
      const TimePoint until = after(bulk_is_dead ? 20 : 4 * kHeartbeat);
      while (events.losses.empty() && Clock::now() < until) {
        transport.tick();
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    }
    ASSERT_EQ(events.losses.size(), bulk_is_dead ? 1U : 0U);
    if (bulk_is_dead) {
      EXPECT_NE(events.losses.front().find("on a connection for bulk data"), std::string::npos)
          << events.losses.front();
    }
  }
}

// The peer's kernel has no room for more, and answers each retransmission with that.
TEST(Liveness, APeerThatReadsNoBulkDataIsNotLost) {
  constexpr double kHeartbeat = 0.4;
  Ends small = connected();
  Ends bulk = connected();
  std::map<int, std::vector<UniqueFd>> connections = to_rank_1(small, bulk);
  Loop loop;
  NoEvents events;
  const std::vector<std::byte> payload(16U << 20U);
  {
    StreamTransport transport(loop, 0, kHeartbeat, std::move(connections));
    transport.start(events);
    FrameHeader sum;
    sum.type = FrameType::kHostSum;
    sum.call = {Collective::kAllReduce, DType::kUInt8, ReduceOp::kSum, 0, payload.size()};
    transport.post(1, {sum, payload, nullptr, nullptr});
    const auto look = [&] {
      transport.tick();
      return !events.losses.empty();
    };
    loop.drive(look, after(15 * kHeartbeat));
  }
  EXPECT_EQ(events.losses, std::vector<std::string>());
}

// The events, in order.
class Journal final : public Transport::Events {
 public:
  std::optional<Landing> place(int, const FrameHeader&) override { return Landing{}; }
  void arrived(int, const FrameHeader& header, Landing) override {
    entries.push_back(header.type == FrameType::kAbort ? "abort" : "other");
  }
  void lost(int, bool orderly, Status) override { entries.emplace_back(orderly ? "gone" : "lost"); }

  std::vector<std::string> entries;
};

void say_abort(int fd) {
  FrameHeader abort;
  abort.type = FrameType::kAbort;
  abort.sender = 1;
  std::array<std::byte, kFrameBytes> bytes{};
  encode(abort, bytes);
  ASSERT_TRUE(send_all(fd, bytes, after(1)).ok());
}

// Ends like a process: unread data makes its kernel reset the connection.
void reset(UniqueFd& fd) {
  const linger at_once{1, 0};
  ASSERT_EQ(::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)), 0);
  fd.reset();
}

std::vector<std::string> journal_of(std::map<int, std::vector<UniqueFd>> connections,
                                    const std::function<void(StreamTransport&)>& first) {
  Loop loop;
  Journal journal;
  StreamTransport transport(loop, 0, 10, std::move(connections));
  transport.start(journal);
  first(transport);
  const auto over = [&] {
    transport.tick();
    return !journal.entries.empty() && journal.entries.back() != "abort";
  };
  loop.drive(over, after(20));
  return journal.entries;
}

// The rank that notices a failure first reports it to all and ends, and is not blamed for it.
TEST(Liveness, TheLastFramesArriveThoughAnotherConnectionEndedFirst) {
  Ends small = connected();
  Ends bulk = connected();
  std::map<int, std::vector<UniqueFd>> connections = to_rank_1(small, bulk);
  reset(bulk.theirs);
  const auto entries = journal_of(std::move(connections), [&](StreamTransport&) {
    say_abort(small.theirs.get());
    reset(small.theirs);
  });
  EXPECT_EQ(entries, (std::vector<std::string>{"abort", "lost"}));
}

TEST(Liveness, TheLastFramesArriveThoughSendingFails) {
  Ends ends = connected();
  std::map<int, std::vector<UniqueFd>> connections;
  connections[1].push_back(std::move(ends.ours));
  say_abort(ends.theirs.get());
  reset(ends.theirs);
  const auto entries = journal_of(std::move(connections), [](StreamTransport& transport) {
    FrameHeader word;
    word.type = FrameType::kPing;
    for (int again = 0; again < 2; ++again) {
      transport.post(1, {word, {}, nullptr, nullptr});
    }
  });
  EXPECT_EQ(entries, (std::vector<std::string>{"abort", "lost"}));
}

TEST(Liveness, TheEndOfTheOnlyConnectionIsALoss) {
  Ends small = connected();
  Ends bulk = connected();
  std::map<int, std::vector<UniqueFd>> connections = to_rank_1(small, bulk);
  reset(bulk.theirs);
  EXPECT_EQ(journal_of(std::move(connections), [](StreamTransport&) {}), std::vector<std::string>{"lost"});
}

}  // namespace
}  // namespace smdp::testing
