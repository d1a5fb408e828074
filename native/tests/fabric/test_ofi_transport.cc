// The transport over a fabric alone: its TCP connections are recorded calls, and its peer is a port of the
// strict provider, one for each rail, that sends what the test wants.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <thread>

#include "net/fabric/choice.h"
#include "strict.h"
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

namespace smdp {
namespace {

constexpr int kSelf = 0;
constexpr int kPeer = 1;
constexpr std::size_t kPayload = 64U << 10U;
constexpr std::uint64_t kGroup = 77;

// What is posted to the TCP connections.
class Recorded final : public Transport {
 public:
  void start(Events& events) override { events_ = &events; }
  void post(int, Message message) override {
    posted.push_back(message.header);
    Reader slots(message.payload);
    for (std::size_t i = 0; message.header.type == FrameType::kFabricCredit && i < message.payload.size() / 4;
         ++i) {
      credited[message.header.piece].push_back(slots.get<std::uint32_t>());
    }
  }
  void cancel(std::uint64_t, std::uint64_t) override {}
  void finish() override { finished = true; }
  [[nodiscard]] Events& events() const { return *events_; }

  std::vector<FrameHeader> posted;
  std::map<std::uint32_t, std::vector<std::uint32_t>> credited;  // by rail: slots
  bool finished = false;

 private:
  Events* events_ = nullptr;
};

// What the engine hears.
class Heard final : public Transport::Events {
 public:
  std::optional<Landing> place(int, const FrameHeader& header) override {
    if (header.type == FrameType::kPublish && !result.empty()) {
      Landing landing = Landing::into(result.data());
      landing.may_stay = true;
      return landing;
    }
    return header.type == FrameType::kSend ? std::nullopt : std::optional(Landing::fresh(header.payload));
  }
  void arrived(int, const FrameHeader& header, Landing landing) override {
    frames.push_back(header);
    landings.push_back(std::move(landing));
  }
  void lost(int, bool orderly, Status why) override { losses.emplace_back(orderly, why.message()); }
  void released(std::uint64_t group) override { released_groups.push_back(group); }

  std::span<std::byte> result;  // where the payloads of kPublish go, if they do not stay where they are
  std::vector<FrameHeader> frames;
  std::vector<Landing> landings;
  std::vector<std::pair<bool, std::string>> losses;
  std::vector<std::uint64_t> released_groups;
};

class FakePeer final : public FabricPort::Events {
 public:
  void received(std::uint32_t, const std::optional<FrameHeader>& header, std::span<std::byte> payload,
                std::size_t buffer) override {
    if (!payload.empty()) {
      ++contents[payload.front() == payload.back() ? std::to_integer<int>(payload.front()) : -1];
    }
    port->give_back(buffer, kSelf);
    frames.push_back(header.value_or(FrameHeader{}));
  }
  void sent(std::size_t, const Status& why) override {
    ++sends;
    EXPECT_TRUE(why.ok()) << why.message();
  }
  void reposted(int, std::size_t buffer) override {
    ++reposts;
    taken.push_back(static_cast<std::uint32_t>(buffer));
  }

