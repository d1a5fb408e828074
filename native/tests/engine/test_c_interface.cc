#include <gtest/gtest.h>
#include <smdp/engine.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "cluster.h"

namespace {

using smdp::testing::MemoryStore;

TEST(CInterface, ASingleRankGetsItsOwnValues) {
  EXPECT_EQ(smdp_abi_version(), SMDP_ABI_VERSION);
  smdp_engine_config config{};
  config.size = sizeof(config);
  config.world_size = 1;
  const char* options[] = {"SMDP_ARENA_MIB", "16", nullptr};  // NOLINT(modernize-avoid-c-arrays)
  config.options = options;
  smdp_engine* engine = nullptr;
  smdp_error error{};
  ASSERT_EQ(smdp_engine_open(&config, &engine, &error), SMDP_OK) << error.message;
  EXPECT_EQ(smdp_engine_host_count(engine), 1);
  const int member = 0;
  smdp_group* group = nullptr;
  ASSERT_EQ(smdp_group_create(engine, &member, 1, "world", 5, &group, &error), SMDP_OK) << error.message;
  std::vector<float> values = {1, 2, 3};
  smdp_call call{};
  call.size = sizeof(call);
  call.collective = SMDP_ALL_REDUCE;
  call.op = SMDP_AVG;
  call.count = values.size();
  call.input = call.output = values.data();
  smdp_operation* operation = nullptr;
  ASSERT_EQ(smdp_submit(group, &call, &operation, &error), SMDP_OK) << error.message;
  EXPECT_EQ(smdp_operation_wait(operation, 5, &error), SMDP_OK) << error.message;
  EXPECT_EQ(smdp_operation_test(operation), 1);
  EXPECT_EQ(values, (std::vector<float>{1, 2, 3}));
  call.op = 99;
  smdp_operation* refused = nullptr;
  EXPECT_EQ(smdp_submit(group, &call, &refused, &error), SMDP_INVALID);
  smdp_group_destroy(group);
  smdp_engine_close(engine);
  EXPECT_EQ(smdp_operation_wait(operation, 5, &error), SMDP_OK) << "an operation outlives its engine";
  smdp_operation_release(operation);
}

TEST(CInterface, OptionsThatDoNotFitTogetherAreRefused) {
  smdp_engine_config config{};
  config.size = sizeof(config);
  config.world_size = 1;
  const std::array options = {"SMDP_ARENA_MIB", "16", "SMDP_PIECE_KIB", "65536",
                              static_cast<const char*>(nullptr)};
  config.options = options.data();
  smdp_engine* engine = nullptr;
  smdp_error error{};
  EXPECT_EQ(smdp_engine_open(&config, &engine, &error), SMDP_INVALID);
  EXPECT_NE(std::strstr(error.message, "SMDP_PIECE_KIB='65536'"), nullptr) << error.message;
}

TEST(CInterface, AStreamingCopyHasTheSameBytes) {
  std::vector<unsigned char> from(1000);
  for (std::size_t index = 0; index < from.size(); ++index) {
    from[index] = static_cast<unsigned char>(index * 7);
  }
  for (const std::size_t bytes : {0U, 1U, 63U, 64U, 65U, 129U, 997U}) {
    std::vector<unsigned char> to(from.size() + 1, 1);
    smdp_copy_streaming(to.data() + 3, from.data(), bytes);
    EXPECT_EQ(std::memcmp(to.data() + 3, from.data(), bytes), 0) << bytes;
    EXPECT_EQ(to[2], 1);
    EXPECT_EQ(to[3 + bytes], 1);
  }
}

// The engines of two ranks, connected on loopback.
std::array<smdp_engine*, 2> open_two() {
  MemoryStore values;
  const auto get = [](void* store, const char* key, char* value, std::size_t capacity, std::size_t* bytes,
                      double timeout_s) {
    const auto found = static_cast<MemoryStore*>(store)->get(key, smdp::after(timeout_s));
    if (!found.ok() || (*found).size() > capacity) {
      return 1;
    }
    *bytes = (*found).copy(value, capacity);
    return 0;
  };
  const auto set = [](void* store, const char* key, const char* value, std::size_t bytes) {
    return static_cast<MemoryStore*>(store)->set(key, std::string(value, bytes)).ok() ? 0 : 1;
  };
  smdp_store store{&values, set, get};
  std::array<smdp_engine*, 2> engines{};
  std::vector<std::thread> openers;
  for (int rank = 0; rank < 2; ++rank) {
    openers.emplace_back([&, rank] {
      const std::string host = "host-" + std::to_string(rank);
      const std::array options = {"SMDP_ARENA_MIB",
                                  "16",
                                  "SMDP_INTERFACE",
                                  "lo",
                                  "SMDP_HOST_ID",
                                  host.c_str(),
                                  "SMDP_CLOSE_TIMEOUT_S",
                                  "0",
                                  static_cast<const char*>(nullptr)};
      smdp_engine_config config{};
      config.size = sizeof(config);
      config.rank = rank;
      config.world_size = 2;
      config.store = &store;
      config.options = options.data();
      smdp_error error{};
      EXPECT_EQ(smdp_engine_open(&config, &engines[static_cast<std::size_t>(rank)], &error), SMDP_OK)
          << error.message;
    });
  }
  for (std::thread& opener : openers) {
    opener.join();
  }
  return engines;
}

int rounds() {
  const char* given = std::getenv("SMDP_CLOSE_ROUNDS");
  return given == nullptr ? 20 : std::atoi(given);  // NOLINT: our own number
}

// A script ends while one of its threads trains: threads wait for operations, or begin calls.
TEST(CInterface, ClosingAnEngineEndsTheCallsOfOtherThreads) {
  for (int round = 0; round < rounds(); ++round) {
    std::array<smdp_engine*, 2> engines = open_two();
    ASSERT_NE(engines[0], nullptr);
    ASSERT_NE(engines[1], nullptr);
    const std::array members = {0, 1};
    smdp_group* group = nullptr;
    smdp_error error{};
    ASSERT_EQ(smdp_group_create(engines[0], members.data(), 2, "world", 30, &group, &error), SMDP_OK);
    std::atomic<int> waiting = 0;
    std::vector<std::thread> callers;
    for (int thread = 0; thread < 3; ++thread) {
      callers.emplace_back([&] {
        float value = 1;
        smdp_call call{};
        call.size = sizeof(call);
        call.collective = SMDP_ALL_REDUCE;
        call.count = 1;
        call.input = call.output = &value;  // rank 1 never makes the call
        int code = SMDP_OK;
        smdp_error why{};
        for (++waiting; code != SMDP_CLOSED;) {
          smdp_operation* operation = nullptr;
          code = smdp_submit(group, &call, &operation, &why);
          if (code == SMDP_OK) {
            code = smdp_operation_wait(operation, -1, &why);
            smdp_operation_release(operation);
          }
          ASSERT_EQ(code, SMDP_CLOSED) << why.message;
        }
      });
    }
    while (waiting < 3) {
      std::this_thread::yield();
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100 * (round % 20)));
    smdp_engine_close(engines[0]);
    for (std::thread& caller : callers) {
      caller.join();
    }
    smdp_group_destroy(group);
    smdp_engine_close(engines[1]);
  }
}

