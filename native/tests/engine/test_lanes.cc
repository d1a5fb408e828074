// TensorFlow's gradients in lanes (adapters/tensorflow), over real engines: ranks are threads in one process.
#include <gtest/gtest.h>
#include <smdp/engine.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "../../adapters/tensorflow/lane.h"

namespace smdp_tensorflow {
namespace {

using std::chrono::steady_clock;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kSteps = 40;  // fewer are enough for instrumented code
#else
constexpr int kSteps = 1000;
#endif

// The store of a framework, which carries rank 0's address.
struct Store {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::string> values;
  smdp_store adapter{this, set, get};

  static int set(void* context, const char* key, const char* value, size_t bytes) {
    auto* store = static_cast<Store*>(context);
    const std::lock_guard lock(store->mutex);
    store->values[key] = std::string(value, bytes);
    store->changed.notify_all();
    return 0;
  }
  static int get(void* context, const char* key, char* value, size_t capacity, size_t* bytes,
                 double timeout_s) {
    auto* store = static_cast<Store*>(context);
    std::unique_lock lock(store->mutex);
    if (!store->changed.wait_for(lock, std::chrono::duration<double>(timeout_s),
                                 [&] { return store->values.contains(key); })) {
      return 1;
    }
    const std::string& found = store->values[key];
    *bytes = found.size();
    std::memcpy(value, found.data(), std::min(found.size(), capacity));
    return 0;
  }
};

// One rank's engine, opened and closed on its thread.
class Rank {
 public:
  Rank(int rank, int size, int per_host, Store& store, const char* timeout_s) : size_(size) {
    const std::string host = "host-" + std::to_string(rank / per_host);
    const std::vector<const char*> options = {
        "SMDP_HOST_ID",   host.c_str(), "SMDP_INTERFACE",           "127.0.0.1",
        "SMDP_ARENA_MIB", "32",         "SMDP_OPERATION_TIMEOUT_S", timeout_s,
        nullptr};
    smdp_engine_config config{};
    config.size = sizeof(config);
    config.rank = rank;
    config.world_size = size;
    config.master = "127.0.0.1";
    config.store = &store.adapter;
    config.options = options.data();
    smdp_error error{};
    EXPECT_EQ(smdp_engine_open(&config, &engine_, &error), SMDP_OK) << error.message;
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
  ~Rank() { smdp_engine_close(engine_); }

  std::shared_ptr<Lane> lane(Lane::Shape shape, const std::string& name = "lane") {
    smdp_error error{};
    auto group = std::make_unique<Group>(engine_, size_, name, &error);
    EXPECT_EQ(error.code, SMDP_OK) << error.message;
    return std::make_shared<Lane>(std::move(group), shape);
  }

 private:
  smdp_engine* engine_ = nullptr;
  int size_;
};

void on_ranks(int size, int per_host, const std::function<void(int, Rank&)>& body,
              const char* timeout_s = "1800") {
  Store store;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      Rank own(rank, size, per_host, store, timeout_s);
      body(rank, own);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

// A gradient's memory, and the result of its exchange.
struct Given {
  std::vector<float> input;
  std::vector<float> output;
  std::promise<smdp_error> promise;
  std::future<smdp_error> future = promise.get_future();

  explicit Given(std::size_t count) : input(count), output(count) {}
  Gradient gradient(uint64_t list = 0) {
    return {SMDP_FLOAT32,
            input.size(),
            input.data(),
            output.data(),
            [this](const smdp_error& error) { promise.set_value(error); },
            list};
  }
  bool ends_within(std::chrono::milliseconds time) {
    return future.wait_for(time) == std::future_status::ready;
  }
  smdp_error ended() {
    const bool is_over = ends_within(std::chrono::seconds(60));
    return is_over ? future.get() : failure(SMDP_INTERNAL, "the test's time was over");
  }
};

TEST(FusionPlan, PlacesEveryGradientOnceFromTheLastToTheFirst) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<FusionPlan::Size> sizes(1 + random() % 40);
    for (auto& size : sizes) {
      size = {random() % 3 == 0 ? SMDP_FLOAT16 : SMDP_FLOAT32, random() % 100};
    }
    const std::size_t most = 64 + random() % 400;
    const FusionPlan plan(sizes, most);
    std::vector<uint64_t> filled(plan.buffers().size());
    std::vector<uint32_t> parts(plan.buffers().size());
    std::map<smdp_dtype, uint32_t> last;
    for (auto index = static_cast<uint32_t>(sizes.size()); index-- > 0;) {
      const auto place = plan.place(index);
      EXPECT_EQ(plan.buffers()[place.buffer].dtype, sizes[index].dtype);
      EXPECT_EQ(place.offset, filled[place.buffer]) << "parts lie one after the other";
      EXPECT_GE(place.buffer, last[sizes[index].dtype]) << "what is there first is sent first";
      last[sizes[index].dtype] = place.buffer;
      filled[place.buffer] += sizes[index].count;
      ++parts[place.buffer];
    }
    for (std::size_t i = 0; i < filled.size(); ++i) {
      const auto& buffer = plan.buffers()[i];
      EXPECT_EQ(buffer.count, filled[i]);
      EXPECT_EQ(buffer.parts, parts[i]);
      EXPECT_TRUE(buffer.parts == 1 || buffer.count * size_of(buffer.dtype) <= most);
    }
  }
}

TEST(Lanes, RanksMaySubmitGradientsInDifferentOrders) {
  constexpr int kRanks = 4;
  constexpr uint32_t kGradients = 200;
  std::vector<uint64_t> digests(kRanks);
  on_ranks(kRanks, 2, [&](int rank, Rank& own) {
    const auto lane = own.lane({kGradients, SMDP_SUM, 16384, 30});
    std::mt19937 random(static_cast<unsigned>(rank) + 1);
    std::vector<uint32_t> order(kGradients);
    std::iota(order.begin(), order.end(), 0U);
    uint64_t digest = 14695981039346656037U;
    for (int step = 0; step < kSteps; ++step) {
      std::vector<Given> given;
      given.reserve(kGradients);
      const auto value = [&](int of, uint32_t index) {
        return static_cast<float>((of + 1) * static_cast<int>(index % 7 + 1) + step % 5) / 3;
      };
      for (uint32_t index = 0; index < kGradients; ++index) {
        given.emplace_back(1 + index * 37 % 1500);
        std::ranges::fill(given[index].input, value(rank, index));
      }
      std::ranges::shuffle(order, random);
      for (const uint32_t index : order) {
        lane->add(index, given[index].gradient());
      }
      for (uint32_t index = 0; index < kGradients; ++index) {
        ASSERT_EQ(given[index].ended().code, SMDP_OK);
        double sum = 0;
        for (int of = 0; of < kRanks; ++of) {
          sum += static_cast<double>(value(of, index));
        }
        const auto& output = given[index].output;
        ASSERT_NEAR(output.front(), sum, sum * 1e-6) << "step " << step << ", gradient " << index;
        ASSERT_EQ(std::ranges::count(output, output.front()), static_cast<std::ptrdiff_t>(output.size()));
        uint32_t bits = 0;
        std::memcpy(&bits, &output.front(), sizeof(bits));
        digest = (digest ^ bits) * 1099511628211U;
      }
    }
    digests[static_cast<std::size_t>(rank)] = digest;
    lane->close();
  });
  EXPECT_EQ(std::ranges::count(digests, digests.front()), kRanks) << "bit for bit the same on all ranks";
}

TEST(Lanes, StepsMayOverlapFromTheFirst) {
  on_ranks(2, 1, [](int rank, Rank& own) {
    const auto lane = own.lane({2, SMDP_SUM, 1024, 30});
    std::vector<Given> given;
    given.reserve(6);
    for (int i = 0; i < 6; ++i) {
      given.emplace_back(8);
      std::ranges::fill(given.back().input, static_cast<float>(i + rank));
    }
    for (const int i : {0, 1, 2, 3, 4, 5}) {  // three steps of the one, then three of the other
      lane->add(rank == 0 ? i / 3 : 1 - i / 3, given[static_cast<std::size_t>(i)].gradient());
    }
    for (int i = 0; i < 6; ++i) {
      EXPECT_EQ(given[static_cast<std::size_t>(i)].ended().code, SMDP_OK);
      // Rank 0's value belongs to this place in its own order; rank 1 submits the other gradient first.
      const int others = (i + 3) % 6 + (rank == 0 ? 1 : 0);
      EXPECT_EQ(given[static_cast<std::size_t>(i)].output[7], static_cast<float>(i + rank + others));
    }
    lane->close();
  });
}

TEST(Lanes, AGradientOfAnotherSizeIsNamed) {
  on_ranks(2, 2, [](int, Rank& own) {
    const auto lane = own.lane({2, SMDP_AVG, 1024, 30});
    Given first(3), second(4), third(5);
    lane->add(0, first.gradient());
    lane->add(1, second.gradient());
    EXPECT_EQ(first.ended().code, SMDP_OK);
    EXPECT_EQ(second.ended().code, SMDP_OK);
    lane->add(1, third.gradient());
    const smdp_error error = third.ended();
    EXPECT_EQ(error.code, SMDP_INVALID);
    EXPECT_STREQ(
        error.message,
        "gradient 1 of 2 had 4 elements of 4 bytes and has 5 of 4 bytes now: a list of gradients keeps its "
        "sizes and types");
    Given late(3);
    lane->add(0, late.gradient());
    EXPECT_EQ(late.ended().code, SMDP_INVALID) << "the first failure ends all that comes";
    lane->close();
  });
}

TEST(Lanes, ListsOfOtherSizesUseALaneOneAfterTheOther) {
  constexpr uint32_t kGradients = 7;
  on_ranks(2, 1, [](int rank, Rank& own) {
    const auto lane = own.lane({kGradients, SMDP_SUM, 256, 30});
    std::mt19937 random(static_cast<unsigned>(rank) + 1);
    std::vector<uint32_t> order(kGradients);
    std::iota(order.begin(), order.end(), 0U);
    for (const uint32_t model : {0, 0, 1, 0, 1, 2, 1, 2, 0, 2}) {
      // Each rank has several lists for a model, which are new in different steps.
      const uint64_t list = model + 3 * (random() % 4);
      std::vector<Given> given;
      given.reserve(kGradients);
      for (uint32_t index = 0; index < kGradients; ++index) {
        given.emplace_back((index * 11 + model * 5) % 40);
        std::ranges::fill(given[index].input, static_cast<float>(index + model + 1));
      }
      std::ranges::shuffle(order, random);
      for (const uint32_t index : order) {
        lane->add(index, given[index].gradient(list));
      }
      for (uint32_t index = 0; index < kGradients; ++index) {
        const smdp_error error = given[index].ended();
        ASSERT_EQ(error.code, SMDP_OK) << error.message;
        const auto& output = given[index].output;
        ASSERT_EQ(std::ranges::count(output, static_cast<float>(2 * (index + model + 1))),
                  static_cast<std::ptrdiff_t>(output.size()));
      }
    }
    lane->close();
  });
}

TEST(Lanes, AGradientMissingInANewListIsNamedAtTheDeadline) {
  on_ranks(1, 1, [](int, Rank& own) {
    const auto lane = own.lane({2, SMDP_AVG, 1024, 5});
    Given first(3), second(3), third(4);
    lane->add(0, first.gradient());
    lane->add(1, second.gradient());
    EXPECT_EQ(first.ended().code, SMDP_OK);
    EXPECT_EQ(second.ended().code, SMDP_OK);
    lane->add(0, third.gradient(1));
    lane->look(steady_clock::now() + std::chrono::seconds(4));
    lane->look(steady_clock::now() + std::chrono::seconds(6));
    const smdp_error error = third.ended();
    EXPECT_EQ(error.code, SMDP_TIMEOUT);
    EXPECT_STREQ(error.message, "step 1 of 2 gradients waited 5 s for some that this rank did not give: 1");
    lane->close();
  });
}

TEST(Lanes, AStepWithGradientsOfTwoListsIsRefused) {
  on_ranks(1, 1, [](int, Rank& own) {
    const auto lane = own.lane({2, SMDP_AVG, 1024, 5});
    std::vector<Given> given;
    given.reserve(7);
    const auto add = [&](uint32_t index, std::size_t count, uint64_t list) {
      given.emplace_back(count);
      lane->add(index, given.back().gradient(list));
    };
    for (const uint32_t index : {0, 1}) {
      add(index, 300, 0);
    }
    for (const uint32_t index : {0, 1}) {
      add(index, 3, 1);
    }
    for (Given& one : given) {
      EXPECT_EQ(one.ended().code, SMDP_OK);
    }
    add(0, 3, 1);    // without gradient 1
    add(0, 300, 0);  // step 3
    add(1, 300, 0);  // step 2, which has gradient 0 of the smaller list
    for (const std::size_t place : {4U, 5U, 6U}) {
      const smdp_error error = given[place].ended();
      EXPECT_EQ(error.code, SMDP_INVALID);
      EXPECT_TRUE(std::string(error.message).starts_with("step 2 of 2 gradients has gradients of two lists"))
          << error.message;
    }
    lane->close();
  });
}

TEST(Lanes, AMissingGradientIsNamedAtTheDeadline) {
  on_ranks(1, 1, [](int, Rank& own) {
    const auto lane = own.lane({3, SMDP_AVG, 1024, 5});
    std::vector<Given> given;
    given.reserve(5);
    for (const uint32_t index : {0, 1, 2, 0, 2}) {
      given.emplace_back(3);
      lane->add(index, given.back().gradient());
    }
    lane->look(steady_clock::now() + std::chrono::seconds(4));
    lane->look(steady_clock::now() + std::chrono::seconds(6));
    const smdp_error error = given[3].ended();
    EXPECT_EQ(error.code, SMDP_TIMEOUT);
    EXPECT_STREQ(error.message, "step 1 of 3 gradients waited 5 s for some that this rank did not give: 1");
    EXPECT_EQ(given[4].ended().code, SMDP_TIMEOUT);
    for (const std::size_t place : {0U, 1U, 2U}) {
      EXPECT_EQ(given[place].ended().code, SMDP_OK);
    }
    lane->close();
  });
}

TEST(Lanes, AGradientMissingInTheFirstStepIsNamedAtTheDeadlineOfTheNextStep) {
  on_ranks(1, 1, [](int, Rank& own) {
    const auto lane = own.lane({3, SMDP_AVG, 1024, 5});
    Given second(3), third(3), again(3);
    lane->add(1, second.gradient());
    lane->add(2, third.gradient());
    lane->add(2, again.gradient());  // cannot be placed: the size of gradient 0 is not known
    EXPECT_EQ(second.ended().code, SMDP_OK);
    EXPECT_EQ(third.ended().code, SMDP_OK);
    lane->look(steady_clock::now() + std::chrono::seconds(4));
    lane->look(steady_clock::now() + std::chrono::seconds(6));
    const smdp_error error = again.ended();
    EXPECT_EQ(error.code, SMDP_TIMEOUT);
    EXPECT_STREQ(error.message, "step 0 of 3 gradients waited 5 s for some that this rank did not give: 0");
    lane->close();
  });
}

TEST(Lanes, AGradientThatOtherRanksWaitForInTheFirstStepIsNamed) {
  on_ranks(
      2, 1,
      [](int rank, Rank& own) {
        const auto lane = own.lane({3, SMDP_AVG, 1024, 2});
        Given first(3), second(3), third(3);
        lane->add(0, first.gradient());
        if (rank == 0) {
          lane->add(1, second.gradient());
        }
        lane->add(2, third.gradient());
        EXPECT_EQ(third.ended().code, SMDP_OK);
        if (rank == 1) {
          // The rest is the engine's message, and depends on which rank's deadline passed first.
          const smdp_error error = first.ended();
          const std::string why = error.message;
          EXPECT_EQ(error.code, SMDP_TIMEOUT);
          EXPECT_TRUE(
              why.starts_with("step 0 of 3 gradients waited 2 s for some that this rank did not give: 1; "))
              << why;
          EXPECT_NE(why.find(" deadline passed "), std::string::npos) << why;
        } else {
          EXPECT_NE(first.ended().code, SMDP_OK);
          EXPECT_NE(second.ended().code, SMDP_OK);
        }
        lane->close();
      },
      "2");
}

TEST(Lanes, ATensorThatALateRankDidNotGiveIsNotBlamedOnThisRank) {
  std::promise<void> over;
  on_ranks(
      2, 1,
      [&](int rank, Rank& own) {
        const auto lane = own.lane({1, SMDP_AVG, 1024, 2});
        if (rank == 0) {
          Given only(3);
          lane->add(0, only.gradient());
          const smdp_error error = only.ended();
          const std::string why = error.message;
          EXPECT_EQ(error.code, SMDP_TIMEOUT);
          EXPECT_EQ(why.find("did not give"), std::string::npos) << why;
          EXPECT_NE(why.find("rank 1"), std::string::npos) << why;
          over.set_value();
        } else {
          over.get_future().wait();
        }
        lane->close();
      },
      "2");
}

TEST(Lanes, AFailureOnOneRankIsReportedOnTheOthers) {
  on_ranks(2, 1, [](int rank, Rank& own) {
    const auto lane = own.lane({2, SMDP_AVG, 1024, 30});
    Given first(3), second(3), third(3), fourth(3);
    lane->add(0, first.gradient());
    lane->add(1, second.gradient());
    EXPECT_EQ(first.ended().code, SMDP_OK);
    EXPECT_EQ(second.ended().code, SMDP_OK);
    lane->add(0, third.gradient());
    if (rank == 0) {
      lane->fail(failure(SMDP_CLOSED, "given up"));
      EXPECT_STREQ(third.ended().message, "given up");
    } else {
      lane->add(1, fourth.gradient());
      EXPECT_EQ(third.ended().code, SMDP_PEER_LOST);
      EXPECT_EQ(fourth.ended().code, SMDP_PEER_LOST);
    }
    lane->close();
  });
}

TEST(Lanes, AnErrorWaitsForTheComparisonOfTheLists) {
  on_ranks(2, 1, [](int rank, Rank& own) {
    const auto lane = own.lane({2, SMDP_AVG, 1024, 30});
    const smdp_error difference = failure(SMDP_MISMATCH, "the lists differ");
    lane->await_comparison();
    if (rank == 0) {
      lane->compared(difference);
    } else {
      Given first(3), second(3);
      lane->add(0, first.gradient());
      lane->add(1, second.gradient());
      // Rank 0 has left, which fails the exchanges, but the comparison is not finished here.
      EXPECT_FALSE(first.ends_within(std::chrono::milliseconds(300)));
      lane->compared(difference);
      EXPECT_STREQ(first.ended().message, "the lists differ");
      EXPECT_STREQ(second.ended().message, "the lists differ");
    }
    lane->close();
  });
}

TEST(Lanes, ErrorsThatWaitedAreReportedWhenTheListsAreEqual) {
  on_ranks(2, 1, [](int rank, Rank& own) {
    const auto lane = own.lane({2, SMDP_AVG, 1024, 30});
    lane->await_comparison();
    if (rank == 0) {
      lane->fail(failure(SMDP_CLOSED, "given up"));
    } else {
      Given first(3), second(3);
      lane->add(0, first.gradient());
      lane->add(1, second.gradient());
      EXPECT_FALSE(first.ends_within(std::chrono::milliseconds(300)));
      lane->compared({});
      EXPECT_EQ(first.ended().code, SMDP_PEER_LOST);
      EXPECT_EQ(second.ended().code, SMDP_PEER_LOST);
    }
    lane->close();
  });
}

TEST(Lanes, ALaneThatEndsDoesNotWaitForTheComparison) {
  on_ranks(2, 1, [](int rank, Rank& own) {
    const auto lane = own.lane({2, SMDP_AVG, 1024, 30});
    lane->await_comparison();
    if (rank == 1) {
      Given first(3), second(3);
      lane->add(0, first.gradient());
      lane->add(1, second.gradient());
      lane->fail(failure(SMDP_CLOSED, "given up"));
      EXPECT_STREQ(first.ended().message, "given up");
      EXPECT_STREQ(second.ended().message, "given up");
    }
    lane->close();
  });
}

TEST(Lanes, SingleTensorsMayChangeTheirSize) {
  on_ranks(2, 1, [](int, Rank& own) {
    const auto lane = own.lane({1, SMDP_SUM, 1024, 30});
    for (const std::size_t count : {5, 9, 0, 2}) {
      Given given(count);
      std::ranges::fill(given.input, 2.F);
      lane->add(0, given.gradient());
      EXPECT_EQ(given.ended().code, SMDP_OK);
      EXPECT_EQ(std::ranges::count(given.output, 4.F), static_cast<std::ptrdiff_t>(count));
    }
    lane->close();
  });
}

}  // namespace
}  // namespace smdp_tensorflow
