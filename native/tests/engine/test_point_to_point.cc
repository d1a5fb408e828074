// Point-to-point messages, and collectives made of them: over shared memory, TCP and a transport that
// reorders.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "cluster.h"

namespace smdp::testing {
namespace {

using namespace std::chrono_literals;

// One running call on one rank, with its memory.
struct Posted {
  std::vector<Buffer> buffers;
  std::vector<int> sources;
  std::shared_ptr<OperationHandle> handle;
  Status refused;

  Status finish() { return refused.ok() ? handle->wait(30s) : refused; }
};

struct Wanted {
  int peer = 0;
  bool receive = false;
  Buffer memory;
};

// The ranks 0 and 1 sum in a group of theirs.
void check_sum(Cluster& cluster, std::uint64_t group) {
  std::vector<Job> jobs(2);
  for (int rank = 0; rank < 2; ++rank) {
    Job& job = jobs[static_cast<std::size_t>(rank)];
    job.what = {Collective::kAllReduce, DType::kInt32, ReduceOp::kSum, 0, 100'000};
    job.input = random_buffer(DType::kInt32, 100'000, 1);
    start(cluster, rank, group, {0, 1}, job);
  }
  for (Job& job : jobs) {
    const Status status = finish(job);
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

class Post {
 public:
  explicit Post(const ClusterOptions& options, double timeout_s = 20) : cluster_(options) {
    members_ = everybody(cluster_);
    group_ = cluster_.group(members_, "all", timeout_s);
  }

  Cluster& cluster() { return cluster_; }
  [[nodiscard]] int size() const { return static_cast<int>(members_.size()); }
  [[nodiscard]] std::uint64_t group() const { return group_; }

  std::unique_ptr<Posted> call(int rank, Collective collective, std::vector<Wanted> parts,
                               std::uint32_t tag = 0) {
    auto posted = std::make_unique<Posted>();
    posted->handle = std::make_shared<OperationHandle>(nullptr);
    posted->sources.assign(parts.size(), -2);
    Call call;
    call.what.collective = collective;
    call.tag = tag;
    call.handle = posted->handle;
    for (Wanted& part : parts) {
      posted->buffers.push_back(std::move(part.memory));
    }
    for (std::size_t i = 0; i < parts.size(); ++i) {
      call.what.count += posted->buffers[i].size();
      call.parts.push_back({parts[i].peer, parts[i].receive, posted->buffers[i], &posted->sources[i]});
    }
    posted->refused = cluster_.engine(rank).submit(group_, size(), rank, std::move(call));
    return posted;
  }
  std::unique_ptr<Posted> send(int from, int to, Buffer bytes, std::uint32_t tag = 0) {
    return call(from, Collective::kSend, {{to, false, std::move(bytes)}}, tag);
  }
  std::unique_ptr<Posted> receive(int at, int from, std::size_t bytes, std::uint32_t tag = 0) {
    return call(at, Collective::kRecv, {{from, true, Buffer(bytes)}}, tag);
  }
  // Every rank sends every other rank a number of bytes that both know.
  std::vector<std::unique_ptr<Posted>> all_to_all(const std::function<std::size_t(int, int)>& bytes,
                                                  std::uint32_t seed) {
    std::vector<std::unique_ptr<Posted>> calls;
    for (int rank = 0; rank < size(); ++rank) {
      std::vector<Wanted> parts;
      for (int peer = 0; peer < size(); ++peer) {
        if (peer != rank) {
          parts.push_back({peer, false, content(rank, peer, bytes(rank, peer), seed)});
          parts.push_back({peer, true, Buffer(bytes(peer, rank))});
        }
      }
      calls.push_back(call(rank, Collective::kAllToAll, std::move(parts)));
    }
    return calls;
  }
  void check_all_to_all(const std::function<std::size_t(int, int)>& bytes, std::uint32_t seed) {
    const auto calls = all_to_all(bytes, seed);
    for (int rank = 0; rank < size(); ++rank) {
      Posted& posted = *calls[static_cast<std::size_t>(rank)];
      const Status status = posted.finish();
      ASSERT_TRUE(status.ok()) << status.message();
      std::size_t part = 1;
      for (int peer = 0; peer < size(); ++peer) {
        if (peer != rank) {
          ASSERT_EQ(posted.buffers[part], content(peer, rank, bytes(peer, rank), seed))
              << "from " << peer << " to " << rank;
          part += 2;
        }
      }
    }
  }
  static Buffer content(int from, int to, std::size_t bytes, std::uint32_t seed) {
    return random_buffer(DType::kUInt8, bytes, seed * 1009U + static_cast<std::uint32_t>(from * 37 + to));
  }

 private:
  Cluster cluster_;
  std::vector<int> members_;
  std::uint64_t group_ = 0;
};

// Sizes around the limits between eager, announced and chunked messages.
const std::vector<std::size_t> kSizes = {0, 1, 16U << 10U, (16U << 10U) + 1, 256U << 10U, (3U << 20U) + 5};

class Shapes : public ::testing::TestWithParam<std::vector<int>> {};

TEST_P(Shapes, EverySizeArrivesWhicheverRankCallsFirst) {
  Post post({.hosts = GetParam()});
  ASSERT_TRUE(post.cluster().ok());
  const int last = post.size() - 1;
  for (const std::size_t bytes : kSizes) {
    for (const bool sender_first : {true, false}) {
      const Buffer sent = Post::content(0, last, bytes, 3);
      std::unique_ptr<Posted> sending;
      if (sender_first) {
        sending = post.send(0, last, sent);
        std::this_thread::sleep_for(20ms);
      }
      const auto receiving = post.receive(last, 0, bytes);
      if (!sender_first) {
        std::this_thread::sleep_for(20ms);
        sending = post.send(0, last, sent);
      }
      ASSERT_TRUE(sending->finish().ok()) << bytes;
      ASSERT_TRUE(receiving->finish().ok()) << bytes;
      ASSERT_EQ(receiving->buffers[0], sent);
      EXPECT_EQ(receiving->sources[0], 0);
    }
  }
}

TEST_P(Shapes, AllToAllOfEqualAndOfUnequalParts) {
  Post post({.hosts = GetParam()});
  ASSERT_TRUE(post.cluster().ok());
  std::uint32_t seed = 1;
  for (const std::size_t bytes : kSizes) {
    post.check_all_to_all([&](int, int) { return bytes; }, ++seed);
    post.check_all_to_all(
        [&](int from, int to) { return bytes * static_cast<std::size_t>((from + 2 * to) % 3); }, ++seed);
    if (HasFatalFailure()) {
      return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Shapes,
                         ::testing::Values(std::vector{2}, std::vector{4}, std::vector{1, 1},
                                           std::vector{3, 1}, std::vector{2, 2, 1}),
                         [](const auto& info) {
                           std::string name = "hosts";
                           for (const int ranks : info.param) {
                             name += "_" + std::to_string(ranks);
                           }
                           return name;
                         });

TEST(PointToPoint, MessagesOfOneTagKeepTheirOrderAndTagsAreIndependent) {
  Post post({.hosts = {1, 1}});
  ASSERT_TRUE(post.cluster().ok());
  std::vector<std::unique_ptr<Posted>> calls;
  for (std::uint32_t i = 0; i < 20; ++i) {
    // Large and small alternate: an eager message must not overtake an announced one.
    const std::size_t bytes = i % 2 == 0 ? 100'000 : 100;
    calls.push_back(post.send(0, 1, Post::content(0, 1, bytes + i, i), i % 3));
  }
  for (const std::uint32_t tag : {2U, 0U, 1U}) {
    for (std::uint32_t i = tag; i < 20; i += 3) {
      const std::size_t bytes = i % 2 == 0 ? 100'000 : 100;
      const auto receiving = post.receive(1, 0, bytes + i, tag);
      const Status status = receiving->finish();
      ASSERT_TRUE(status.ok()) << status.message();
      ASSERT_EQ(receiving->buffers[0], Post::content(0, 1, bytes + i, i));
    }
  }
  for (const auto& call : calls) {
    ASSERT_TRUE(call->finish().ok());
  }
}

TEST(PointToPoint, ReorderedFramesChangeNothing) {
  for (std::uint32_t seed = 1; seed <= 6; ++seed) {
    FaultFabric fabric({seed, 0.4});
    Post post({.hosts = {2, 1, 1}, .fabric = &fabric});
    ASSERT_TRUE(post.cluster().ok());
    std::vector<std::unique_ptr<Posted>> calls;
    for (std::uint32_t i = 0; i < 12; ++i) {
      calls.push_back(post.send(0, 3, Post::content(0, 3, 1000 * i, seed), 7));
    }
    post.check_all_to_all([&](int from, int to) { return static_cast<std::size_t>(90'000 * from + to); },
                          seed);
    for (std::uint32_t i = 0; i < 12; ++i) {
      const auto receiving = post.receive(3, 0, 1000 * i, 7);
      ASSERT_TRUE(receiving->finish().ok());
      ASSERT_EQ(receiving->buffers[0], Post::content(0, 3, 1000 * i, seed));
    }
  }
}

TEST(PointToPoint, AReceiveFromAnyRankGetsTheFirstMessageAndItsSender) {
  Post post({.hosts = {2, 1}});
  ASSERT_TRUE(post.cluster().ok());
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{200'000}}) {
    const auto first = post.receive(0, Part::kAnyRank, bytes);
    const auto from_two = post.send(2, 0, Post::content(2, 0, bytes, 1));
    ASSERT_TRUE(first->finish().ok());
    EXPECT_EQ(first->sources[0], 2);
    EXPECT_EQ(first->buffers[0], Post::content(2, 0, bytes, 1));
    const auto from_one = post.send(1, 0, Post::content(1, 0, bytes, 1));
    const auto second = post.receive(0, Part::kAnyRank, bytes);
    ASSERT_TRUE(second->finish().ok());
    EXPECT_EQ(second->sources[0], 1);
    ASSERT_TRUE(from_one->finish().ok() && from_two->finish().ok());
  }
}

TEST(PointToPoint, SumsCompleteWhileMessagesWaitForTheirReceiver) {
  Post post({.hosts = {2, 2}, .options = {{"SMDP_ARENA_MIB", "32"}}}, 100);
  constexpr int kMessages = 8;  // to each of two ranks: more than the arena holds
  ASSERT_TRUE(post.cluster().ok());
  std::vector<std::unique_ptr<Posted>> sends;
  for (int i = 0; i < kMessages; ++i) {
    sends.push_back(post.send(0, 1, Post::content(0, 1, 5U << 20U, static_cast<std::uint32_t>(i))));
    sends.push_back(post.send(0, 2, Post::content(0, 2, 5U << 20U, static_cast<std::uint32_t>(i))));
  }
  std::vector<Job> jobs(4);
  for (int rank = 0; rank < 4; ++rank) {
    Job& job = jobs[static_cast<std::size_t>(rank)];
    job.what = {Collective::kAllReduce, DType::kInt32, ReduceOp::kSum, 0, 1U << 20U};
    job.input = random_buffer(DType::kInt32, 1U << 20U, static_cast<std::uint32_t>(rank));
    start(post.cluster(), rank, post.group(), {0, 1, 2, 3}, job);
  }
  for (Job& job : jobs) {
    ASSERT_TRUE(finish(job).ok());
  }
  for (int i = 0; i < kMessages; ++i) {
    for (const int to : {1, 2}) {
      const auto receiving = post.receive(to, 0, 5U << 20U);
      ASSERT_TRUE(receiving->finish().ok());
      ASSERT_EQ(receiving->buffers[0], Post::content(0, to, 5U << 20U, static_cast<std::uint32_t>(i)));
    }
  }
}

TEST(PointToPoint, DifferentSizesAreNamedOnBothEnds) {
  Post post({.hosts = {1, 1}});
  const auto sending = post.send(0, 1, Buffer(100'000));
  const auto receiving = post.receive(1, 0, 100);
  for (const Status& status : {sending->finish(), receiving->finish()}) {
    EXPECT_EQ(status.code(), Code::kMismatch);
    EXPECT_NE(status.message().find("sends 100000 bytes where 100 are to be received"), std::string::npos)
        << status.message();
  }
}

TEST(PointToPoint, AGroupThatFailsDuringAMessageDoesNotAffectOthers) {
  for (int round = 0; round < 5; ++round) {
    Post post({.hosts = {1, 1}});
    const std::uint64_t other = post.cluster().group({0, 1}, "other");
    const auto sending = post.send(0, 1, Buffer(64U << 20U));
    const auto receiving = post.receive(1, 0, 64U << 20U);
    std::this_thread::sleep_for(std::chrono::milliseconds(round));
    const auto wrong = post.receive(1, 0, 3, 1);
    const auto short_one = post.send(0, 1, Buffer(2), 1);
    EXPECT_EQ(wrong->finish().code(), Code::kMismatch);
    const Code code = receiving->finish().code();  // a fast machine may complete it
    EXPECT_TRUE(code == Code::kMismatch || code == Code::kOk);
    check_sum(post.cluster(), other);
  }
}

TEST(PointToPoint, DifferentCollectivesAreNamed) {
  Post post({.hosts = {2}});
  const auto gathering = post.call(0, Collective::kGather, {{1, true, Buffer(8)}});
  const auto exchanging = post.call(1, Collective::kAllToAll, {{0, false, Buffer(8)}, {0, true, Buffer(8)}});
  const Status status = gathering->finish();
  EXPECT_EQ(status.code(), Code::kMismatch);
  EXPECT_NE(status.message().find("called gather(uint8[8])"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("called all_to_all"), std::string::npos) << status.message();
  EXPECT_EQ(exchanging->finish().code(), Code::kMismatch);
}

TEST(PointToPoint, ARankThatDoesNotReceiveIsNamedAtTheDeadline) {
  Post post({.hosts = {2, 1}}, 0.5);
  const auto sending = post.send(0, 1, Buffer(1U << 20U));
  const Status status = sending->finish();
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_NE(status.message().find("waiting for the receiver of rank 1"), std::string::npos)
      << status.message();
}

// Rank 0 waits for 1, which waits for 2, which makes no call, whichever deadline passes first.
TEST(PointToPoint, TheRankAtTheEndOfAChainOfWaitsIsNamedAtTheDeadline) {
  for (const std::vector<int>& hosts : {std::vector<int>{3}, {1, 1, 1}}) {
    for (const bool first_comes_first : {false, true}) {
      Post post({.hosts = hosts}, 0.6);
      std::vector<std::unique_ptr<Posted>> calls;
      for (const int rank : first_comes_first ? std::vector{0, 1} : std::vector{1, 0}) {
        calls.push_back(post.call(rank, Collective::kRecv, {{rank + 1, true, Buffer(64)}}));
        std::this_thread::sleep_for(100ms);
      }
      for (const auto& call : calls) {
        const Status status = call->finish();
        EXPECT_EQ(status.code(), Code::kTimeout);
        const std::string head = status.message().substr(0, status.message().find(" ["));
        EXPECT_NE(head.find(" of rank 2 "), std::string::npos) << head;
        EXPECT_EQ(head.find(" of rank 1 "), std::string::npos) << head;
      }
    }
  }
}

TEST(PointToPoint, ALostRankFailsTheCallsThatWaitForIt) {
  FaultFabric fabric;
  Post post({.hosts = {1, 1}, .fabric = &fabric});
  const auto receiving = post.receive(0, 1, 10);
  fabric.cut(1);
  EXPECT_EQ(receiving->finish().code(), Code::kPeerLost);
}

TEST(PointToPoint, ARankThatLeftDoesNotFailRanksThatDoNotWaitForIt) {
  Post post({.hosts = {2, 1}});
  const auto last_words = post.send(2, 0, Buffer(10));
  ASSERT_TRUE(last_words->finish().ok());
  post.cluster().engine(2).destroy_group(post.group());
  std::this_thread::sleep_for(700ms);
  const auto heard = post.receive(0, 2, 10);
  EXPECT_TRUE(heard->finish().ok());
  const auto sending = post.send(0, 1, Buffer(100'000));
  const auto receiving = post.receive(1, 0, 100'000);
  EXPECT_TRUE(sending->finish().ok());
  EXPECT_TRUE(receiving->finish().ok());
  const auto in_vain = post.receive(0, 2, 10);
  const Status status = in_vain->finish();
  EXPECT_EQ(status.code(), Code::kPeerLost);
  EXPECT_NE(status.message().find("rank 2"), std::string::npos) << status.message();
}

// Few bytes are copied before the receiver's call, but within a host the send ends only when the receiver has
// them.
TEST(PointToPoint, ASendWithinAHostFailsWhenItsReceiverHasLeft) {
  Post post({.hosts = {2, 1}});
  const std::uint64_t other = post.cluster().group({0, 1}, "other");
  post.cluster().engine(1).destroy_group(post.group());
  // Its engine has destroyed the group when a later call ends. Before, it would take the message.
  check_sum(post.cluster(), other);
  const Status status = post.send(0, 1, Buffer(10))->finish();
  EXPECT_EQ(status.code(), Code::kPeerLost);
  EXPECT_NE(status.message().find("rank 1 (host host-0) destroyed the group"), std::string::npos)
      << status.message();
}

// Few bytes between hosts need no call of the receiver, but they are lost when its engine closes.
TEST(PointToPoint, ASendToAnotherHostFailsWhenItsReceiverCloses) {
  Post post({.hosts = {1, 1, 1}});
  std::thread closing([&] { post.cluster().engine(1).close(); });
  std::this_thread::sleep_for(200ms);
  const auto sending = post.send(0, 1, Buffer(10));
  const Status status = sending->finish();
  EXPECT_EQ(status.code(), Code::kPeerLost);
  EXPECT_NE(status.message().find("rank 1 (host host-1) ended or closed its engine"), std::string::npos)
      << status.message();
  post.cluster().close();
  closing.join();
}

// Rank 1 receives in the opposite order, so that all messages wait.
TEST(PointToPoint, ThousandsOfMessagesMayBeOpen) {
  constexpr std::uint32_t kMessages = 4000;
  Post post({.hosts = {1, 1}, .options = {{"SMDP_WARN_S", "600"}}}, 25);
  std::vector<std::unique_ptr<Posted>> calls;
  for (std::uint32_t i = 0; i < kMessages; ++i) {
    calls.push_back(post.send(0, 1, Post::content(0, 1, 17'000, i), i));
  }
  for (std::uint32_t i = kMessages; i-- > 0;) {
    calls.push_back(post.receive(1, 0, 17'000, i));
  }
  for (const auto& call : calls) {
    const Status status = call->finish();
    ASSERT_TRUE(status.ok()) << status.message();
  }
  for (std::uint32_t i = 0; i < kMessages; ++i) {
    ASSERT_EQ(calls[2 * kMessages - 1 - i]->buffers[0], Post::content(0, 1, 17'000, i));
  }
}

TEST(PointToPoint, ThousandsOfReceivesEndAtTheirDeadline) {
  Post post({.hosts = {2}}, 0.3);
  std::vector<std::unique_ptr<Posted>> calls;
  for (std::uint32_t i = 0; i < 4000; ++i) {
    calls.push_back(post.receive(1, 0, 64, i));
  }
  for (const auto& call : calls) {
    const Status status = call->finish();
    ASSERT_EQ(status.code(), Code::kTimeout);
    ASSERT_NE(status.message().find("the deadline passed"), std::string::npos) << status.message();
  }
}

TEST(PointToPoint, OneWarningNamesTheOldestOfTheMessagesThatWait) {
  Post post({.hosts = {1, 1, 1}, .options = {{"SMDP_WARN_S", "0.2"}}}, 3);
  std::vector<std::unique_ptr<Posted>> calls;
  for (std::uint32_t i = 0; i < 20; ++i) {
    calls.push_back(post.receive(0, 1 + static_cast<int>(i % 2), 64, i));
  }
  EXPECT_EQ(calls[0]->finish().code(), Code::kTimeout);
  const std::vector<std::string> warnings = post.cluster().warnings();
  ASSERT_EQ(std::ranges::count_if(
                warnings, [](const std::string& text) { return text.find("slow") != std::string::npos; }),
            1);
  EXPECT_NE(warnings[0].find("message call 0 of group 'all', waiting for a message of rank 1 (host host-1); "
                             "19 more message calls of the group wait for rank 1 (host host-1), rank 2"),
            std::string::npos)
      << warnings[0];
}

// Each rank has room for small messages of 1 GiB that it has not received, a quarter of it for one tag.
TEST(PointToPoint, ASmallMessageWaitsWhereTheReceiverIsFarBehind) {
  for (const std::vector<int>& hosts : {std::vector<int>{4}, {1, 1, 1, 1}}) {
    constexpr std::uint32_t kMessages = (64U << 20U) / PointToPoint::kEagerBytes + 100;
    Post post({.hosts = hosts});
    std::vector<std::unique_ptr<Posted>> sends;
    for (std::uint32_t i = 0; i < kMessages; ++i) {
      sends.push_back(post.send(0, 1, Buffer(PointToPoint::kEagerBytes, static_cast<std::byte>(i % 251))));
    }
    ASSERT_TRUE(sends.front()->finish().ok());
    ASSERT_TRUE(post.send(0, 1, Buffer(8), 1)->finish().ok()) << "another tag";
    EXPECT_FALSE(sends.back()->handle->is_complete());
    for (std::uint32_t i = 0; i < kMessages; ++i) {
      const auto receiving = post.receive(1, 0, PointToPoint::kEagerBytes);
      ASSERT_TRUE(receiving->finish().ok());
      ASSERT_EQ(receiving->buffers[0][7], static_cast<std::byte>(i % 251)) << i;
    }
    for (const auto& call : sends) {
      ASSERT_TRUE(call->finish().ok());
    }
    ASSERT_TRUE(post.send(0, 1, Buffer(8))->finish().ok()) << "the receiver is not behind any more";
  }
}

TEST(PointToPoint, InvalidCallsAreRefused) {
  Post post({.hosts = {2}});
  EXPECT_EQ(post.send(0, 0, Buffer(1))->finish().code(), Code::kInvalid);
  EXPECT_EQ(post.send(0, 2, Buffer(1))->finish().code(), Code::kInvalid);
  EXPECT_EQ(post.send(0, Part::kAnyRank, Buffer(1))->finish().code(), Code::kInvalid);
  const Status bad_tag = post.send(0, 1, Buffer(1), 0xffffffff)->finish();
  EXPECT_EQ(bad_tag.code(), Code::kInvalid);
  EXPECT_EQ(bad_tag.message(), "send(uint8[1]): the tag 4294967295 is not below 2147483648");
}

}  // namespace
}  // namespace smdp::testing
