// Values in the registered part of a rank's shared memory: the other ranks of the host read them in place.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <future>

#include "cluster.h"

namespace smdp::testing {
namespace {

struct Memory {
  std::span<std::byte> input;
  std::span<std::byte> output;
};

class RegisteredMemory : public ::testing::TestWithParam<std::vector<int>> {
 protected:
  void open(std::vector<int> hosts, std::map<std::string, std::string> options = {}) {
    cluster_ =
        std::make_unique<Cluster>(ClusterOptions{.hosts = std::move(hosts), .options = std::move(options)});
    ASSERT_TRUE(cluster_->ok());
    members_ = everybody(*cluster_);
    group_ = cluster_->group(members_, "registered");
  }

  // The call's memory in the registered part: the input, and after it the output.
  Memory memory_of(int rank, std::size_t in, std::size_t out) {
    const auto all = cluster_->engine(rank).registered_memory();
    EXPECT_TRUE(all.ok());
    return {all->first(in), all->subspan((in + 63) / 64 * 64, out)};
  }

  std::shared_ptr<OperationHandle> start(int rank, const Descriptor& what, const Memory& memory) {
    Call call;
    call.what = what;
    call.input = memory.input;
    call.output = memory.output;
    call.timeout_s = 20;
    call.handle = std::make_shared<OperationHandle>(nullptr);
    const auto handle = call.handle;
    EXPECT_TRUE(cluster_->engine(rank).submit(group_, cluster_->size(), rank, std::move(call)).ok());
    return handle;
  }

  std::uint64_t regions_of(int rank) {
    std::promise<std::uint64_t> answer;
    cluster_->engine(rank).executor().post([&] { answer.set_value(cluster_->engine(rank).usage().regions); });
    return answer.get_future().get();
  }

  void check(Collective collective, std::uint64_t count, bool in_place);

