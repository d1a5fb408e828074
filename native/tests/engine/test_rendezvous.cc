// Rank 0's address in a store: one that is out of date, one that comes late, a store that breaks.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "cluster.h"
#include "net/handshake/rendezvous.h"
#include "net/socket.h"

namespace smdp::testing {
namespace {

using std::chrono::steady_clock;

constexpr const char* kKey = "smdp/rendezvous";
const Bytes kToken(16, std::byte{7});

// A store that outlives two rendezvous, as torch's does in a process that opens a second group.
struct Reused {
  MemoryStore store;
  std::vector<std::string> values;
  std::atomic<bool> broken{false};
};

class ReusedStore final : public KeyValueStore {
 public:
  ReusedStore(Reused& shared, bool records) : shared_(shared), records_(records) {}
  Status set(const std::string& key, const std::string& value) override {
    if (records_) {
      shared_.values.push_back(value);
    }
    return shared_.store.set(key, value);
  }
  Result<std::string> get(const std::string& key, TimePoint deadline) override {
    return shared_.broken ? Status(Code::kPeerLost, "the store does not answer")
                          : shared_.store.get(key, deadline);
  }

 private:
  Reused& shared_;
  bool records_;
};

Result<std::unique_ptr<Engine>> open_rank(int rank, int size, KeyValueStore& store) {
  EngineConfig config;
  config.identity = {rank, size, "test-build", "127.0.0.1", &store};
  config.options.host_id = "host-" + std::to_string(rank);
  config.options.interface = "127.0.0.1";
  config.options.job_token = to_hex(kToken);
  config.options.arena_mib = 16;
  config.options.rendezvous_timeout_s = 20;
  config.options.close_timeout_s = 2;
  config.log = [](LogLevel, const std::string&) {};
  return Engine::open(std::move(config));
}

// The address of a listener that is closed.
std::string dead_address() {
  const auto listener = listen_tcp("127.0.0.1", "0");
  return sign_entry(kToken, std::to_string(listener.ok() ? listener->port : 1) + "/127.0.0.1");
}

// Rank 0 starts `late`; both must meet soon after.
void expect_they_meet(Reused& shared, std::chrono::milliseconds late) {
  const auto began = steady_clock::now();
  std::vector<std::unique_ptr<Engine>> engines(2);
  std::vector<Status> opened(2);
  std::vector<std::thread> threads;
  for (const int rank : {0, 1}) {
    threads.emplace_back([&, rank] {
      std::this_thread::sleep_for(rank == 0 ? late : std::chrono::milliseconds(0));
      ReusedStore store(shared, rank == 0);
      auto engine = open_rank(rank, 2, store);
      opened[static_cast<std::size_t>(rank)] = engine.status();
      if (engine.ok()) {
        engines[static_cast<std::size_t>(rank)] = std::move(*engine);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_TRUE(opened[0].ok()) << opened[0].message();
  EXPECT_TRUE(opened[1].ok()) << opened[1].message();
  EXPECT_LT(std::chrono::duration<double>(steady_clock::now() - began).count(), 10);
  threads.clear();
  for (auto& engine : engines) {
    threads.emplace_back([&engine] { engine.reset(); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(Rendezvous, FindsRankZeroDespiteAnOutdatedAddress) {
  Reused shared;
  ASSERT_TRUE(shared.store.set(kKey, dead_address()).ok());
  expect_they_meet(shared, std::chrono::milliseconds(300));
}

TEST(Rendezvous, LeavesNoAddressInTheStore) {
  Reused shared;
  expect_they_meet(shared, std::chrono::milliseconds(0));
  ASSERT_GE(shared.values.size(), 2);
  EXPECT_NE(shared.values.front(), "");
  EXPECT_EQ(shared.values.back(), "");
  expect_they_meet(shared, std::chrono::milliseconds(300));
}

// The entry of another process is not used, and rank 0 writes its own again.
TEST(Rendezvous, MeetsThoughAnotherProcessOverwritesTheStoresEntry) {
  const auto foreign = listen_tcp("127.0.0.1", "0");
  ASSERT_TRUE(foreign.ok());
  const std::string entry = std::to_string(foreign->port) + "/127.0.0.1";
  for (const std::string& written : {entry, entry + "/" + std::string(64, '0'), std::string("nonsense")}) {
    Reused shared;
    ASSERT_TRUE(shared.store.set(kKey, written).ok());
    std::thread overwriting([&] {
      for (auto there = shared.store.get(kKey, after(5)); there.ok() && *there == written;
           there = shared.store.get(kKey, after(5))) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      (void)shared.store.set(kKey, written);
    });
    expect_they_meet(shared, std::chrono::milliseconds(300));
    overwriting.join();
    EXPECT_FALSE(
        UniqueFd(::accept4(foreign->fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)).valid())
        << "the foreign address was used";
  }
}

TEST(Rendezvous, EndsAtOnceWhenTheStoreFails) {
  for (const std::string& entry : {std::string(), dead_address()}) {
    Reused shared;
    ASSERT_TRUE(shared.store.set(kKey, entry).ok());
    const auto began = steady_clock::now();
    std::thread breaking([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      shared.broken = true;
    });
    ReusedStore store(shared, false);
    const auto engine = open_rank(1, 2, store);
    breaking.join();
    EXPECT_EQ(engine.status().code(), Code::kPeerLost);
    EXPECT_NE(engine.status().message().find("the store does not answer"), std::string::npos)
        << engine.status().message();
    EXPECT_LT(std::chrono::duration<double>(steady_clock::now() - began).count(), 10);
  }
}

}  // namespace
}  // namespace smdp::testing
