// Values in the registered part of a rank's shared memory: the other ranks of the host read them in place.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <future>

#include "cluster.h"
#include "net/loop.h"
#include "shm/shm_reducer.h"

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

// Final bytes that arrived in shared memory: one host's part of a broadcast, on the first of its two ranks.
class ReceivedBytes : public ::testing::Test, public LocalJob::Events {
 protected:
  static constexpr std::size_t kBytes = 4096;
  static constexpr std::uint32_t kPiece = 0;

  ReceivedBytes() {
    buffer_ = std::make_shared<int>();
    spec_.call = {Collective::kBroadcast, DType::kUInt8, ReduceOp::kSum, 0, kBytes};
    layout_ = make_group_layout({0, 1, 1});
    plan_ = make_plan(spec_.call, layout_, {}, 1);
    spec_.plan = &plan_;
    spec_.layout = &layout_;
    spec_.rank = 1;
    spec_.output = output_;
    spec_.kernels = &kernels_;
    spec_.offload = &offload_;
    std::ranges::fill(received(), std::byte{0x5A});
  }

  std::span<std::byte> received() { return arena_.for_receiving().first(kBytes); }
  bool is_lent() const { return buffer_.use_count() > 1; }
  std::unique_ptr<ShmJob> job() {
    return std::make_unique<ShmJob>(
        spec_, regions_, [this](int, const FrameHeader& header) { offers_.push_back(header); },
        [](int, std::uint64_t, std::uint64_t) { return std::span<const std::byte>(); }, *this);
  }

  void contributed(std::uint32_t) override {}
  void summed(std::uint32_t, std::span<const std::byte>) override {}
  void handed_over(std::uint32_t) override {}
  void delivered(std::uint32_t) override { ++delivered_; }
  void taken(std::uint32_t) override { ++taken_; }

  Arena arena_ = std::move(*Arena::create(1U << 20U, 2 * kBytes));
  std::shared_ptr<RegionTable> regions_ = std::make_shared<RegionTable>(arena_);
  std::shared_ptr<int> buffer_;  // its owners are those of the receive buffer
  GroupLayout layout_;
  Plan plan_;
  KernelSet kernels_ = kernels(Isa::kPortable);
  Loop executor_;  // without copy threads: all work is done at once
  Offload offload_{executor_, {}, [](const Offload::Task& done) { done(); }};
  LocalSpec spec_;
  std::vector<std::byte> output_ = std::vector<std::byte>(kBytes);
  std::vector<FrameHeader> offers_;
  int delivered_ = 0;
  int taken_ = 0;
};

TEST_F(ReceivedBytes, AreOfferedWhereTheyAreAndKeptUntilAllRanksHaveThem) {
  const auto job = this->job();
  ASSERT_TRUE(job->adopt(kPiece, received(), buffer_));
  job->deliver(kPiece);
  EXPECT_EQ(arena_.regions_in_use(), 1U) << "it took a region for a copy";
  EXPECT_EQ(output_, std::vector<std::byte>(kBytes, std::byte{0x5A}));
  ASSERT_EQ(offers_.size(), 1U);
  EXPECT_EQ(offers_[0].offset, arena_.for_regions().size());
  EXPECT_EQ(delivered_, 1);
  EXPECT_EQ(taken_, 0);
  EXPECT_TRUE(is_lent());
  FrameHeader reply = offers_[0];
  reply.type = FrameType::kTaken;
  regions_->release(reply.offset);  // as the engine does
  EXPECT_FALSE(is_lent());
  EXPECT_EQ(arena_.regions_in_use(), 0U);
  EXPECT_TRUE(job->on_frame(1, reply));
  EXPECT_EQ(taken_, 1);
}

TEST_F(ReceivedBytes, ReplaceTheRegionOfTheSum) {
  const auto job = this->job();
  const auto sum = job->result(kPiece);
  ASSERT_FALSE(sum.empty());
  auto sending = job->keep(kPiece);
  ASSERT_TRUE(job->adopt(kPiece, received(), buffer_));
  EXPECT_EQ(job->result(kPiece).data(), received().data());
  EXPECT_EQ(arena_.regions_in_use(), 2U) << "the sum was freed while it is sent";
  sending.reset();
  EXPECT_EQ(arena_.regions_in_use(), 1U);
  EXPECT_EQ(regions_->at(*arena_.allocate(kBytes), kBytes).data(), sum.data()) << "the sum was not freed";
}

TEST_F(ReceivedBytes, EndTheWaitForMemory) {
  const auto job = this->job();
  const auto all = arena_.allocate((1U << 20U) - 4096);
  ASSERT_TRUE(all);
  EXPECT_EQ(job->result(kPiece).data(), nullptr);
  EXPECT_TRUE(job->starved_since());
  ASSERT_TRUE(job->adopt(kPiece, received(), buffer_));
  EXPECT_FALSE(job->starved_since());
}

TEST_F(ReceivedBytes, AreReturnedIfTheCallEndsBeforeTheyAreOffered) {
  auto job = this->job();
  ASSERT_TRUE(job->adopt(kPiece, received(), buffer_));
  EXPECT_TRUE(is_lent());
  job.reset();
  EXPECT_FALSE(is_lent());
}

TEST_F(ReceivedBytes, OfAFailedGroupAreKeptUntilNoRankReadsThem) {
  auto job = this->job();
  ASSERT_TRUE(job->adopt(kPiece, received(), buffer_));
  job->deliver(kPiece);
  job.reset();
  EXPECT_TRUE(is_lent());
  regions_->clear();
  EXPECT_FALSE(is_lent());
}

TEST_F(ReceivedBytes, OutsideSharedMemoryAreNotAdopted) {
  const auto job = this->job();
  const std::vector<std::byte> elsewhere(kBytes);
  EXPECT_FALSE(job->adopt(kPiece, elsewhere, buffer_));
  EXPECT_FALSE(is_lent());
  layout_ = make_group_layout({0, 1});  // a rank that is alone has no rank to offer them to
  plan_ = make_plan(spec_.call, layout_, {}, 1);
  EXPECT_FALSE(this->job()->adopt(kPiece, received(), buffer_));
}

}  // namespace
}  // namespace smdp::testing
