// The order in which the ranks of a host begin the steps of calls that sum within the host first. The ranks
// are threads of this process.
#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "../../adapters/common/step_order.h"

namespace smdp_adapters {
namespace {

constexpr std::chrono::seconds kLongest{60};

struct StepOfCall {
  Step step;
  int call;
  bool operator==(const StepOfCall& other) const { return step == other.step && call == other.call; }
};

// What the ranks of one host have in common.
class Host {
 public:
  explicit Host(int ranks) : calls_(ranks) {}

  std::unique_ptr<StepOrder> order_of(int rank) {
    return std::make_unique<StepOrder>(
        rank == 0, [this] { calls_.arrive_and_wait(); },
        [this, rank, read = std::size_t{0}](std::uint8_t value) mutable {
          return rank == 0 ? send(value) : receive(read++);
        });
  }
  // The ranks that receive the next step get this error.
  void fail() {
    const std::lock_guard lock(mutex_);
    failed_ = true;
    changed_.notify_all();
  }

 private:
  std::uint8_t send(std::uint8_t value) {
    const std::lock_guard lock(mutex_);
    sent_.push_back(value);
    changed_.notify_all();
    return value;
  }
  std::uint8_t receive(std::size_t index) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return failed_ || sent_.size() > index; });
    if (sent_.size() <= index) {
      throw std::runtime_error("rank 0 is lost");
    }
    return sent_[index];
  }

  std::barrier<> calls_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::uint8_t> sent_;
  bool failed_ = false;
};

// The first and the last steps of a rank, on a thread each; the times between them are random.
std::vector<StepOfCall> steps_of(StepOrder& order, int rank, int calls) {
  std::vector<StepOfCall> begun;
  std::vector<std::promise<void>> exchanged(static_cast<std::size_t>(calls));
  const auto pause = [](std::mt19937& random) {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
  };
  std::thread last([&] {
    std::mt19937 random(static_cast<unsigned>(1000 + rank));
    for (int call = 0; call < calls; ++call) {
      exchanged[static_cast<std::size_t>(call)].get_future().wait();
      pause(random);
      order.run(Step::kGather, [&] { begun.push_back({Step::kGather, call}); });
    }
  });
  std::mt19937 random(static_cast<unsigned>(rank));
  for (int call = 0; call < calls; ++call) {
    pause(random);
    order.run(Step::kScatter, [&] { begun.push_back({Step::kScatter, call}); });
    exchanged[static_cast<std::size_t>(call)].set_value();
  }
  last.join();
  return begun;
}

TEST(StepOrder, AllRanksOfAHostBeginTheStepsInTheSameOrder) {
  constexpr int kRanks = 4;
  constexpr int kCalls = 200;
  Host host(kRanks);
  std::vector<std::unique_ptr<StepOrder>> orders;
  std::vector<std::future<std::vector<StepOfCall>>> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    orders.push_back(host.order_of(rank));
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.push_back(std::async(std::launch::async, [&orders, rank] {
      return steps_of(*orders[static_cast<std::size_t>(rank)], rank, kCalls);
    }));
  }
  const std::vector<StepOfCall> first = ranks[0].get();
  EXPECT_EQ(first.size(), 2U * kCalls);
  for (int rank = 1; rank < kRanks; ++rank) {
    EXPECT_EQ(ranks[static_cast<std::size_t>(rank)].get(), first) << "rank " << rank;
  }
}

TEST(StepOrder, ARankMayWaitForACallBeforeItMakesTheNextOne) {
  Host host(2);
  const auto decides = host.order_of(0);
  const auto follows = host.order_of(1);
  const auto nothing = [] {};
  auto first = std::async(std::launch::async, [&] {
    decides->run(Step::kScatter, nothing);
    auto second = std::async(std::launch::async, [&] { decides->run(Step::kScatter, nothing); });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // in which a second call could come first
    decides->run(Step::kGather, nothing);
    second.get();
  });
  auto other = std::async(std::launch::async, [&] {
    follows->run(Step::kScatter, nothing);
    follows->run(Step::kGather, nothing);
    follows->run(Step::kScatter, nothing);
  });
  const auto found = other.wait_for(kLongest);
  follows->end("the test is over");  // so that it ends if the rank still waits
  EXPECT_EQ(found, std::future_status::ready);
}

TEST(StepOrder, AFailedStepPassesItsTurnOn) {
  Host host(1);  // the other rank is not needed: a last step waits for no call
  const auto decides = host.order_of(0);
  const auto follows = host.order_of(1);
  decides->run(Step::kGather, [] {});
  decides->run(Step::kGather, [] {});
  EXPECT_THROW(follows->run(Step::kGather, [] { throw std::runtime_error("out of memory"); }),
               std::runtime_error);
  EXPECT_EQ(follows->run(Step::kGather, [] { return 7; }), 7);
}

TEST(StepOrder, EndedOrderFailsTheStepsThatWaitAndThoseThatFollow) {
  Host host(1);
  const auto decides = host.order_of(0);
  const auto follows = host.order_of(1);
  decides->run(Step::kScatter, [] {});  // whose turn the other rank does not take
  auto waits = std::async(std::launch::async, [&] { follows->run(Step::kGather, [] {}); });
  EXPECT_EQ(waits.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  follows->end("the call before failed");
  ASSERT_EQ(waits.wait_for(kLongest), std::future_status::ready);
  EXPECT_THROW(waits.get(), std::runtime_error);
  for (const auto& order : {&decides, &follows}) {
    (*order)->end("the call before failed");
    EXPECT_THROW((*order)->run(Step::kGather, [] {}), std::runtime_error);
  }
}

TEST(StepOrder, LostRankFailsTheStepsOfBothThreads) {
  Host host(1);
  const auto follows = host.order_of(1);
  std::vector<std::future<void>> waiting;
  for (const Step step : {Step::kGather, Step::kScatter}) {
    waiting.push_back(std::async(std::launch::async, [&, step] { follows->run(step, [] {}); }));
  }
  host.fail();
  for (std::future<void>& one : waiting) {
    ASSERT_EQ(one.wait_for(kLongest), std::future_status::ready);
    EXPECT_THROW(one.get(), std::runtime_error);
  }
}

}  // namespace
}  // namespace smdp_adapters