smdp_call sum_of_one(float& value) {
  smdp_call call{};
  call.size = sizeof(call);
  call.collective = SMDP_ALL_REDUCE;
  call.count = 1;
  call.input = call.output = &value;
  return call;
}

TEST(CInterface, AGroupThatOneRankFailsFailsOnAllWithItsReason) {
  std::array<smdp_engine*, 2> engines = open_two();
  ASSERT_NE(engines[0], nullptr);
  ASSERT_NE(engines[1], nullptr);
  const std::array members = {0, 1};
  std::array<smdp_group*, 2> groups{};
  smdp_error error{};
  for (std::size_t rank : {0, 1}) {
    ASSERT_EQ(smdp_group_create(engines[rank], members.data(), 2, "world", 30, &groups[rank], &error),
              SMDP_OK);
  }
  float value = 1;
  const smdp_call call = sum_of_one(value);
  smdp_operation* pending = nullptr;
  ASSERT_EQ(smdp_submit(groups[1], &call, &pending, &error), SMDP_OK);  // rank 0 never makes it
  std::this_thread::sleep_for(std::chrono::milliseconds(50));           // until it has begun
  smdp_group_fail(groups[0], "the GPUs of this host failed");
  smdp_group_fail(groups[0], "a second reason");
  EXPECT_EQ(smdp_operation_wait(pending, 30, &error), SMDP_PEER_LOST);
  EXPECT_EQ(std::string(error.message).rfind("the GPUs of this host failed [on rank 1 ", 0), 0U)
      << error.message;
  smdp_operation_release(pending);
  smdp_operation* later = nullptr;
  ASSERT_EQ(smdp_submit(groups[0], &call, &later, &error), SMDP_OK);
  EXPECT_EQ(smdp_operation_wait(later, 30, &error), SMDP_PEER_LOST);
  EXPECT_EQ(std::string(error.message).rfind("group 'world' failed before: the GPUs of this host failed", 0),
            0U);
  smdp_operation_release(later);
  for (std::size_t rank : {0, 1}) {
    smdp_group_destroy(groups[rank]);
    smdp_engine_close(engines[rank]);
  }
}

