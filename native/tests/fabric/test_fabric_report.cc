// What a rank reports of its fabric, damaged: the other ranks refuse it, and name the rank and the field.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <set>
#include <stdexcept>
#include <thread>

#include "cluster.h"
#include "net/fabric/choice.h"
#include "net/fabric/report.h"

namespace smdp::testing {
namespace {

constexpr auto kLargest = std::numeric_limits<std::uint32_t>::max();
const std::string kDamaged = "its report of the fabric is damaged: ";

// As the strict provider has them.
constexpr std::size_t kAddressBytes = 32;
constexpr FabricFacts kFacts{2, kAddressBytes, 1U << 20U};

FabricReport sound_report() {
  FabricReport report;
  report.provider = strict_name();
  report.writes = true;
  report.rails.push_back({16, {std::uint64_t{1} << 46U, 42, 64}, Bytes(kAddressBytes, std::byte{5})});
  report.rails.push_back({8, {std::uint64_t{1} << 45U, 43, 32}, Bytes(kAddressBytes, std::byte{6})});
  return report;
}

// Empty, or why the report is refused.
std::string refusal(const Bytes& bytes) {
  const auto report = decode_fabric_report(bytes);
  return report.ok() ? check(*report, kFacts).message() : report.status().message();
}

TEST(FabricReport, ASoundReportIsReadAsItWasWritten) {
  const FabricReport written = sound_report();
  const auto read = decode_fabric_report(encode(written));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->provider, written.provider);
  EXPECT_EQ(read->writes, written.writes);
  ASSERT_EQ(read->rails.size(), written.rails.size());
  for (std::size_t i = 0; i < written.rails.size(); ++i) {
    EXPECT_EQ(read->rails[i].window, written.rails[i].window);
    EXPECT_EQ(read->rails[i].slots.base, written.rails[i].slots.base);
    EXPECT_EQ(read->rails[i].slots.key, written.rails[i].slots.key);
    EXPECT_EQ(read->rails[i].slots.count, written.rails[i].slots.count);
    EXPECT_EQ(read->rails[i].address, written.rails[i].address);
  }
  EXPECT_EQ(refusal(encode(written)), "");
}

struct Damage {
  const char* name;
  void (*apply)(FabricReport& report);
  const char* refusal;
};

const std::vector<Damage> kDamages = {
    {"NoRail", [](FabricReport& one) { one.rails.clear(); }, "the number of rails is 0, expected 1 or more"},
    {"ManyRails", [](FabricReport& one) { one.rails.resize(9); },
     "the number of rails is 9, expected at most 8"},
    {"ADamagedFirstRail", [](FabricReport& one) { one.rails.front().window = 0; },
     "the window is 0, expected 1 to 16"},
    {"NoWindow", [](FabricReport& one) { one.rails.back().window = 0; }, "the window is 0, expected 1 to 16"},
    {"LargeWindow", [](FabricReport& one) { one.rails.back().window = 17; },
     "the window is 17, expected 1 to 16"},
    {"LargestWindow", [](FabricReport& one) { one.rails.back().window = kLargest; },
     "the window is 4294967295, expected 1 to 16"},
    {"NoSlots", [](FabricReport& one) { one.rails.back().slots.count = 0; },
     "the number of slots is 0, expected at least 16"},
    {"FewSlots", [](FabricReport& one) { one.rails.back().slots.count = 15; },
     "the number of slots is 15, expected at least 16"},
    {"ManySlots", [](FabricReport& one) { one.rails.back().slots.count = 289; },
     "the number of slots is 289, expected at most 288"},
    {"MostSlots", [](FabricReport& one) { one.rails.back().slots.count = kLargest; },
     "the number of slots is 4294967295, expected at most 288"},
    {"MostSlotsWithoutWrites",
     [](FabricReport& one) {
       one.writes = false;
       one.rails.back().slots.count = kLargest;
     },
     "the number of slots is 4294967295, expected at most 288"},
    {"SlotsBehindTheLastAddress", [](FabricReport& one) { one.rails.back().slots.base = ~std::uint64_t{0}; },
     "the address of the slots is 18446744073709551615, expected at most 18446744073675997183"},
    {"NoAddress", [](FabricReport& one) { one.rails.back().address.clear(); },
     "the length of the address is 0, expected 1 or more"},
    {"ShortAddress", [](FabricReport& one) { one.rails.back().address.resize(31); },
     "the length of the address is 31, expected 32"},
    {"LongAddress", [](FabricReport& one) { one.rails.back().address.resize(1U << 20U); },
     "the length of the address is 1048576, expected 32"},
};

class FabricReportField : public ::testing::TestWithParam<Damage> {};

TEST_P(FabricReportField, IsRefusedByName) {
  FabricReport report = sound_report();
  GetParam().apply(report);
  EXPECT_EQ(refusal(encode(report)), kDamaged + GetParam().refusal);
}

INSTANTIATE_TEST_SUITE_P(Damaged, FabricReportField, ::testing::ValuesIn(kDamages),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(FabricReport, AnUnknownVersionIsRefusedBeforeItsFields) {
  for (const int version : {0, kFabricReportVersion + 1, 255}) {
    const Bytes bytes{static_cast<std::byte>(version)};
    EXPECT_EQ(refusal(bytes), kDamaged + "the version is " + std::to_string(version) + ", expected 2");
  }
}

TEST(FabricReport, AReportThatIsCutNamesTheFieldInWhichItEnds) {
  const Bytes whole = encode(sound_report());
  std::set<std::string> fields;
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    const std::string why = refusal(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bytes)));
    const std::string expected = kDamaged + "it ends within ";
    ASSERT_EQ(why.find(expected), 0U) << bytes << ": " << why;
    fields.insert(why.substr(expected.size()));
  }
  EXPECT_EQ(fields, (std::set<std::string>{"the version", "the failure", "the provider", "the way to send",
                                           "the number of rails", "the window", "the address of the slots",
                                           "the key of the slots", "the number of slots", "the address"}));
  Bytes longer = whole;
  longer.push_back({});
  EXPECT_EQ(refusal(longer), kDamaged + "bytes follow its last field");
}

