// Faults of the network, and the errors that every rank reports.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "cluster.h"
#include "net/socket.h"
#include "net/transport/stream_transport.h"

namespace smdp::testing {
namespace {

using std::chrono::milliseconds;

// One all_reduce on each rank of a job over a fabric; the ranks are hosts of one rank each.
class Sum {
 public:
  Sum(FaultFabric& fabric, int hosts, std::uint64_t count)
      : count_(count),
        cluster_({.hosts = std::vector<int>(static_cast<std::size_t>(hosts), 1),
                  .fabric = &fabric,
                  .options = {{"SMDP_WARN_S", "0.3"}, {"SMDP_PIECE_KIB", "32"}, {"SMDP_BULK_KIB", "256"}}}) {
    for (int rank = 0; rank < cluster_.size(); ++rank) {
      members_.push_back(rank);
      inputs_.push_back(random_buffer(DType::kFloat32, count, static_cast<std::uint32_t>(rank)));
    }
    group_ = cluster_.group(members_, "g");
  }

  void start_all(double timeout_s) {
    jobs_ = std::vector<Job>(members_.size());
    for (const int rank : members_) {
      Job& job = jobs_[static_cast<std::size_t>(rank)];
      job.what = {Collective::kAllReduce, DType::kFloat32, ReduceOp::kSum, 0, count_};
      job.input = inputs_[static_cast<std::size_t>(rank)];
      start(cluster_, rank, group_, members_, job, timeout_s);
    }
  }

  Status heard(int rank) { return finish(jobs_[static_cast<std::size_t>(rank)], 20); }

  void expect_right(int rank) {
    const Status status = heard(rank);
    ASSERT_TRUE(status.ok()) << status.message();
    const auto expected =
        reference_reduce(DType::kFloat32, ReduceOp::kSum, by_host(cluster_, members_, inputs_));
    EXPECT_TRUE(std::ranges::equal(jobs_[static_cast<std::size_t>(rank)].output, expected))
        << "rank " << rank;
  }

  void expect_error(int rank, Code code, const std::vector<std::string>& parts) {
    const Status status = heard(rank);
    EXPECT_EQ(status.code(), code) << status.message();
    for (const std::string& part : parts) {
      EXPECT_NE(status.message().find(part), std::string::npos)
          << "rank " << rank << ": " << status.message();
    }
  }

  [[nodiscard]] Cluster& cluster() { return cluster_; }