TEST(CInterface, ARankThatDepartsHasEndedForTheOthers) {
  std::array<smdp_engine*, 2> engines = open_two();
  ASSERT_NE(engines[0], nullptr);
  ASSERT_NE(engines[1], nullptr);
  const std::array members = {0, 1};
  std::array<smdp_group*, 2> groups{};
  smdp_error error{};
  for (std::size_t rank : {0, 1}) {
    ASSERT_EQ(smdp_group_create(engines[rank], members.data(), 2, "world", 30, &groups[rank], &error),
              SMDP_OK);
  }
  smdp_engine_depart(engines[1]);
  float value = 1;
  const smdp_call call = sum_of_one(value);
  smdp_operation* operation = nullptr;
  EXPECT_EQ(smdp_submit(groups[1], &call, &operation, &error), SMDP_CLOSED);
  smdp_group_destroy(groups[1]);
  ASSERT_EQ(smdp_submit(groups[0], &call, &operation, &error), SMDP_OK);
  EXPECT_EQ(smdp_operation_wait(operation, 30, &error), SMDP_PEER_LOST);
  EXPECT_NE(std::strstr(error.message, "rank 1 (host host-1) ended or closed its engine before operation 0"),
            nullptr)
      << error.message;
  smdp_operation_release(operation);
  smdp_group_destroy(groups[0]);
  for (smdp_engine* engine : engines) {
    smdp_engine_close(engine);
  }
}

TEST(CInterface, AHostHasItsName) {
  std::array<smdp_engine*, 2> engines = open_two();
  ASSERT_NE(engines[0], nullptr);
  ASSERT_NE(engines[1], nullptr);
  for (smdp_engine* engine : engines) {
    EXPECT_STREQ(smdp_engine_host_name(engine, smdp_engine_host_of(engine, 1)), "host-1");
    EXPECT_EQ(smdp_engine_host_name(engine, 2), nullptr);
    EXPECT_EQ(smdp_engine_host_name(engine, -1), nullptr);
  }
  for (smdp_engine* engine : engines) {
    smdp_engine_close(engine);
  }
}

TEST(CInterface, ALateRankEndsTheStartAtTheTimeOfTheCaller) {
  const auto get = [](void*, const char*, char*, std::size_t, std::size_t*, double) { return 1; };
  const auto set = [](void*, const char*, const char*, std::size_t) { return 0; };
  const smdp_store store{nullptr, set, get};
  const std::array options = {"SMDP_INTERFACE", "lo", static_cast<const char*>(nullptr)};
  smdp_engine_config config{};
  config.size = sizeof(config);
  config.world_size = 2;
  config.store = &store;
  config.options = options.data();
  config.rendezvous_timeout_s = 0.25;
  smdp_engine* engine = nullptr;
  smdp_error error{};
  EXPECT_EQ(smdp_engine_open(&config, &engine, &error), SMDP_TIMEOUT);
  EXPECT_STREQ(
      error.message,
      "the ranks waited 0.25 s for each other (SMDP_RENDEZVOUS_TIMEOUT_S): rendezvous failed: rank 1 "
      "did not arrive");
  // An option of the caller overrides it.
  const std::array shorter = {"SMDP_INTERFACE", "lo", "SMDP_RENDEZVOUS_TIMEOUT_S", "0.125",
                              static_cast<const char*>(nullptr)};
  config.options = shorter.data();
  config.rendezvous_timeout_s = 1000;
  EXPECT_EQ(smdp_engine_open(&config, &engine, &error), SMDP_TIMEOUT);
  EXPECT_NE(std::strstr(error.message, "waited 0.125 s"), nullptr) << error.message;
}

TEST(CInterface, KeptMemoryStaysMappedAfterItsEngine) {
  std::array<smdp_engine*, 2> engines = open_two();
  ASSERT_NE(engines[0], nullptr);
  ASSERT_NE(engines[1], nullptr);
  void* memory = nullptr;
  std::uint64_t bytes = 0;
  smdp_error error{};
  ASSERT_EQ(smdp_engine_registered_memory(engines[0], &memory, &bytes, &error), SMDP_OK) << error.message;
  ASSERT_GT(bytes, 0U);
  std::memset(memory, 7, bytes);
  smdp_engine_keep_memory(engines[0]);
  for (smdp_engine* engine : engines) {
    smdp_engine_close(engine);
  }
  EXPECT_EQ(static_cast<const unsigned char*>(memory)[bytes - 1], 7);
}

TEST(CInterface, AnInvalidOptionIsNamedInTheError) {
  smdp_engine_config config{};
  config.size = sizeof(config);
  config.world_size = 1;
  const char* options[] = {"SMDP_WINDOW", "many", nullptr};  // NOLINT(modernize-avoid-c-arrays)
  config.options = options;
  smdp_engine* engine = nullptr;
  smdp_error error{};
  EXPECT_EQ(smdp_engine_open(&config, &engine, &error), SMDP_INVALID);
  EXPECT_NE(std::strstr(error.message, "SMDP_WINDOW"), nullptr);
  smdp_option option{};
  EXPECT_EQ(smdp_option_info(0, &option), SMDP_OK);
  EXPECT_EQ(smdp_option_info(10000, &option), SMDP_INVALID);
}

}  // namespace
