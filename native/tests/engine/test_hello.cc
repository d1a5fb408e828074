// Which ranks refuse each other, and that all ranks report the reason.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <memory>
#include <thread>
#include <vector>

#include "cluster.h"
#include "net/handshake/handshaker.h"
#include "net/handshake/hello.h"
#include "net/socket.h"
#include "shm/arena.h"

namespace smdp::testing {
namespace {

void expect_everywhere(const Cluster& cluster, Code code, const std::vector<std::string>& parts) {
  for (std::size_t rank = 0; rank < cluster.opened().size(); ++rank) {
    const Status& status = cluster.opened()[rank];
    EXPECT_EQ(status.code(), code) << "rank " << rank << ": " << status.message();
    for (const std::string& part : parts) {
      EXPECT_NE(status.message().find(part), std::string::npos)
          << "rank " << rank << ": " << status.message();
    }
  }
}

TEST(Hello, DifferentBuildsAreRefusedAndNamedOnEveryRank) {
  const Cluster cluster({.hosts = {2, 1}, .adjust = [](int rank, EngineConfig& config) {
                           config.identity.build = rank == 1 ? "0.2.0-other" : "0.1.0";
                         }});
  for (const Status& status : cluster.opened()) {
    EXPECT_EQ(status.code(), Code::kRefused) << status.message();
    EXPECT_NE(status.message().find("build"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("0.2.0-other"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("0.1.0"), std::string::npos) << status.message();
  }
}

TEST(Hello, DifferentProtocolVersionsAreRefusedAndNamedOnEveryRank) {
  const Cluster cluster({.hosts = {2, 1},
                         .options = {{"SMDP_REFUSAL_GRACE_S", "0.3"}},
                         .adjust = [](int rank, EngineConfig& config) {
                           if (rank == 1) {
                             config.identity.protocol = kProtocolVersion + 1;
                             config.identity.build = "0.2.0-other";
                           }
                         }});
  const std::string ours = "speaks " + std::to_string(kProtocolVersion);
  const std::string theirs = "speaks " + std::to_string(kProtocolVersion + 1);
  expect_everywhere(cluster, Code::kRefused,
                    {"protocol version differs", "rank 1 (build 0.2.0-other)", ours, theirs, "test-build"});
}

TEST(Hello, ALateRankStillReportsWhyAnotherWasRefused) {
  const Cluster cluster({.hosts = {1, 1, 1}, .adjust = [](int rank, EngineConfig& config) {
                           config.identity.build = rank == 1 ? "0.2.0-other" : "0.1.0";
                           if (rank == 2) {
                             std::this_thread::sleep_for(std::chrono::milliseconds(500));
                           }
                         }});
  expect_everywhere(cluster, Code::kRefused, {"0.2.0-other", "0.1.0"});
}

TEST(Hello, AWrongTokenIsReportedOnEveryRank) {
  const Cluster cluster({.hosts = {1, 1, 1},
                         .options = {{"SMDP_REFUSAL_GRACE_S", "0.3"}},
                         .adjust = [](int rank, EngineConfig& config) {
                           if (rank == 2) {
                             config.options.job_token = "ffffffffffffffffffffffffffffffff";
                           }
                         }});
  expect_everywhere(cluster, Code::kRefused, {"token"});
  EXPECT_NE(cluster.opened()[1].message().find("rank 2"), std::string::npos) << cluster.opened()[1].message();
}

TEST(Hello, GenerationsAndPlanOptionsMustAgree) {
  const Cluster stale(
      {.hosts = {1, 1}, .adjust = [](int rank, EngineConfig& config) { config.options.generation = rank; }});
  expect_everywhere(stale, Code::kRefused, {"generation"});
  const Cluster differing({.hosts = {1, 1}, .adjust = [](int rank, EngineConfig& config) {
                             config.options.piece_kib = 64 + rank;
                           }});
  expect_everywhere(differing, Code::kRefused, {"options differ"});
}

TEST(Hello, AMissingRankIsNamedAtTheDeadline) {
  const Cluster cluster({.hosts = {1, 1, 1},
                         .options = {{"SMDP_RENDEZVOUS_TIMEOUT_S", "1"}},
                         .adjust = [](int rank, EngineConfig& config) {
                           if (rank == 2) {
                             config.identity.rank = 99;  // fails before the rendezvous
                           }
                         }});
  EXPECT_EQ(cluster.opened()[0].code(), Code::kTimeout);
  EXPECT_NE(cluster.opened()[0].message().find("rank 2"), std::string::npos) << cluster.opened()[0].message();
  EXPECT_NE(cluster.opened()[1].message().find("rank 2"), std::string::npos) << cluster.opened()[1].message();
}

TEST(Hello, WithoutATokenRankZeroDrawsOne) {
  Cluster cluster({.hosts = {1, 1}, .options = {{"SMDP_JOB_TOKEN", ""}}});
  EXPECT_TRUE(cluster.ok()) << cluster.opened()[0].message();
}

TEST(Hello, ProofsCoverBothSidesAndCannotBeReflected) {
  const Bytes token(16, std::byte{7});
  Hello one;
  one.nonce = random128();
  Hello two;
  two.nonce = random128();
  const auto a = encode(one);
  const auto b = encode(two);
  EXPECT_NE(prove_accept(token, a, b), prove_accept(token, b, a));
  EXPECT_NE(prove_accept(token, a, b), prove_connect(token, a, b));
  EXPECT_NE(prove_accept(token, a, b), prove_accept(Bytes(16, std::byte{8}), a, b));
  const auto back = decode_hello(a);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->nonce, one.nonce);
}

// Unauthenticated clients connect to rank 0 and send nothing, or invalid data; the job starts all the same.
TEST(Hello, UnauthenticatedClientsDoNotDelayTheJob) {
  MemoryStore store;
  EngineConfig configs[2];  // NOLINT(modernize-avoid-c-arrays)
  for (int rank = 0; rank < 2; ++rank) {
    configs[rank].identity = {rank, 2, "build", "127.0.0.1", &store};
    configs[rank].options.interface = "127.0.0.1";
    configs[rank].options.host_id = std::to_string(rank);
    configs[rank].options.arena_mib = 16;
  }
  Result<std::unique_ptr<Engine>> first = Status(Code::kInternal, "");
  std::thread opening([&] { first = Engine::open(configs[0]); });
  const auto entry = store.get("smdp/rendezvous", after(5));
  ASSERT_TRUE(entry.ok());
  const auto port = static_cast<std::uint16_t>(std::stoi(*entry));
  std::vector<UniqueFd> clients;
  for (int i = 0; i < 20; ++i) {
    auto fd = begin_connect({"127.0.0.1", port});
    ASSERT_TRUE(fd.ok());
    const std::string nonsense(static_cast<std::size_t>(i) * 16, 'x');
    (void)send_all(fd->get(), as_bytes_of(nonsense), after(1));
    clients.push_back(std::move(*fd));
  }
  auto second = Engine::open(configs[1]);
  opening.join();
  EXPECT_TRUE(first.ok()) << first.status().message();
  EXPECT_TRUE(second.ok()) << second.status().message();
  if (first.ok() && second.ok()) {
    std::thread closing([&] { (*first)->close(); });
    (*second)->close();
    closing.join();
  }
}

const std::vector<std::byte> kToken(16, std::byte{7});

std::unique_ptr<Handshaker> handshaker_of(int rank, double deadline_s = 20,
                                          const std::vector<std::byte>& token = kToken) {
  Hello self;
  self.protocol = kProtocolVersion;
  self.rank = static_cast<std::uint32_t>(rank);
  self.world_size = 1024;
  self.build = "build";
  return std::make_unique<Handshaker>(self, token, after(deadline_s));
}

// A rank does this when its wait for an answer times out, while other ranks still connect.
TEST(Handshaker, ARankThatReconnectsReplacesItsEarlierConnection) {
  const auto listener = listen_tcp("127.0.0.1", "0");
  ASSERT_TRUE(listener.ok());
  const auto first = handshaker_of(0);
  first->accept_on(listener->fd.get());
  first->expect(1, 0);
  first->expect(2, 0);
  Status met;
  std::thread running([&] { met = first->run(); });
  std::vector<std::unique_ptr<Handshaker>> callers;
  for (const int rank : {1, 1, 2}) {
    callers.push_back(handshaker_of(rank));
    callers.back()->connect(0, 0, {{"127.0.0.1", listener->port}}, false);
    const Status called = callers.back()->run();
    EXPECT_TRUE(called.ok()) << called.message();
  }
  running.join();
  ASSERT_TRUE(met.ok()) << met.message();
  const std::byte sent{42};
  std::byte received{};
  ASSERT_TRUE(send_all(callers[1]->connections().at({0, 0}).get(), {&sent, 1}, after(1)).ok());
  ASSERT_TRUE(receive_all(first->connections().at({1, 0}).get(), {&received, 1}, after(1)).ok());
  EXPECT_EQ(received, sent);
}

// Rank 0 accepts on `listener`, to which rank 1 is connecting.
void expect_rank_zero_meets(const Listener& listener) {
  const auto host = handshaker_of(0);
  host->accept_on(listener.fd.get());
  host->expect(1, 0);
  const Status met = host->run();
  EXPECT_TRUE(met.ok()) << met.message();
}

// Both sides retry a handshake that is cut before the welcome.
TEST(Handshaker, AClientThatIsClosedBeforeItsProofRetries) {
  const auto listener = listen_tcp("127.0.0.1", "0");
  ASSERT_TRUE(listener.ok());
  const auto caller = handshaker_of(1);
  caller->connect(0, 0, {{"127.0.0.1", listener->port}}, false);
  Status called;
  std::thread calling([&] { called = caller->run(); });
  UniqueFd sent_away;
  while (!sent_away.valid()) {
    sent_away = UniqueFd(::accept4(listener->fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }
  sent_away.reset();
  expect_rank_zero_meets(*listener);
  calling.join();
  EXPECT_TRUE(called.ok()) << called.message();
}

// Sends the refusal of a rank, without the proof.
void refuse_without_proof(const Listener& listener, const std::string& sentence) {
  pollfd called{listener.fd.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&called, 1, 5000), 1);
  const UniqueFd caller(::accept4(listener.fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
  Bytes hello(kHelloBytes);
  ASSERT_TRUE(receive_all(caller.get(), hello, after(5)).ok());
  const Bytes refusal = Writer()
                            .put(std::uint8_t{2})
                            .put(static_cast<std::uint16_t>(sentence.size()))
                            .raw(as_bytes_of(sentence))
                            .take();
  ASSERT_TRUE(send_all(caller.get(), refusal, after(5)).ok());
}

TEST(Handshaker, ARefusalWithoutProofIsRetriedUntilTheRankAnswers) {
  const auto listener = listen_tcp("127.0.0.1", "0");
  ASSERT_TRUE(listener.ok());
  const auto caller = handshaker_of(1);
  std::vector<std::string> warnings;
  caller->set_warning([&](const std::string& text) { warnings.push_back(text); });
  caller->connect(0, 0, {{"127.0.0.1", listener->port}}, false);
  Status called;
  std::thread calling([&] { called = caller->run(); });
  for (int i = 0; i < 3; ++i) {
    refuse_without_proof(*listener, "engine build differs");
  }
  expect_rank_zero_meets(*listener);
  calling.join();
  EXPECT_TRUE(called.ok()) << called.message();
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("without proof"), std::string::npos) << warnings[0];
  EXPECT_NE(warnings[0].find("engine build differs"), std::string::npos) << warnings[0];
}

TEST(Handshaker, ARepeatedRefusalWithoutProofIsAcceptedAfterTheGraceTime) {
  const auto listener = listen_tcp("127.0.0.1", "0");
  ASSERT_TRUE(listener.ok());
  const auto caller = handshaker_of(1);
  caller->set_refusal_grace(0.2);
  caller->connect(0, 0, {{"127.0.0.1", listener->port}}, true);
  Status called;
  std::thread calling([&] { called = caller->run(); });
  refuse_without_proof(*listener, "engine build differs");
  calling.join();
  EXPECT_EQ(called.code(), Code::kRefused);
  EXPECT_NE(called.message().find("engine build differs"), std::string::npos) << called.message();
}

// A client without the token may not belong to the job.
TEST(Handshaker, ARefusedClientMayRetry) {
  const auto listener = listen_tcp("127.0.0.1", "0");
  ASSERT_TRUE(listener.ok());
  std::thread running([&] { expect_rank_zero_meets(*listener); });
  const auto client = handshaker_of(1, 20, std::vector<std::byte>(16, std::byte{8}));
  client->set_refusal_grace(0);
  client->connect(0, 0, {{"127.0.0.1", listener->port}}, false);
  EXPECT_EQ(client->run().code(), Code::kRefused);
  const auto caller = handshaker_of(1);
  caller->connect(0, 0, {{"127.0.0.1", listener->port}}, false);
  const Status called = caller->run();
  running.join();
  EXPECT_TRUE(called.ok()) << called.message();
}

// Between two exchanges of the rendezvous: a rank has gone, or rank 0 has sent an error.
TEST(Handshaker, EndsWhenTheRendezvousEnds) {
  for (const bool speaks : {false, true}) {
    const auto listener = listen_tcp("127.0.0.1", "0");
    ASSERT_TRUE(listener.ok());
    auto link = begin_connect({"127.0.0.1", listener->port});
    ASSERT_TRUE(link.ok());
    UniqueFd other(::accept4(listener->fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const auto waiting = handshaker_of(0, 20);
    waiting->expect(1, 0);
    waiting->watch(link->get(), "rank 2", speaks);
    const auto began = std::chrono::steady_clock::now();
    Status met;
    std::thread running([&] { met = waiting->run(); });
    if (speaks) {
      const std::byte word{1};
      EXPECT_TRUE(send_all(other.get(), {&word, 1}, after(1)).ok());
    } else {
      other.reset();
    }
    running.join();
    EXPECT_EQ(met.code(), Code::kPeerLost);
    EXPECT_NE(met.message().find(speaks ? "rank 2 ended" : "rank 2 left"), std::string::npos)
        << met.message();
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
  }
}

// A rank that stops in the proof of shared memory delays the others until their deadline.
TEST(Rendezvous, TheProofOfSharedMemoryEndsAtTheDeadline) {
  int pair[2] = {};  // NOLINT(modernize-avoid-c-arrays)
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  const UniqueFd ours(pair[0]);
  const UniqueFd silent(pair[1]);
  auto arena = Arena::create(1U << 20U);
  ASSERT_TRUE(arena.ok());
  const auto began = std::chrono::steady_clock::now();
  EXPECT_FALSE(exchange_arenas(ours.get(), *arena, after(0.2)).ok());
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
}

// A rank's own connections, however many wait for an answer, leave room for its clients.
TEST(Handshaker, ManyOutgoingConnectionsDoNotBlockIncomingOnes) {
  const auto silent = listen_tcp("127.0.0.1", "0");
  const auto listener = listen_tcp("127.0.0.1", "0");
  ASSERT_TRUE(silent.ok() && listener.ok());
  const auto busy = handshaker_of(400, 2);
  for (int rank = 0; rank < 400; ++rank) {
    busy->connect(rank, 0, {{"127.0.0.1", silent->port}}, false);
  }
  busy->accept_on(listener->fd.get());
  busy->expect(401, 0);
  std::thread running([&] { (void)busy->run(); });
  const auto caller = handshaker_of(401);
  caller->connect(400, 0, {{"127.0.0.1", listener->port}}, false);
  const Status called = caller->run();
  running.join();
  EXPECT_TRUE(called.ok()) << called.message();
  EXPECT_TRUE(busy->connections().contains({401, 0}));
}

// The error of a rank that gets `answer` instead of rank 0's.
Status answer_of_another_program(const std::string& answer) {
  const auto listener = listen_tcp("127.0.0.1", "0");
  EXPECT_TRUE(listener.ok());
  const auto caller = handshaker_of(1);
  caller->set_refusal_grace(0);
  caller->connect(0, 0, {{"127.0.0.1", listener->port}}, false);
  Status status;
  std::thread running([&] { status = caller->run(); });
  pollfd caller_came{listener->fd.get(), POLLIN, 0};
  ::poll(&caller_came, 1, 10'000);
  const UniqueFd server(::accept(listener->fd.get(), nullptr, nullptr));
  EXPECT_TRUE(send_all(server.get(), as_bytes_of(answer), after(1)).ok());
  running.join();
  return status;
}

// A regression: the rank read until its deadline, and stored everything.
TEST(Handshaker, AnAnswerThatIsTooLongIsNotReadToItsEnd) {
  const Status status = answer_of_another_program("\x01\xff\xff");
  EXPECT_NE(status.message().find("something that is not this engine answered"), std::string::npos)
      << status.message();
}

TEST(Handshaker, ARefusalPrintsPlainTextOnly) {
  EXPECT_EQ(answer_of_another_program(std::string("\x02\x09\x00\x1b[2J gone", 12)).message(), "[2J gone");
  EXPECT_EQ(answer_of_another_program(std::string("\x02\x00\x00", 3)).message(),
            "it refused and gave no reason");
}

// A regression: such a connection counted as made.
TEST(Handshaker, ARankWithoutAnAddressIsReportedAsMissing) {
  const auto caller = handshaker_of(1);
  caller->connect(0, 0, {}, false);
  const Status called = caller->run();
  EXPECT_EQ(called.code(), Code::kRefused);
  EXPECT_NE(called.message().find("rank 0: it gave no address"), std::string::npos) << called.message();
}

}  // namespace
}  // namespace smdp::testing