TEST(FabricReport, ALengthBeyondTheReportIsRefused) {
  Bytes bytes = encode(sound_report());
  const std::size_t address_at = bytes.size() - kAddressBytes - sizeof(kLargest);
  std::memcpy(bytes.data() + address_at, &kLargest, sizeof(kLargest));
  EXPECT_EQ(refusal(bytes), kDamaged + "it ends within the address");
  bytes = encode(sound_report());
  std::memcpy(bytes.data() + 1, &kLargest, sizeof(kLargest));
  EXPECT_EQ(refusal(bytes), kDamaged + "it ends within the failure");
}

// A report with a few random changes.
Bytes damaged_report(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](std::size_t bound) { return static_cast<std::size_t>(random()) % bound; };
  Bytes bytes = encode(sound_report());
  for (std::size_t changes = 1 + below(3); changes > 0 && bytes.size() > sizeof(kLargest); --changes) {
    const std::size_t at = below(bytes.size() - sizeof(kLargest));
    switch (below(5)) {
      case 0:
        bytes[at] ^= static_cast<std::byte>(1U << below(8));
        break;
      case 1: {
        const std::array<std::uint32_t, 4> extremes = {0, 1, 1U << 31U, kLargest};
        std::memcpy(bytes.data() + at, &extremes[below(extremes.size())], sizeof(kLargest));
        break;
      }
      case 2:
        bytes.resize(at);
        break;
      case 3: {
        const std::size_t count = 1 + below(8);
        bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), count,
                     static_cast<std::byte>(random()));
        break;
      }
      default:
        bytes.erase(bytes.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }
  return bytes;
}

// What is not refused has no value that could lead a sender astray.
TEST(FabricReport, RandomDamageIsRefusedOrHarmless) {
  int refused = 0;
  int harmless = 0;
  for (std::uint32_t seed = 0; seed < 50000; ++seed) {
    const Bytes bytes = damaged_report(seed);
    if (const std::string why = refusal(bytes); !why.empty()) {
      ASSERT_EQ(why.find(kDamaged), 0U) << seed << ": " << why;
      ++refused;
      continue;
    }
    const FabricReport read = *decode_fabric_report(bytes);
    ASSERT_TRUE(!read.rails.empty() && read.rails.size() <= kMostRails) << seed;
    for (const FabricReport::Rail& rail : read.rails) {
      ASSERT_TRUE(rail.window >= 1 && rail.window <= FabricPort::kMostWindow) << seed;
      ASSERT_EQ(rail.address.size(), kAddressBytes) << seed;
      ASSERT_LE(rail.slots.count, FabricPort::kMostSlots) << seed;
      if (read.writes) {
        ASSERT_GE(rail.slots.count, rail.window * kFacts.writers) << seed;
        const std::uint64_t end = rail.slots.base + rail.slots.count * kFacts.slot_bytes;
        ASSERT_GE(end, rail.slots.base) << seed;
      }
    }
    ++harmless;
  }
  EXPECT_GT(refused, 10000);
  EXPECT_GT(harmless, 1000);
}

// --- In a job ---