  std::unique_ptr<FabricPort> port;
  std::vector<FrameHeader> frames;
  std::map<int, std::size_t> contents;  // frames by their bytes; -1: the bytes differ
  std::vector<std::uint32_t> taken;     // slots that may be written to again
  std::size_t sends = 0;
  std::uint64_t reposts = 0;
  FabricPort::Target target;         // of the transport
  std::vector<std::uint32_t> slots;  // of the transport, that the peer may write to
  std::uint64_t credits = 0;         // that the peer has sent
};

std::unique_ptr<FabricPort> open_port(int writer, const std::string& provider, std::size_t rail,
                                      std::span<std::byte> shared = {}) {
  const auto library = FabricLibrary::open(SMDP_STRICT_PROVIDER);
  FabricPort::Wanted wanted;
  wanted.provider = provider;
  wanted.payload_bytes = kPayload;
  wanted.shared = shared;
  const auto devices = FabricPort::devices(*library, wanted);
  EXPECT_TRUE(devices.ok()) << devices.status().message();
  wanted.device = (*devices)[rail % devices->size()];
  if (writer >= 0) {
    wanted.writers = {writer};
  }
  auto port = FabricPort::open(*library, wanted);
  EXPECT_TRUE(port.ok()) << port.status().message();
  return std::move(*port);
}

std::vector<std::uint32_t> first_slots(const FabricPort& port) {
  std::vector<std::uint32_t> slots(port.window());
  std::iota(slots.begin(), slots.end(), 0U);
  return slots;
}

enum class Way : std::uint8_t { kMessages, kWrites, kTwoWrites };  // for a frame, as EFA's provider needs

class OverFabric : public ::testing::TestWithParam<Way> {
 protected:
  explicit OverFabric(std::string provider = "", std::size_t rails = 1)
      : provider_(std::move(provider)), rails_(rails) {
    if (GetParam() == Way::kTwoWrites) {
      efa_.emplace(StrictVariables{{"STRICT_NAME", "efa"}, {"STRICT_EFA_WRITES", "1"}});
    }
  }
  static bool is_written() { return GetParam() != Way::kMessages; }

  void SetUp() override {
    FabricConnections connections;
    for (FakePeer& peer : rails_) {
      const std::size_t rail = connections.rails.size();
      peer.port = open_port(is_written() ? kSelf : -1, provider_, rail);
      connections.rails.push_back(open_port(is_written() ? kPeer : -1, provider_, rail, shared_));
      FabricPort& port = *connections.rails.back();
      ASSERT_EQ(port.writes(), is_written());
      const auto place = port.endpoint().insert(*peer.port->endpoint().address());
      peer.target = {*peer.port->endpoint().insert(*port.endpoint().address()), port.slots(), 0};
      peer.slots = first_slots(port);
      connections.peers[kPeer].push_back(
          {{*place, peer.port->slots(), 0}, peer.port->window(), first_slots(*peer.port)});
    }
    auto stream = std::make_unique<Recorded>();
    stream_ = stream.get();
    transport_ = std::make_unique<OfiTransport>(loop_, kSelf, 0.2, std::move(stream), std::move(connections),
                                                [](LogLevel, const std::string&) {});
    transport_->start(heard_);
  }