  std::unique_ptr<Cluster> cluster_;
  std::vector<int> members_;
  std::uint64_t group_ = 0;
};

void RegisteredMemory::check(Collective collective, std::uint64_t count, bool in_place) {
  const auto size = static_cast<std::size_t>(cluster_->size());
  const bool scatters = collective == Collective::kReduceScatter;
  const std::uint64_t elements = scatters ? count * size : count;
  Descriptor what;
  what.collective = collective;
  what.dtype = DType::kFloat32;
  what.count = count;
  what.root = collective == Collective::kReduce ? static_cast<std::uint32_t>(size - 1) : 0;
  std::vector<Buffer> inputs;
  std::vector<Memory> memories;
  std::vector<std::shared_ptr<OperationHandle>> handles;
  for (std::size_t rank = 0; rank < size; ++rank) {
    inputs.push_back(random_buffer(what.dtype, elements, static_cast<std::uint32_t>(rank + count)));
    Memory memory = memory_of(static_cast<int>(rank), elements * 4, count * 4);
    std::ranges::copy(inputs.back(), memory.input.begin());
    if (in_place) {
      memory.output = memory.input.subspan(scatters ? rank * count * 4 : 0, count * 4);
    }
    memories.push_back(memory);
  }
  for (std::size_t rank = 0; rank < size; ++rank) {
    const bool gets_none = collective == Collective::kReduce && rank != what.root;
    handles.push_back(
        start(static_cast<int>(rank), what,
              {memories[rank].input, gets_none ? std::span<std::byte>() : memories[rank].output}));
  }
  const Buffer expected = reference_reduce(what.dtype, what.op, by_host(*cluster_, members_, inputs));
  for (std::size_t rank = 0; rank < size; ++rank) {
    ASSERT_TRUE(handles[rank]->wait(std::chrono::seconds(60)).ok()) << handles[rank]->status().message();
    if (collective != Collective::kReduce || rank == what.root) {
      const std::byte* const wanted = expected.data() + (scatters ? rank * count * 4 : 0);
      EXPECT_EQ(std::memcmp(memories[rank].output.data(), wanted, count * 4), 0)
          << "rank " << rank << ", " << count << " elements";
    }
  }
}

TEST_P(RegisteredMemory, SumsAreThoseOfOtherMemory) {
  open(GetParam());
  for (const auto collective : {Collective::kAllReduce, Collective::kReduce, Collective::kReduceScatter}) {
    for (const std::uint64_t count : {1U, 1000U, 500'000U}) {
      check(collective, count, false);
      if (collective != Collective::kReduce) {
        check(collective, count, true);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, RegisteredMemory,
                         ::testing::Values(std::vector{4}, std::vector{2, 2}, std::vector{3, 1},
                                           std::vector{1, 1}));

// The rank that reads is blocked.
TEST_F(RegisteredMemory, IsInUseUntilItIsReadAndIsNotCopied) {
  open({2});
  constexpr std::uint64_t kCount = 1000;
  Descriptor what;
  what.collective = Collective::kReduce;
  what.dtype = DType::kFloat32;
  what.count = kCount;
  for (std::uint32_t root = 0; root < 2; ++root) {  // one of the two is the agent of the only piece
    what.root = root;
    std::vector<Buffer> inputs;
    std::vector<Memory> memories;
    for (int rank = 0; rank < 2; ++rank) {
      inputs.push_back(random_buffer(what.dtype, kCount, root * 2 + static_cast<std::uint32_t>(rank)));
      memories.push_back(memory_of(rank, kCount * 4, kCount * 4));
      std::ranges::copy(inputs.back(), memories.back().input.begin());
    }
    const int reader = static_cast<int>(root);
    const int other = 1 - reader;
    std::promise<void> release;
    std::promise<void> blocked;
    cluster_->engine(reader).executor().post([&, gate = release.get_future().share()] {
      blocked.set_value();
      gate.wait();
    });
    blocked.get_future().wait();
    const auto lent = start(other, what, {memories[static_cast<std::size_t>(other)].input, {}});
    EXPECT_EQ(regions_of(other), 0U) << "it took a region for a copy";
    // A call that is complete too early would let the caller overwrite values that no other rank has read.
    EXPECT_EQ(lent->wait(std::chrono::milliseconds(200)).code(), Code::kTimeout);
    release.set_value();
    const auto summed = start(reader, what, memories[static_cast<std::size_t>(reader)]);
    ASSERT_TRUE(lent->wait(std::chrono::seconds(60)).ok());
    std::ranges::fill(memories[static_cast<std::size_t>(other)].input, std::byte{0x7F});
    ASSERT_TRUE(summed->wait(std::chrono::seconds(60)).ok());
    const Buffer expected = reference_reduce(what.dtype, what.op, by_host(*cluster_, members_, inputs));
    EXPECT_EQ(std::memcmp(memories[root].output.data(), expected.data(), expected.size()), 0);
  }
}

TEST_F(RegisteredMemory, IsTheSameAtEveryCallAndAtMostHalfOfTheArena) {
  open({1, 1}, {{"SMDP_ARENA_MIB", "16"}, {"SMDP_REGISTERED_MIB", "64"}});
  const auto first = cluster_->engine(0).registered_memory();
  const auto second = cluster_->engine(0).registered_memory();
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->size(), 8U << 20U);
  EXPECT_EQ(first->data(), second->data());
  EXPECT_EQ(regions_of(0), 0U) << "it counts as memory of a call";
  cluster_->close();
  EXPECT_EQ(cluster_->engine(0).registered_memory().status().code(), Code::kClosed);
}

TEST_F(RegisteredMemory, IsEmptyWhereTheOptionIs0) {
  open({1}, {{"SMDP_REGISTERED_MIB", "0"}});
  const auto none = cluster_->engine(0).registered_memory();
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->empty());
}

}  // namespace
}  // namespace smdp::testing