// Three ranks on hosts of their own. Ranks 0 and 1 choose; rank 2 does what the test says.
struct Decision {
  std::vector<Result<FabricConnections>> chosen;  // of the ranks 0 and 1
  std::vector<std::string> warnings;              // of rank 0
};

Decision decide(const std::map<std::string, std::string>& options,
                const std::function<void(Rendezvous&, TimePoint)>& rank_two) {
  constexpr std::size_t kRanks = 3;
  MemoryStore store;
  Options chosen;
  chosen.interface = "127.0.0.1";
  for (const auto& [name, value] : options) {
    (void)set_option(chosen, name, value);
  }
  Decision decision;
  for (std::size_t rank = 0; rank < kRanks - 1; ++rank) {
    decision.chosen.emplace_back(Status(Code::kTimeout, "the ranks did not meet"));
  }
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      Hello self;
      self.protocol = kProtocolVersion;
      self.rank = static_cast<std::uint32_t>(rank);
      self.world_size = kRanks;
      self.build = "test-build";
      const TimePoint deadline = after(60);
      auto met =
          Rendezvous::meet(self, Bytes(16), chosen, "127.0.0.1", &store, deadline, [](const std::string&) {});
      if (!met.ok()) {
        return;
      }
      if (rank == kRanks - 1) {
        rank_two(**met, deadline);
        return;
      }
      const FabricQuestion question{chosen,
                                    static_cast<int>(rank),
                                    {3, fabric_offer(chosen)},
                                    {0, 1, 2},
                                    {"rank 0 (host a)", "rank 1 (host b)", "rank 2 (host c)"},
                                    "127.0.0.1",
                                    {},
                                    {}};
      decision.chosen[rank] =
          choose_fabric(question, **met, deadline, [&](LogLevel level, const std::string& text) {
            if (rank == 0 && level == LogLevel::kWarning) {
              decision.warnings.push_back(text);
            }
          });
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return decision;
}

Decision decide_with(const std::string& transport, const Bytes& report) {
  return decide({{"SMDP_TRANSPORT", transport}, {"SMDP_LIBFABRIC", SMDP_STRICT_PROVIDER}},
                [&](Rendezvous& rendezvous, TimePoint deadline) {
                  if (rendezvous.exchange(report, deadline).ok()) {
                    // Of the frames that should have arrived.
                    (void)rendezvous.exchange(encode(FabricReport{}), deadline);
                  }
                });
}

TEST_P(FabricReportField, EndsTheJobOnEveryRankWithTheRankAndTheField) {
  FabricReport report = sound_report();
  GetParam().apply(report);
  const Decision decision = decide_with("ofi", encode(report));
  for (const auto& chosen : decision.chosen) {
    EXPECT_EQ(chosen.status().code(), Code::kUnsupported);
    // The last address depends on the slots of the provider.
    const std::string expected = "SMDP_TRANSPORT=ofi: rank 2 (host c): " + kDamaged + GetParam().refusal;
    const std::size_t fixed = expected.find(", expected at most 18446744073");
    EXPECT_EQ(chosen.status().message().find(expected.substr(0, fixed)), 0U) << chosen.status().message();
  }
}

TEST(FabricReport, WithAutoADamagedReportLeadsToTcpAndAWarning) {
  FabricReport report = sound_report();
  report.provider = "efa";
  report.writes = false;
  report.rails.front().window = 0;
  const Decision decision = decide_with("auto", encode(report));
  for (const auto& chosen : decision.chosen) {
    ASSERT_TRUE(chosen.ok()) << chosen.status().message();
    EXPECT_TRUE(chosen->rails.empty());
  }
  EXPECT_EQ(decision.warnings,
            std::vector{"rank 2 (host c): " + kDamaged +
                        "the window is 0, expected 1 to 16: all hosts of the job exchange over TCP "
                        "(SMDP_TRANSPORT=tcp hides this warning)"});
}

TEST(FabricReport, RandomDamageEndsTheJobOnEveryRankAlike) {
  int ended = 0;
  for (std::uint32_t seed = 0; ended < 20; ++seed) {
    const Bytes bytes = damaged_report(seed);
    if (refusal(bytes).empty()) {
      continue;  // the next test has an address that leads nowhere
    }
    const Decision decision = decide_with("ofi", bytes);
    const std::string why = decision.chosen[0].status().message();
    EXPECT_EQ(why.find("SMDP_TRANSPORT=ofi: rank 2 (host c): "), 0U) << seed << ": " << why;
    EXPECT_EQ(decision.chosen[1].status().message(), why) << seed;
    ++ended;
  }
}