  // Progress on both sides for so many calls.
  void poll(int times = 300) {
    for (int i = 0; i < times; ++i) {
      transport_->poll();
      for (FakePeer& peer : rails_) {
        ASSERT_TRUE(peer.port == nullptr || peer.port->poll(peer).ok());
      }
    }
  }
  void poll_for(double limit_s) {
    const TimePoint by = after(limit_s);
    while (Clock::now() < by) {
      poll(1);
      transport_->tick();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  static FrameHeader bulk(FrameType type, int sender, std::uint64_t bytes) {
    FrameHeader header;
    header.type = type;
    header.call = {Collective::kAllReduce, DType::kFloat32, ReduceOp::kSum, 0, 1U << 20U};
    header.group = kGroup;
    header.sender = static_cast<std::uint32_t>(sender);
    header.bytes = header.payload = bytes;
    return header;
  }
  void peer_sends(const FrameHeader& header, std::size_t bytes, std::uint32_t rail = 0) {
    FakePeer& peer = rails_[rail];
    const std::vector<std::byte> memory(bytes);
    const auto staged = peer.port->stage(memory);
    ASSERT_TRUE(staged);
    for (const std::uint32_t slot : std::exchange(stream_->credited[rail], {})) {
      peer.slots.push_back(slot);
    }
    ASSERT_FALSE(peer.slots.empty());
    peer.target.slot = peer.slots.back();
    if (is_written()) {
      peer.slots.pop_back();
    }
    while (!(*peer.port->send(peer.target, header, {staged->bytes.get(), bytes}, staged->descriptor))
                .has_value()) {
    }
    poll();
  }
  void from_stream(FrameType type, std::uint64_t offset, std::uint32_t rail = 0) {
    FakePeer& peer = rails_[rail];
    FrameHeader header;
    header.type = type;
    header.sender = kPeer;
    header.piece = rail;
    header.offset = offset;
    const std::uint64_t frames = offset - std::exchange(peer.credits, offset);
    const bool names_slots = is_written() && type == FrameType::kFabricCredit;
    header.payload = names_slots ? frames * sizeof(std::uint32_t) : 0;
    auto landing = stream_->events().place(kPeer, header);
    ASSERT_TRUE(landing);
    for (std::uint64_t i = 0; names_slots && i < frames; ++i) {
      const std::uint32_t slot = peer.taken.empty() ? 0 : peer.taken.back();
      if (!peer.taken.empty()) {
        peer.taken.pop_back();
      }
      std::memcpy(landing->data + i * sizeof(slot), &slot, sizeof(slot));
    }
    stream_->events().arrived(kPeer, header, std::move(*landing));
  }
  void post(std::span<const std::byte> payload, std::uint64_t operation = 1) {
    FrameHeader header = bulk(FrameType::kHostSum, kSelf, payload.size());
    header.operation = operation;
    transport_->post(kPeer, {header, payload, nullptr, [this] { ++completed_; }});
  }

  std::optional<StrictEnvironment> efa_;
  std::string provider_;           // empty: the library's own name
  std::vector<std::byte> shared_;  // for the receive buffers of the transport
  Loop loop_;
  Recorded* stream_ = nullptr;
  Heard heard_;
  std::vector<FakePeer> rails_;
  FakePeer& peer_ = rails_.front();
  int completed_ = 0;
  std::unique_ptr<OfiTransport> transport_;
};

TEST_P(OverFabric, AFrameGoesByTheFabricIfItIsBulkAndFitsABuffer) {
  const std::vector<std::byte> memory(2 * kPayload);
  post(memory);
  EXPECT_EQ(stream_->posted.size(), 1U);
  post(std::span(memory).first(kPayload));
  EXPECT_EQ(stream_->posted.size(), 1U);
  poll();
  ASSERT_EQ(peer_.frames.size(), 1U);
  EXPECT_EQ(peer_.frames[0].payload, kPayload);
  EXPECT_EQ(completed_, 1);
}

TEST_P(OverFabric, ASenderStopsWithoutCredit) {
  const std::vector<std::byte> memory(kPayload);
  for (int i = 0; i < 40; ++i) {
    post(memory);
  }
  poll(2000);
  EXPECT_EQ(peer_.frames.size(), 16U);
  from_stream(FrameType::kFabricCredit, 10);
  poll(2000);
  EXPECT_EQ(peer_.frames.size(), 26U);
  EXPECT_EQ(completed_, 26);
}

TEST_P(OverFabric, AReceiverReportsWhatItHasTaken) {
  for (int i = 0; i < 20; ++i) {
    peer_sends(bulk(FrameType::kPublish, kPeer, 1000), 1000);
  }
  EXPECT_EQ(heard_.frames.size(), 20U);
  ASSERT_EQ(stream_->posted.size(), 2U);
  EXPECT_EQ(stream_->posted[0].type, FrameType::kFabricCredit);
  EXPECT_EQ(stream_->posted[0].offset, 8U);
  EXPECT_EQ(stream_->posted[1].offset, 16U);
}

TEST_P(OverFabric, FinalBytesInABufferThatNoOtherRankCanReadAreCopied) {
  std::vector<std::byte> result(kPayload, std::byte{1});
  heard_.result = result;
  peer_sends(bulk(FrameType::kPublish, kPeer, kPayload), kPayload);
  ASSERT_EQ(heard_.landings.size(), 1U);
  EXPECT_EQ(heard_.landings[0].data, result.data());
  EXPECT_EQ(result, std::vector<std::byte>(kPayload));
}

class OverSharedBuffers : public OverFabric {
 protected:
  OverSharedBuffers() { shared_.resize(8U << 20U); }
  bool is_shared(const std::byte* place) const {
    const std::less<> before;
    return !before(place, shared_.data()) && before(place, shared_.data() + shared_.size());
  }
};

TEST_P(OverSharedBuffers, FinalBytesStayThereWhileBuffersMayBeLent) {
  std::vector<std::byte> result(kPayload, std::byte{1});
  heard_.result = result;
  constexpr std::size_t kMostLent = 32;
  for (std::size_t i = 0; i <= kMostLent; ++i) {
    peer_sends(bulk(FrameType::kPublish, kPeer, kPayload), kPayload);
    ASSERT_EQ(heard_.landings.size(), i + 1);
    const Landing& landing = heard_.landings.back();
    if (i < kMostLent) {
      ASSERT_TRUE(is_shared(landing.data) && landing.owned) << i;
      EXPECT_EQ(result[0], std::byte{1});
    } else {
      EXPECT_EQ(landing.data, result.data());
      EXPECT_EQ(result, std::vector<std::byte>(kPayload));
    }
  }
  heard_.landings.clear();
  peer_sends(bulk(FrameType::kPublish, kPeer, kPayload), kPayload);
  ASSERT_EQ(heard_.landings.size(), 1U);
  EXPECT_TRUE(is_shared(heard_.landings[0].data)) << "the buffers were not returned";
}

TEST_P(OverFabric, AFrameThatBreaksTheProtocolEndsItsSender) {
  FrameHeader unknown = bulk(FrameType::kPublish, kPeer, 1000);
  unknown.type = static_cast<FrameType>(200);
  peer_sends(unknown, 1000);
  poll_for(0.2);
  ASSERT_EQ(heard_.losses.size(), 1U);
  EXPECT_EQ(heard_.losses[0], std::pair(false, std::string("a frame broke the protocol")));
  peer_sends(bulk(FrameType::kPublish, kPeer, 1000), 1000);
  EXPECT_TRUE(heard_.frames.empty());  // nothing is heard of it any more
}

TEST_P(OverFabric, AFrameThatTheEngineDoesNotTakeEndsItsSender) {
  peer_sends(bulk(FrameType::kSend, kPeer, 1000), 1000);
  poll_for(0.2);
  ASSERT_EQ(heard_.losses.size(), 1U);
}

TEST_P(OverFabric, ACreditForFramesThatWereNotSentEndsThePeer) {
  from_stream(FrameType::kFabricCredit, 1);
  poll_for(0.2);
  ASSERT_EQ(heard_.losses.size(), 1U);
  EXPECT_EQ(heard_.losses[0].second, "a frame broke the protocol");
}

TEST_P(OverFabric, ACreditThatNamesNoSlotOfThePeerEndsIt) {
  const std::vector<std::byte> memory(kPayload);
  post(memory);
  poll();
  FrameHeader credit;
  credit.type = FrameType::kFabricCredit;
  credit.sender = kPeer;
  credit.offset = 1;
  credit.payload = sizeof(std::uint32_t);
  auto landing = stream_->events().place(kPeer, credit);
  const std::uint32_t slot = peer_.port->slots().count;
  std::memcpy(landing->data, &slot, sizeof(slot));
  stream_->events().arrived(kPeer, credit, std::move(*landing));
  poll_for(0.2);
  ASSERT_EQ(heard_.losses.size(), 1U);
  EXPECT_EQ(heard_.losses[0].second, "a frame broke the protocol");
}

TEST_P(OverFabric, AGoodbyeWaitsForTheLastFrames) {
  from_stream(FrameType::kFabricEnd, 1);
  stream_->events().lost(kPeer, true, {Code::kPeerLost, "closed"});
  poll();
  EXPECT_TRUE(heard_.losses.empty());
  peer_sends(bulk(FrameType::kPublish, kPeer, 1000), 1000);
  EXPECT_EQ(heard_.frames.size(), 1U);
  ASSERT_EQ(heard_.losses.size(), 1U);
  EXPECT_TRUE(heard_.losses[0].first);
}

TEST_P(OverFabric, AGoodbyeWhoseFramesAreMissingIsALoss) {
  from_stream(FrameType::kFabricEnd, 1);
  stream_->events().lost(kPeer, true, {Code::kPeerLost, "closed"});
  poll_for(0.4);
  ASSERT_EQ(heard_.losses.size(), 1U);
  EXPECT_EQ(heard_.losses[0],
            std::pair(false, std::string("its last frames did not arrive over the fabric")));
}

TEST_P(OverFabric, AGoodbyeWithoutTheNumberOfItsFramesIsALoss) {
  stream_->events().lost(kPeer, true, {Code::kPeerLost, "closed"});
  poll_for(0.4);
  ASSERT_EQ(heard_.losses.size(), 1U);
  EXPECT_FALSE(heard_.losses[0].first);
}

TEST_P(OverFabric, AFrameThatIsNotDeliveredEndsThePeer) {
  peer_.port.reset();
  const std::vector<std::byte> memory(kPayload);
  post(memory);
  const TimePoint by = after(5);
  while (heard_.losses.empty() && Clock::now() < by) {
    transport_->poll();
  }
  ASSERT_EQ(heard_.losses.size(), 1U);
  EXPECT_EQ(heard_.losses[0].second, "the fabric could not deliver a frame: No route to host");
  EXPECT_EQ(completed_, 0);
}

// The peer has completed its calls when it says goodbye; the fabric confirms the last frames later.
TEST_P(OverFabric, AFrameIsSentAlsoWhenItIsConfirmedAfterThePeerHasLeft) {
  const std::vector<std::byte> memory(kPayload);
  post(memory);
  from_stream(FrameType::kFabricEnd, 0);
  stream_->events().lost(kPeer, true, {Code::kPeerLost, "closed"});
  ASSERT_EQ(heard_.losses.size(), 1U);
  EXPECT_TRUE(heard_.losses[0].first);
  poll();
  EXPECT_EQ(completed_, 1);
}

TEST_P(OverFabric, AFrameIsSentAlsoWhenAPeerThatHasLeftDoesNotConfirmIt) {
  const std::vector<std::byte> memory(kPayload);
  peer_.port.reset();
  post(memory);
  from_stream(FrameType::kFabricEnd, 0);
  stream_->events().lost(kPeer, true, {Code::kPeerLost, "closed"});
  for (int i = 0; i < 300; ++i) {
    transport_->poll();
  }
  EXPECT_EQ(completed_, 1);
  EXPECT_EQ(heard_.losses.size(), 1U);
}

// The fabric may report sooner than TCP that the peer is gone.
TEST_P(OverFabric, AFrameThatIsNotConfirmedIsSentOnceThePeerSaysGoodbye) {
  const std::vector<std::byte> memory(kPayload);
  peer_.port.reset();
  post(memory, 1);
  post(memory, 2);
  for (int i = 0; i < 300; ++i) {
    transport_->poll();
  }
  EXPECT_EQ(completed_, 0);
  if (!heard_.losses.empty()) {
    GTEST_SKIP() << "this process had no processor for the time in which a goodbye may follow";
  }
  transport_->cancel(kGroup, 2);
  from_stream(FrameType::kFabricEnd, 0);
  stream_->events().lost(kPeer, true, {Code::kPeerLost, "closed"});
  EXPECT_EQ(completed_, 1);
  ASSERT_EQ(heard_.losses.size(), 1U);
  EXPECT_TRUE(heard_.losses[0].first);
}

TEST_P(OverFabric, TheEndCountsTheFramesThatWereSentOverTheFabric) {
  const std::vector<std::byte> memory(kPayload);
  post(memory);
  post(memory);
  transport_->finish();
  ASSERT_EQ(stream_->posted.size(), 1U);
  EXPECT_EQ(stream_->posted[0].type, FrameType::kFabricEnd);
  EXPECT_EQ(stream_->posted[0].offset, 2U);
  EXPECT_TRUE(stream_->finished);
  poll();
  EXPECT_EQ(peer_.frames.size(), 2U);
}

TEST_P(OverFabric, CancelledFramesAreReadFromRegisteredMemoryOnlyUntilTheyAreSent) {
  std::vector<std::byte> arena(kPayload);
  transport_->register_memory(arena);
  while (completed_ == 0 && !transport_->reads(kGroup)) {  // the provider may refuse a send at first
    post(arena);
    transport_->cancel(kGroup, 1);
  }
  EXPECT_TRUE(heard_.released_groups.empty());
  poll();
  EXPECT_FALSE(transport_->reads(kGroup));
  EXPECT_EQ(heard_.released_groups, std::vector{kGroup});
  EXPECT_EQ(completed_, 0);
}

TEST_P(OverFabric, CancelledFramesThatWaitAreDropped) {
  const std::vector<std::byte> memory(kPayload);
  for (int i = 0; i < 20; ++i) {
    post(memory, 2);
  }
  poll(2000);
  EXPECT_EQ(peer_.frames.size(), 16U);
  transport_->cancel(kGroup, 2);
  from_stream(FrameType::kFabricCredit, 16);
  poll();
  EXPECT_EQ(peer_.frames.size(), 16U);
}

TEST_P(OverFabric, RandomHeadersAreFramesOrEndTheirSender) {
  std::mt19937 random(7);  // NOLINT(cert-msc51-cpp): the same frames in every run
  for (int i = 0; i < 300; ++i) {
    if (peer_.slots.empty() && stream_->credited[0].empty()) {
      break;  // a rank that broke the protocol gets no credit
    }
    FrameHeader header =
        bulk(static_cast<FrameType>(random() % 24), static_cast<int>(random() % 3), random() % 2000);
    header.call.collective = static_cast<Collective>(random() % 12);
    header.call.dtype = static_cast<DType>(random() % 14);
    header.operation = random();
    peer_sends(header, random() % 4 == 0 ? random() % 2000 : header.payload);
  }
  poll_for(0.2);
  EXPECT_LE(heard_.losses.size(), 1U);
}

class OverTwoRails : public OverFabric {
 protected:
  OverTwoRails() : OverFabric("", 2) {}
};

TEST_P(OverTwoRails, FramesUseBoth) {
  const std::vector<std::byte> memory(kPayload);
  for (int i = 0; i < 10; ++i) {
    post(memory);
  }
  poll(2000);
  EXPECT_EQ(rails_[0].frames.size() + rails_[1].frames.size(), 10U);
  EXPECT_GE(rails_[0].frames.size(), 3U);
  EXPECT_GE(rails_[1].frames.size(), 3U);
  EXPECT_EQ(completed_, 10);
}

TEST_P(OverTwoRails, EachHasCreditOfItsOwn) {
  const std::vector<std::byte> memory(kPayload);
  for (int i = 0; i < 60; ++i) {
    post(memory);
  }
  poll(3000);
  EXPECT_EQ(rails_[0].frames.size(), 16U);
  EXPECT_EQ(rails_[1].frames.size(), 16U);
  from_stream(FrameType::kFabricCredit, 10, 1);
  poll(2000);
  EXPECT_EQ(rails_[0].frames.size(), 16U);
  EXPECT_EQ(rails_[1].frames.size(), 26U);
}

TEST_P(OverTwoRails, AReceiverReportsWhatItHasTakenOverEach) {
  for (int i = 0; i < 8; ++i) {
    peer_sends(bulk(FrameType::kPublish, kPeer, 1000), 1000, 1);
  }
  for (int i = 0; i < 16; ++i) {
    peer_sends(bulk(FrameType::kPublish, kPeer, 1000), 1000, 0);
  }
  ASSERT_EQ(stream_->posted.size(), 3U);
  EXPECT_EQ(stream_->posted[0].piece, 1U);
  EXPECT_EQ(stream_->posted[0].offset, 8U);
  EXPECT_EQ(stream_->posted[2].piece, 0U);
  EXPECT_EQ(stream_->posted[2].offset, 16U);
}

TEST_P(OverTwoRails, ACreditForARailThatIsMissingEndsThePeer) {
  FrameHeader credit;
  credit.type = FrameType::kFabricCredit;
  credit.sender = kPeer;
  credit.piece = 2;
  auto landing = stream_->events().place(kPeer, credit);
  stream_->events().arrived(kPeer, credit, std::move(*landing));
  poll_for(0.2);
  ASSERT_EQ(heard_.losses.size(), 1U);
  EXPECT_EQ(heard_.losses[0].second, "a frame broke the protocol");
}

TEST_P(OverTwoRails, TheEndCountsTheFramesOfBoth) {
  const std::vector<std::byte> memory(kPayload);
  for (int i = 0; i < 6; ++i) {
    post(memory);
  }
  poll(2000);
  transport_->finish();
  EXPECT_EQ(stream_->posted.back().type, FrameType::kFabricEnd);
  EXPECT_EQ(stream_->posted.back().offset, 6U);
}

TEST_P(OverTwoRails, AGoodbyeWaitsForTheLastFramesOfBoth) {
  from_stream(FrameType::kFabricEnd, 2);
  stream_->events().lost(kPeer, true, {Code::kPeerLost, "closed"});
  peer_sends(bulk(FrameType::kPublish, kPeer, 1000), 1000, 0);
  EXPECT_TRUE(heard_.losses.empty());
  peer_sends(bulk(FrameType::kPublish, kPeer, 1000), 1000, 1);
  ASSERT_EQ(heard_.losses.size(), 1U);
  EXPECT_TRUE(heard_.losses[0].first);
}

TEST_P(OverTwoRails, CancelledFramesAreReadFromRegisteredMemoryUntilBothHaveSentThem) {
  std::vector<std::byte> arena(kPayload);
  transport_->register_memory(arena);
  for (int i = 0; i < 20; ++i) {
    post(arena);
  }
  transport_->cancel(kGroup, 1);
  poll(2000);
  EXPECT_FALSE(transport_->reads(kGroup));
  EXPECT_LE(heard_.released_groups.size(), 1U);
  EXPECT_EQ(completed_, 0);
}

TEST_P(OverTwoRails, AFrameThatIsNotDeliveredOverOneEndsThePeer) {
  rails_[1].port.reset();
  const std::vector<std::byte> memory(kPayload);
  for (int i = 0; i < 20; ++i) {  // a rail that refuses a frame at first leaves it to the other
    post(memory);
  }
  const TimePoint by = after(5);
  while (heard_.losses.empty() && Clock::now() < by) {
    poll(1);
  }
  ASSERT_EQ(heard_.losses.size(), 1U);
  EXPECT_EQ(heard_.losses[0].second, "the fabric could not deliver a frame: No route to host");
}

// Rail 1 needs many calls for a frame, and no rail refuses one.
class OverUnequalRails : public OverFabric {
 protected:
  OverUnequalRails() : OverFabric("", 2) {}

 private:
  StrictEnvironment environment_{
      {{"STRICT_DEVICES", "2"}, {"STRICT_SLOW", "strict1"}, {"STRICT_READY", "1"}}};
};

TEST_P(OverUnequalRails, TheSlowerOneGetsFewerFrames) {
  const std::vector<std::byte> memory(kPayload);
  constexpr std::size_t kFrames = 16;  // both have credit for all
  for (std::size_t i = 0; i < kFrames; ++i) {
    post(memory);
    poll(10);
  }
  EXPECT_GE(rails_[0].frames.size(), kFrames - 4);
  poll(20000);
  EXPECT_EQ(rails_[0].frames.size() + rails_[1].frames.size(), kFrames);
  EXPECT_GE(rails_[1].frames.size(), 1U);
}

// Two devices, one for each rail.
class OverTwoDevices : public OverFabric {
 protected:
  OverTwoDevices() : OverFabric("", 2) {}

 private:
  StrictEnvironment environment_{StrictVariables{{"STRICT_DEVICES", "2"}}};
};

// The provider ends the process where memory is not registered with the device of the rail.
TEST_P(OverTwoDevices, RegisteredMemoryIsSentWithTheDescriptorOfEach) {
  std::vector<std::byte> arena(kPayload);
  transport_->register_memory(arena);
  for (int i = 0; i < 20; ++i) {
    post(arena);
  }
  poll(3000);
  EXPECT_EQ(completed_, 20);
  EXPECT_GE(rails_[0].frames.size(), 4U);
  EXPECT_GE(rails_[1].frames.size(), 4U);
}

TEST_P(OverTwoDevices, OtherMemoryIsCopiedForTheRailThatSendsIt) {
  std::vector<std::byte> memory(kPayload);
  for (int i = 0; i < 20; ++i) {
    std::ranges::fill(memory, static_cast<std::byte>(i));
    post(memory);
    poll(100);
  }
  EXPECT_EQ(completed_, 20);
  EXPECT_GE(rails_[1].frames.size(), 4U);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(rails_[0].contents[i] + rails_[1].contents[i], 1U) << i;
  }
}

// libfabric's ofi_rxm ends the process if an endpoint is closed while a frame arrives.
class OverRxm : public OverFabric {
 protected:
  explicit OverRxm(std::size_t rails = 1) : OverFabric("strict;ofi_rxm", rails) {}