 private:
  std::uint64_t count_;
  Cluster cluster_;
  std::vector<int> members_;
  std::vector<Buffer> inputs_;
  std::uint64_t group_ = 0;
  std::vector<Job> jobs_;
};

constexpr std::uint64_t kSmall = 1000;
constexpr std::uint64_t kLarge = 1U << 19U;

// Rank 0 lacks rank 2's sum, reports that at its deadline, and blames no other rank. Ranks that have all they
// need are complete; their next call fails for the same reason.
TEST(FaultTransport, MessagesDroppedOnOneLinkFailWithTheSenderNamed) {
  FaultFabric fabric;
  Sum sum(fabric, 3, kSmall);
  fabric.drop(2, 0);
  sum.start_all(1);
  sum.expect_right(1);
  sum.expect_right(2);
  sum.expect_error(
      0, Code::kTimeout,
      {"the deadline passed on rank 0", "waiting for the sums of the other hosts of rank 2 (host host-2)"});
  EXPECT_EQ(sum.heard(0).message().find("rank 1 (host"), std::string::npos) << sum.heard(0).message();
  sum.start_all(5);
  for (const int rank : {0, 1, 2}) {
    sum.expect_error(rank, Code::kTimeout, {"of rank 2 (host host-2)", "had not begun"});
  }
}

// Every rank waits, and the sum is right in the end; the warning names the rank that is waited for.
TEST(FaultTransport, MessagesDelayedOnOneLinkGiveAWarningAndTheRightSum) {
  FaultFabric fabric;
  Sum sum(fabric, 3, kLarge);
  fabric.hold(2, 1);
  sum.start_all(20);
  std::this_thread::sleep_for(milliseconds(1000));
  fabric.release();
  for (const int rank : {0, 1, 2}) {
    sum.expect_right(rank);
  }
  const auto warnings = sum.cluster().warnings();
  EXPECT_TRUE(std::ranges::any_of(warnings, [](const std::string& text) {
    return text.find("slow") != std::string::npos && text.find("rank 2 (host host-2)") != std::string::npos;
  }));
}

TEST(FaultTransport, ReorderedMessagesOnAllLinksGiveTheSameSum) {
  for (const std::uint32_t seed : {1U, 2U, 3U}) {
    FaultFabric fabric({.seed = seed, .hold = 0.6});
    Sum sum(fabric, 4, kLarge / 4);
    sum.start_all(20);
    for (const int rank : {0, 1, 2, 3}) {
      sum.expect_right(rank);
    }
  }
}

// Everything that rank 3 sends is lost, and it receives the messages of the others: they name it at the
// deadline, and it reports the same error.
TEST(FaultTransport, ARankThatOnlyReceivesIsNamedInTheErrorOfAllRanks) {
  FaultFabric fabric;
  Sum sum(fabric, 4, kLarge);
  fabric.silence(3);
  sum.start_all(1.5);
  for (const int rank : {0, 1, 2, 3}) {
    sum.expect_error(rank, Code::kTimeout, {"rank 3 (host host-3)"});
  }
}

// The slow rank reads one message per 20 ms. The others wait for its results: right sums, and no more data in
// flight to it than the limit on bulk data.
TEST(FaultTransport, ASlowReaderDelaysTheOthersAndNothingFails) {
  FaultFabric fabric;
  Sum sum(fabric, 2, kLarge);
  fabric.slow_down(1);
  sum.start_all(20);
  sum.expect_right(0);
  sum.expect_right(1);
  EXPECT_LE(fabric.most_unanswered(0), 256U << 10U);
}

// A connection whose other end belongs to the test.
struct Line {
  UniqueFd far;
  std::unique_ptr<StreamTransport> transport;
};

Line line(Loop& loop) {
  const auto listener = listen_tcp("127.0.0.1", "0");
  EXPECT_TRUE(listener.ok());
  auto near = begin_connect({"127.0.0.1", listener->port});
  EXPECT_TRUE(near.ok());
  Line made;
  made.far = UniqueFd(::accept4(listener->fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
  std::map<int, std::vector<UniqueFd>> connections;
  connections[1].push_back(std::move(*near));
  made.transport = std::make_unique<StreamTransport>(loop, 0, 10, std::move(connections));
  return made;
}

class Heard final : public Transport::Events {
 public:
  std::optional<Landing> place(int, const FrameHeader& header) override {
    return Landing::fresh(header.payload);
  }
  void arrived(int, const FrameHeader&, Landing) override { ++frames; }
  void lost(int peer, bool orderly, Status why) override {
    losses.push_back(std::to_string(peer) + (orderly ? " orderly: " : ": ") + why.message());
    is_lost = true;
  }

  std::atomic<int> frames = 0;
  std::atomic<bool> is_lost = false;
  std::vector<std::string> losses;
};

// After every byte of a frame: the partial frame is dropped, and the peer is lost, once.
TEST(FaultTransport, AFrameCutAtAnyByteIsALoss) {
  FrameHeader header;
  header.type = FrameType::kHostSum;
  header.sender = 1;
  header.bytes = header.payload = 100;
  std::array<std::byte, kFrameBytes> head{};
  encode(header, head);
  Bytes frame(head.begin(), head.end());
  frame.resize(kFrameBytes + 100);
  for (std::size_t bytes = 0; bytes < frame.size(); bytes += bytes < kFrameBytes ? 9 : 33) {
    Loop loop;
    Heard heard;
    Line one = line(loop);
    one.transport->start(heard);
    ASSERT_TRUE(loop.start({}).ok());
    ASSERT_TRUE(send_all(one.far.get(), frame, after(1)).ok());
    ASSERT_TRUE(send_all(one.far.get(), std::span(frame).first(bytes), after(1)).ok());
    one.far.reset();
    loop.drive([&] { return heard.is_lost.load(); }, after(10));
    loop.stop();
    EXPECT_EQ(heard.frames, 1) << bytes;
    EXPECT_EQ(heard.losses, std::vector<std::string>{"1: the connection was closed"}) << bytes;
  }
}

}  // namespace
}  // namespace smdp::testing