// Its length is right, and no rank has it.
TEST(FabricReport, AnAddressThatLeadsNowhereNamesItsRank) {
  const Decision decision = decide_with("ofi", encode(sound_report()));
  for (const auto& chosen : decision.chosen) {
    EXPECT_EQ(chosen.status().code(), Code::kUnsupported);
    const std::string expected = "SMDP_TRANSPORT=ofi: rank 0 (host a): no frame reaches rank 2 (host c): ";
    EXPECT_EQ(chosen.status().message().find(expected), 0U) << chosen.status().message();
  }
}

// The port of a rank that has its own host, and what it reports of it.
struct Open {
  std::unique_ptr<FabricPort> port;
  FabricReport report;
};

Open open_port(const std::string& path) {
  const auto library = FabricLibrary::open(path);
  if (!library.ok()) {
    throw std::runtime_error(library.status().message());
  }
  FabricPort::Wanted wanted;
  wanted.source = "127.0.0.1";
  wanted.peers = 2;
  wanted.writers = {0, 1};
  wanted.payload_bytes = 1U << 20U;
  auto port = FabricPort::open(*library, wanted);
  if (!port.ok()) {
    throw std::runtime_error(port.status().message());
  }
  FabricReport report;
  report.provider = (*port)->endpoint().provider();
  report.writes = (*port)->writes();
  report.rails.push_back(
      {static_cast<std::uint32_t>((*port)->window()), (*port)->slots(), *(*port)->endpoint().address()});
  return {std::move(*port), std::move(report)};
}

// Its last report may have been sent: rank 0 sees that the connection is closed.
TEST(FabricChoice, ARankThatLeavesBeforeItsFirstFrameIsNamedAtOnce) {
  for (const bool has_reported : {false, true}) {
    const Open two = open_port(SMDP_STRICT_PROVIDER);
    const auto began = Clock::now();
    const Decision decision = decide({{"SMDP_TRANSPORT", "ofi"}, {"SMDP_LIBFABRIC", SMDP_STRICT_PROVIDER}},
                                     [&](Rendezvous& rendezvous, TimePoint deadline) {
                                       ASSERT_TRUE(rendezvous.exchange(encode(two.report), deadline).ok());
                                       if (has_reported) {
                                         (void)rendezvous.exchange(encode(FabricReport{}), after(-5));
                                       }
                                     });
    for (const auto& chosen : decision.chosen) {
      EXPECT_EQ(chosen.status().code(), Code::kPeerLost);
      EXPECT_EQ(chosen.status().message(),
                "rank 2 (at 127.0.0.1) left the rendezvous: the connection was closed");
    }
    EXPECT_LT(Clock::now() - began, std::chrono::seconds(10));  // not after the 15 s of a silent rank
  }
}

class Ignored final : public FabricPort::Events {
 public:
  explicit Ignored(FabricPort& port) : port_(port) {}
  void received(std::uint32_t, const std::optional<FrameHeader>&, std::span<std::byte>,
                std::size_t buffer) override {
    port_.give_back(buffer, -1);
  }
  void sent(std::size_t, const Status&) override {}
  void reposted(int, std::size_t) override {}

 private:
  FabricPort& port_;
};

// The strict provider ends a process that writes with a key of no memory, so this needs a provider of
// libfabric.
TEST(FabricReport, AKeyOfNoMemoryNamesItsRank) {
  const auto provider = process_environment()("FI_PROVIDER");
  if (process_environment()("SMDP_TRANSPORT") != "ofi" || !provider || *provider == "strict") {
    GTEST_SKIP() << "runs over the provider of make test-fabric";
  }
  Open two = open_port("");
  if (!two.report.writes) {
    GTEST_SKIP() << *provider << " has no writes, and a message needs no key";
  }
  two.report.rails.front().slots.key ^= 1U;
  const Decision decision =
      decide({{"SMDP_TRANSPORT", "ofi"}}, [&](Rendezvous& rendezvous, TimePoint deadline) {
        if (!rendezvous.exchange(encode(two.report), deadline).ok()) {
          return;
        }
        std::atomic<bool> is_over{false};
        std::thread polling([&] {
          Ignored events(*two.port);
          while (!is_over && two.port->poll(events).ok()) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
        });
        (void)rendezvous.exchange(encode(FabricReport{}), deadline);
        is_over = true;
        polling.join();
      });
  for (const auto& chosen : decision.chosen) {
    const std::string& why = chosen.status().message();
    EXPECT_EQ(why.find("SMDP_TRANSPORT=ofi: rank 0 (host a): "), 0U) << why;
    EXPECT_NE(why.find("rank 2 (host c)"), std::string::npos) << why;
  }
}

}  // namespace
}  // namespace smdp::testing