  void SetUp() override {
#ifdef __SANITIZE_ADDRESS__
    const __lsan::ScopedDisabler stays_open;
#endif
    OverFabric::SetUp();
  }

  // How many endpoints the transport closes when it ends.
  std::size_t closed_with_transport() {
    const auto before = strict_open_endpoints();
    transport_.reset();
    return before - strict_open_endpoints();
  }
};

TEST_P(OverRxm, TheEndpointStaysOpenIfALostPeerMayStillSend) {
  stream_->events().lost(kPeer, false, {Code::kPeerLost, "the link was lost"});
  poll_for(0.2);
  ASSERT_EQ(heard_.losses.size(), 1U);
  EXPECT_EQ(closed_with_transport(), 0U);
}

TEST_P(OverRxm, TheEndpointStaysOpenIfAPeerHasNotLeft) { EXPECT_EQ(closed_with_transport(), 0U); }

TEST_P(OverRxm, TheEndpointIsClosedIfAllThatThePeerSentHasArrived) {
  from_stream(FrameType::kFabricEnd, 0);
  stream_->events().lost(kPeer, true, {Code::kPeerLost, "closed"});
  ASSERT_EQ(heard_.losses.size(), 1U);
  EXPECT_EQ(closed_with_transport(), 1U);
}

class OverTwoRxms : public OverRxm {
 protected:
  OverTwoRxms() : OverRxm(2) {}
};

TEST_P(OverTwoRxms, BothEndpointsStayOpenIfAPeerHasNotLeft) { EXPECT_EQ(closed_with_transport(), 0U); }

constexpr auto kWays = {Way::kMessages, Way::kWrites, Way::kTwoWrites};
constexpr auto kWaysOfRxm = {Way::kMessages, Way::kWrites};

std::string name_of(const ::testing::TestParamInfo<Way>& info) {
  return info.param == Way::kMessages ? "AsMessages" : info.param == Way::kWrites ? "Written" : "InTwoWrites";
}

INSTANTIATE_TEST_SUITE_P(Writes, OverTwoRxms, ::testing::ValuesIn(kWaysOfRxm), name_of);
INSTANTIATE_TEST_SUITE_P(Writes, OverTwoDevices, ::testing::ValuesIn(kWays), name_of);
INSTANTIATE_TEST_SUITE_P(Writes, OverRxm, ::testing::ValuesIn(kWaysOfRxm), name_of);
INSTANTIATE_TEST_SUITE_P(Writes, OverUnequalRails, ::testing::ValuesIn(kWays), name_of);
INSTANTIATE_TEST_SUITE_P(Writes, OverSharedBuffers, ::testing::ValuesIn(kWays), name_of);
INSTANTIATE_TEST_SUITE_P(Writes, OverTwoRails, ::testing::ValuesIn(kWays), name_of);
INSTANTIATE_TEST_SUITE_P(Writes, OverFabric, ::testing::ValuesIn(kWays), name_of);

}  // namespace
}  // namespace smdp
