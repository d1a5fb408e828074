// The transport over a fabric, on the strict provider: results, the choice between TCP and a fabric, and
// faults. `make test-fabric` runs the other tests of the engine over it too, and over libfabric's providers.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>
#include <tuple>

#include "cluster.h"
#include "net/fabric/choice.h"
#include "strict.h"

namespace smdp::testing {
namespace {

using std::chrono::steady_clock;

const std::map<std::string, std::string> kStrict = {{"SMDP_TRANSPORT", "ofi"},
                                                    {"SMDP_LIBFABRIC", SMDP_STRICT_PROVIDER}};

std::map<std::string, std::string> strict_with(std::map<std::string, std::string> more) {
  more.insert(kStrict.begin(), kStrict.end());
  return more;
}

double seconds_since(steady_clock::time_point begin) {
  return std::chrono::duration<double>(steady_clock::now() - begin).count();
}

TEST(Fabric, ResultsAreThoseOfTheReferenceOnEveryLayout) {
  for (const auto& hosts : std::vector<std::vector<int>>{{1, 1}, {2, 2}, {1, 1, 1, 1, 1}, {3, 1}}) {
    for (const char* piece : {"4", "256"}) {
      Cluster cluster({.hosts = hosts, .options = strict_with({{"SMDP_PIECE_KIB", piece}})});
      ASSERT_TRUE(cluster.ok()) << cluster.opened()[0].message();
      EXPECT_EQ(joined(cluster.warnings()), "");
      const std::uint64_t group = cluster.group(everybody(cluster), "all");
      for (const std::uint64_t count : {1ULL, 1000ULL, 300001ULL}) {
        check_all_reduce(cluster, group, count, static_cast<std::uint32_t>(count));
      }
    }
  }
}

// Where not every rank can write, frames are messages. "": all could, and the job does not want it.
TEST(Fabric, ResultsAreThoseOfTheReferenceWithMessages) {
  for (const std::string writes : {"0", "some", ""}) {
    const StrictEnvironment provider(writes.empty() ? StrictVariables()
                                                    : StrictVariables{{"STRICT_WRITES", writes}});
    for (const auto& hosts : std::vector<std::vector<int>>{{1, 1}, {2, 1, 1}, {8, 1}}) {
      Cluster cluster({.hosts = hosts,
                       .options = strict_with(
                           {{"SMDP_PIECE_KIB", "4"}, {"SMDP_FABRIC_WRITES", writes.empty() ? "0" : "1"}})});
      ASSERT_TRUE(cluster.ok()) << cluster.opened()[0].message();
      EXPECT_NE(cluster.notices().find(", by messages"), std::string::npos) << cluster.notices();
      check_all_reduce(cluster, cluster.group(everybody(cluster), "all"), 300001, 1);
    }
  }
}

TEST(Fabric, AHalfTypeBetweenHostsIsSentFromMemoryThatNoOperationOwns) {
  Cluster cluster({.hosts = {2, 2}, .options = strict_with({{"SMDP_WIRE_DTYPE", "bfloat16"}})});
  ASSERT_TRUE(cluster.ok());
  check_all_reduce(cluster, cluster.group(everybody(cluster), "all"), 500000, 3, [](const auto& inputs) {
    return reference_reduce_narrowed(DType::kBFloat16, ReduceOp::kSum, inputs);
  });
}

double processor_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto of = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return of(used.ru_utime) + of(used.ru_stime);
}

// Also over the provider that the environment names.
TEST(Fabric, AnIdleJobTakesNoProcessorTime) {
  const bool is_chosen = process_environment()("SMDP_TRANSPORT").has_value();
  Cluster cluster({.hosts = {1, 1}, .options = is_chosen ? std::map<std::string, std::string>() : kStrict});
  ASSERT_TRUE(cluster.ok());
  check_all_reduce(cluster, cluster.group({0, 1}, "g"), 300000, 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const double before = processor_seconds();
  std::this_thread::sleep_for(std::chrono::seconds(1));
  EXPECT_LT(processor_seconds() - before, 0.1);
}

// --- The choice ---

TEST(FabricChoice, AutoTakesTheFabricThatEveryRankHas) {
  for (const auto& [device_writes, way] : {std::pair("0", "by messages"), std::pair("1", "by writes")}) {
    const StrictEnvironment provider(StrictVariables{{"STRICT_EFA_WRITES", device_writes}});
    Cluster cluster({.hosts = {2, 1, 1},
                     .options = {{"SMDP_TRANSPORT", "auto"},
                                 {"SMDP_LIBFABRIC", SMDP_STRICT_PROVIDER},
                                 {"SMDP_FABRIC_RAILS", "0"}}});
    ASSERT_TRUE(cluster.ok()) << cluster.opened()[0].message();
    const std::string notice = "exchange over the fabric efa (device strict0 on this rank), ";
    EXPECT_NE(cluster.notices().find(notice + way), std::string::npos) << cluster.notices();
    const std::uint64_t group = cluster.group(everybody(cluster), "g");
    for (const std::uint64_t count : {1ULL, 200000ULL, 2000000ULL}) {
      check_all_reduce(cluster, group, count, 1);
    }
  }
}

TEST(FabricChoice, AutoUsesTcpAndNamesTheHostThatHasNoDevice) {
  const auto adjust = [](int rank, EngineConfig& config) {
    config.options.transport = "auto";
    config.options.libfabric = rank == 1 ? "" : SMDP_STRICT_PROVIDER;
  };
  Cluster cluster({.hosts = {1, 1, 1}, .adjust = adjust});
  ASSERT_TRUE(cluster.ok()) << cluster.opened()[0].message();
  EXPECT_EQ(
      joined(cluster.warnings()),
      "no EFA device on rank 1 (host host-1): all hosts of the job exchange over TCP (SMDP_TRANSPORT=tcp "
      "hides this warning)\n");
  check_all_reduce(cluster, cluster.group({0, 1, 2}, "g"), 200000, 1);
}

TEST(FabricChoice, AutoUsesTcpAndNamesTheHostWhoseLibraryDoesNotOpen) {
  const auto adjust = [](int rank, EngineConfig& config) {
    config.options.transport = "auto";
    config.options.libfabric = rank == 2 ? "/no/such/libfabric.so" : SMDP_STRICT_PROVIDER;
  };
  Cluster cluster({.hosts = {1, 1, 1}, .adjust = adjust});
  ASSERT_TRUE(cluster.ok()) << cluster.opened()[0].message();
  const std::string warnings = joined(cluster.warnings());
  EXPECT_EQ(warnings.find("rank 2 (host host-2): libfabric cannot be opened: /no/such/libfabric.so"), 0U)
      << warnings;
  check_all_reduce(cluster, cluster.group({0, 1, 2}, "g"), 200000, 1);
}

TEST(FabricChoice, OfiEndsTheJobOnEveryRankWithTheReason) {
  const auto adjust = [](int rank, EngineConfig& config) {
    config.options.transport = "ofi";
    config.options.libfabric = rank == 1 ? "/no/such/libfabric.so" : SMDP_STRICT_PROVIDER;
  };
  const Cluster cluster({.hosts = {1, 1}, .adjust = adjust});
  for (const Status& status : cluster.opened()) {
    EXPECT_EQ(status.code(), Code::kUnsupported);
    EXPECT_EQ(status.message().find("SMDP_TRANSPORT=ofi: rank 1 (host host-1): libfabric cannot be opened"),
              0U)
        << status.message();
  }
}

TEST(FabricChoice, ALibraryThatIsTooOldOrNoLibfabricIsRefused) {
  const StrictEnvironment provider(StrictVariables{{"STRICT_VERSION", "1.13"}});
  const auto old = FabricLibrary::open(SMDP_STRICT_PROVIDER);
  EXPECT_EQ(old.status().code(), Code::kUnsupported);
  EXPECT_EQ(old.status().message(),
            "libfabric 1.13 is too old: the engine needs 1.14 or newer (or SMDP_TRANSPORT=tcp)");
  const auto other = FabricLibrary::open("libm.so.6");
  EXPECT_EQ(other.status().message(), "libm.so.6 is no libfabric: it lacks a function");
}

// Its provider emulates writes: without the writes of its device, and asked for an old interface.
TEST(FabricChoice, EfaWritesOneVectorAtATimeIfItsDeviceDoes) {
  FabricEndpoint::Wanted wanted;
  wanted.writes = true;
  wanted.sends = wanted.receives = 1;
  const auto open = [&](const char* device_writes, const char* version) {
    const StrictEnvironment provider(
        StrictVariables{{"STRICT_EFA_WRITES", device_writes}, {"STRICT_VERSION", version}});
    return std::move(*FabricEndpoint::open(*FabricLibrary::open(SMDP_STRICT_PROVIDER), wanted));
  };
  for (const char* device_writes : {"0", "1"}) {
    wanted.provider = "strict";
    const auto other = open(device_writes, "1.18");
    EXPECT_TRUE(other->can_write());
    EXPECT_EQ(other->write_parts(), 2U);
    wanted.provider = "efa";
    const auto efa = open(device_writes, "1.22");
    EXPECT_EQ(efa->can_write(), std::string(device_writes) == "1");
    EXPECT_EQ(efa->write_parts(), 1U);
    EXPECT_FALSE(open(device_writes, "1.17")->can_write());
  }
}

TEST(FabricChoice, TheHandlersOfSignalsStay) {
  static std::atomic<int> heard{0};
  const auto before = std::signal(SIGUSR2, [](int) { ++heard; });
  {
    Cluster cluster({.hosts = {1, 1}, .options = kStrict});
    ASSERT_TRUE(cluster.ok()) << cluster.opened()[0].message();
    std::raise(SIGUSR2);
  }
  std::signal(SIGUSR2, before);
  EXPECT_EQ(heard, 1);
}

TEST(FabricChoice, AProviderForOneHostIsRefused) {
  const auto library = FabricLibrary::open(SMDP_STRICT_PROVIDER);
  FabricEndpoint::Wanted wanted;
  wanted.provider = "shm";
  wanted.sends = wanted.receives = 1;
  const auto endpoint = FabricEndpoint::open(*library, wanted);
  EXPECT_EQ(endpoint.status().code(), Code::kUnsupported);
  EXPECT_EQ(endpoint.status().message(),
            "the engine does not use libfabric's provider shm, which connects only processes of one host "
            "(FI_PROVIDER='tcp;ofi_rxm' selects another)");
}

TEST(FabricChoice, ADeviceIsOfferedByItsDriver) {
  const std::filesystem::path root = std::filesystem::temp_directory_path() / "smdp-rdma-devices";
  std::filesystem::remove_all(root);
  Options options;
  options.transport = "auto";
  for (const auto& [device, driver] : {std::pair("mlx5_0", "mlx5_core"), std::pair("rdmap0s6", "efa")}) {
    EXPECT_EQ(fabric_offer(options, root), "");
    std::filesystem::create_directories(root / device / "device");
    std::filesystem::create_directory_symlink(std::string("/drivers/") + driver,
                                              root / device / "device/driver");
  }
  EXPECT_EQ(fabric_offer(options, root), "efa");
  EXPECT_EQ(fabric_offer(Options(), root), "");  // by default, none is asked for
  std::filesystem::remove_all(root);
}

TEST(FabricChoice, OneHostNeedsNoFabric) {
  const auto adjust = [](int, EngineConfig& config) {
    config.options.transport = "ofi";
    config.options.libfabric = "/no/such/libfabric.so";
  };
  const Cluster cluster({.hosts = {2}, .adjust = adjust});
  EXPECT_TRUE(cluster.ok()) << cluster.opened()[0].message();
}

// --- Faults ---

TEST(FabricFaults, ARankThatDiesDuringACallIsReportedWithinASecond) {
  Cluster cluster({.hosts = {1, 1, 1}, .options = kStrict});
  ASSERT_TRUE(cluster.ok());
  const std::vector<int> members = {0, 1, 2};
  const std::uint64_t group = cluster.group(members, "g");
  std::vector<Job> jobs;
  for (int rank = 0; rank < 2; ++rank) {
    jobs.push_back(float_job(Collective::kAllReduce, 4 << 20, 1));
  }
  for (int rank = 0; rank < 2; ++rank) {
    start(cluster, rank, group, members, jobs[static_cast<std::size_t>(rank)]);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const auto begin = steady_clock::now();
  cluster.engine(2).abandon();
  for (Job& job : jobs) {
    const Status status = finish(job, 10);
    EXPECT_EQ(status.code(), Code::kPeerLost);
    EXPECT_NE(status.message().find("rank 2 (host host-2) was lost: the connection was closed"),
              std::string::npos)
        << status.message();
  }
  EXPECT_LT(seconds_since(begin), 1);
}

// The frames of the failed call may still be read, while the memory of the caller is gone.
TEST(FabricFaults, AFailedCallNeitherUsesTheCallersMemoryNorHarmsOtherGroups) {
  Cluster cluster({.hosts = {2, 2}, .options = kStrict});
  ASSERT_TRUE(cluster.ok());
  const std::vector<int> members = everybody(cluster);
  const std::uint64_t other = cluster.group(members, "other");
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t group = cluster.group(members, "fails " + std::to_string(round));
    {
      std::vector<Job> jobs;
      for (std::size_t rank = 0; rank < members.size(); ++rank) {
        jobs.push_back(float_job(Collective::kAllReduce, 2 << 20, 1));
      }
      for (const int rank : members) {
        start(cluster, rank, group, members, jobs[static_cast<std::size_t>(rank)]);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(round));
      cluster.engine(round % 4).fail_group(group, {Code::kTimeout, "the test ends it"});
      for (Job& job : jobs) {
        (void)finish(job, 10);
      }
    }
    check_all_reduce(cluster, other, 300000, static_cast<std::uint32_t>(round));
  }
  cluster.close();
}

TEST(FabricFaults, ARankMayCloseAsSoonAsItsCallIsComplete) {
  for (int round = 0; round < 5; ++round) {
    Cluster cluster({.hosts = {1, 1, 1}, .options = kStrict});
    ASSERT_TRUE(cluster.ok());
    const std::vector<int> members = {0, 1, 2};
    const std::uint64_t group = cluster.group(members, "g");
    std::vector<Job> jobs;
    for (int rank = 0; rank < 3; ++rank) {
      jobs.push_back(float_job(Collective::kAllReduce, 500000, 1));
    }
    for (int rank = 0; rank < 3; ++rank) {
      start(cluster, rank, group, members, jobs[static_cast<std::size_t>(rank)]);
    }
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; ++rank) {
      threads.emplace_back([&, rank] {
        const Status status = finish(jobs[static_cast<std::size_t>(rank)]);
        EXPECT_TRUE(status.ok()) << status.message();
        cluster.engine(rank).close();
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }
}

// --- One port ---

class Received final : public FabricPort::Events {
 public:
  explicit Received(FabricPort& port) : port_(port) {}
  void received(std::uint32_t from, const std::optional<FrameHeader>& header, std::span<std::byte> payload,
                std::size_t buffer) override {
    froms.push_back(header ? static_cast<int>(from) : -1);
    places.push_back(payload.data());
    bytes += payload.size();
    port_.give_back(buffer, -1);
  }
  void sent(std::size_t, const Status& why) override {
    ++sends;
    failures += why.ok() ? 0 : 1;
  }
  void reposted(int, std::size_t) override {}

  std::vector<int> froms;
  std::vector<const std::byte*> places;  // of the payloads
  std::size_t bytes = 0;
  int sends = 0;
  int failures = 0;

 private:
  FabricPort& port_;
};

std::unique_ptr<FabricPort> open_port(std::uint64_t session, std::size_t payload_bytes,
                                      std::vector<int> writers = {}, std::size_t rails = 1,
                                      std::span<std::byte> shared = {}) {
  const auto library = FabricLibrary::open(SMDP_STRICT_PROVIDER);
  const std::array<std::byte, 16> token{};
  FabricPort::Wanted wanted;
  wanted.payload_bytes = payload_bytes;
  wanted.tag = fabric_tag(token, session);
  wanted.peers = std::max<std::size_t>(1, writers.size());
  wanted.rails = rails;
  wanted.shared = shared;
  wanted.writers = std::move(writers);
  auto port = FabricPort::open(*library, wanted);
  EXPECT_TRUE(port.ok()) << port.status().message();
  return std::move(*port);
}

// Sends one frame to `to` and polls both until it is sent and was received or dropped.
void send_one(FabricPort& from, Received& sender, FabricPort& to, Received& receiver, std::size_t payload,
              std::uint32_t slot = 0, std::uint32_t as = 7) {
  const auto place = from.endpoint().insert(*to.endpoint().address());
  const std::vector<std::byte> bytes(payload);
  auto staged = from.stage(bytes);
  ASSERT_TRUE(staged);
  FrameHeader header;
  header.type = FrameType::kPublish;
  header.sender = as;
  header.payload = header.bytes = payload;
  const int before = sender.sends;
  while (!(*from.send({*place, to.slots(), slot}, header, {staged->bytes.get(), payload}, staged->descriptor))
              .has_value()) {
  }
  for (int i = 0; i < 1000 && (sender.sends == before || i < 100); ++i) {
    ASSERT_TRUE(from.poll(sender).ok());
    ASSERT_TRUE(to.poll(receiver).ok());
  }
  ASSERT_EQ(sender.sends, before + 1);
}

TEST(FabricPort, AMessageOfAnotherSessionOrOfTooManyBytesIsDropped) {
  const auto ours = open_port(1, 4096);
  const auto same = open_port(1, 4096);
  const auto longer = open_port(1, 8192);
  const auto strange = open_port(2, 4096);
  Received at_ours(*ours);
  Received at_same(*same);
  Received at_longer(*longer);
  Received at_strange(*strange);
  send_one(*strange, at_strange, *ours, at_ours, 1000);
  EXPECT_TRUE(at_ours.froms.empty());
  send_one(*longer, at_longer, *ours, at_ours, 8192);
  EXPECT_TRUE(at_ours.froms.empty());
  send_one(*same, at_same, *ours, at_ours, 1000);
  EXPECT_EQ(at_ours.froms, std::vector{7});
  EXPECT_EQ(at_ours.bytes, 1000U);
}

TEST(FabricPort, AFrameIsWrittenIntoASlotOfItsSender) {
  const auto ours = open_port(1, 4096, {7, 8});
  const auto seven = open_port(1, 4096, {0});
  const auto strange = open_port(2, 4096, {0});
  ASSERT_TRUE(ours->writes());
  Received at_ours(*ours);
  Received at_seven(*seven);
  Received at_strange(*strange);
  send_one(*seven, at_seven, *ours, at_ours, 1000, 3);
  EXPECT_EQ(at_ours.froms, std::vector{7});
  EXPECT_EQ(at_ours.bytes, 1000U);
  // Of another session; into a slot that no rank has; into the slot of another rank.
  send_one(*strange, at_strange, *ours, at_ours, 1000, 3);
  send_one(*seven, at_seven, *ours, at_ours, 1000, ours->slots().count - 1);
  EXPECT_EQ(at_ours.froms, std::vector{7});
  send_one(*seven, at_seven, *ours, at_ours, 1000, static_cast<std::uint32_t>(ours->window()));
  EXPECT_EQ(at_ours.froms, (std::vector{7, -1}));
  EXPECT_EQ(at_ours.bytes, 1000U);
}

TEST(FabricPort, AnImmediateWithoutAFrameIsDropped) {
  const auto ours = open_port(1, 4096, {7});
  const auto seven = open_port(1, 4096, {0});
  Received at_ours(*ours);
  Received at_seven(*seven);
  send_one(*seven, at_seven, *ours, at_ours, 1000, 3);
  EXPECT_EQ(at_ours.froms.size(), 1U);
  // The write goes elsewhere, the immediate names the slot whose frame was taken.
  std::vector<std::byte> memory(4096);
  const auto region = *seven->endpoint().register_memory(memory);
  const auto place = *seven->endpoint().insert(*ours->endpoint().address());
  const iovec part{memory.data(), 8};
  void* descriptor = region.descriptor;
  fi::Context context{};
  const fi::RemotePart remote{ours->slots().base, 8, ours->slots().key};
  while (seven->endpoint().write(place, {&part, 1}, {&descriptor, 1}, remote, 3, &context) == -EAGAIN) {
  }
  std::array<FabricEndpoint::Completion, 1> done{};
  while (seven->endpoint().read(done) == 0) {
  }
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(ours->poll(at_ours).ok());
  }
  EXPECT_EQ(at_ours.froms.size(), 1U);
}

// As EFA's provider writes them: the two writes of a frame arrive in any order.
TEST(FabricPort, AFrameOfTwoWritesIsTakenOnceBothHaveArrived) {
  const StrictEnvironment provider(
      StrictVariables{{"STRICT_NAME", "efa"}, {"STRICT_EFA_WRITES", "1"}, {"STRICT_SEED", "5"}});
  const auto ours = open_port(1, 4096, {7});
  const auto seven = open_port(1, 4096, {0});
  ASSERT_TRUE(ours->writes());
  ASSERT_EQ(ours->endpoint().write_parts(), 1U);
  Received at_ours(*ours);
  Received at_seven(*seven);
  const auto place = *seven->endpoint().insert(*ours->endpoint().address());
  std::vector<std::byte> memory(4096);
  void* descriptor = seven->endpoint().register_memory(memory)->descriptor;
  const auto write = [&](std::uint32_t slot, std::size_t at, std::size_t bytes, std::uint32_t immediate) {
    const iovec part{memory.data(), bytes};
    fi::Context context{};
    const fi::RemotePart remote{ours->slots().base + slot * ours->slot_bytes() + at, bytes,
                                ours->slots().key};
    while (seven->endpoint().write(place, {&part, 1}, {&descriptor, 1}, remote, immediate, &context) ==
           -EAGAIN) {
    }
    std::array<FabricEndpoint::Completion, 1> done{};
    while (seven->endpoint().read(done) == 0) {
    }
    for (int i = 0; i < 100; ++i) {
      ASSERT_TRUE(ours->poll(at_ours).ok());
    }
  };
  constexpr std::size_t kPayloadAt = 128;
  const std::array<std::byte, 16> token{};
  std::ranges::copy(fabric_tag(token, 1), memory.begin());
  FrameHeader header;
  header.type = FrameType::kPublish;
  header.sender = 7;
  header.payload = header.bytes = 1000;
  encode(header, std::span(memory).subspan<sizeof(FabricPort::Tag), kFrameBytes>());
  const auto write_prefix = [&](std::uint32_t slot) {
    write(slot, kPayloadAt - FabricPort::kPrefixBytes, FabricPort::kPrefixBytes,
          seven->immediate(slot, false));
  };
  const auto write_payload = [&](std::uint32_t slot) {
    write(slot, kPayloadAt, 1000, seven->immediate(slot, true));
  };
  const auto strange = open_port(2, 4096, {0});  // of another session
  for (int round = 0; round < 2; ++round) {      // the slots are free again after the first
    write(3, kPayloadAt, 8, strange->immediate(3, true));
    write(4, kPayloadAt, 8, strange->immediate(4, false));
    write_prefix(3);
    write_payload(4);
    EXPECT_TRUE(at_ours.froms.empty());
    write_payload(3);
    EXPECT_EQ(at_ours.froms, std::vector{7});
    write_prefix(4);
    EXPECT_EQ(at_ours.froms, (std::vector{7, 7}));
    at_ours.froms.clear();
  }
  EXPECT_EQ(at_ours.bytes, 4000U);
  header.payload = header.bytes = 0;
  encode(header, std::span(memory).subspan<sizeof(FabricPort::Tag), kFrameBytes>());
  write_prefix(5);
  EXPECT_EQ(at_ours.froms, std::vector{7});
  EXPECT_EQ(at_ours.bytes, 4000U);
}

TEST(FabricPort, AFrameOfTwoWritesThatCannotBeDeliveredFailsOnce) {
  const StrictEnvironment provider(StrictVariables{{"STRICT_NAME", "efa"}, {"STRICT_EFA_WRITES", "1"}});
  const auto seven = open_port(1, 4096, {0});
  auto ours = open_port(1, 4096, {7});
  const FabricPort::Target target{*seven->endpoint().insert(*ours->endpoint().address()), ours->slots(), 0};
  ours.reset();
  Received at_seven(*seven);
  const std::vector<std::byte> bytes(1000);
  FrameHeader header;
  header.sender = 7;
  header.payload = 1000;
  const std::size_t tickets = seven->tickets();
  for (std::size_t sent = 0; sent < 2 * tickets;) {
    const auto staged = seven->stage(bytes);
    sent += staged && seven->send(target, header, {staged->bytes.get(), bytes.size()}, staged->descriptor)
                          ->has_value()
                ? 1
                : 0;
    ASSERT_TRUE(seven->poll(at_seven).ok());
  }
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(seven->poll(at_seven).ok());
  }
  EXPECT_EQ(at_seven.failures, static_cast<int>(2 * tickets));
  EXPECT_EQ(at_seven.sends, at_seven.failures);
  EXPECT_EQ(seven->in_flight(), 0U);
}

TEST(FabricPort, ASlotThatIsLentIsReplacedByAnother) {
  const auto ours = open_port(1, 4096, {7});
  const auto seven = open_port(1, 4096, {0});
  Received at_ours(*ours);
  Received at_seven(*seven);
  const FabricPort::Lent lent = ours->lend(3);
  ASSERT_TRUE(lent.owner);
  EXPECT_NE(lent.successor, 3U);
  send_one(*seven, at_seven, *ours, at_ours, 1000, 3);
  EXPECT_TRUE(at_ours.froms.empty());
  send_one(*seven, at_seven, *ours, at_ours, 1000, static_cast<std::uint32_t>(lent.successor));
  EXPECT_EQ(at_ours.froms, std::vector{7});
}

// Takes frames as OfiTransport does: a frame has its sender's credit back at once where its buffer is lent.
class Lending final : public FabricPort::Events {
 public:
  explicit Lending(FabricPort& port) : port_(port) {}
  void received(std::uint32_t, const std::optional<FrameHeader>&, std::span<std::byte>,
                std::size_t buffer) override {
    FabricPort::Lent taken = port_.lend(buffer);
    if (taken.owner) {
      lent.push_back(std::move(taken.owner));
      ++credits;
    } else {
      port_.give_back(buffer, 0);
    }
  }
  void sent(std::size_t, const Status&) override {}
  void reposted(int, std::size_t) override { ++credits; }

  std::deque<std::shared_ptr<const void>> lent;
  std::size_t credits = 0;

 private:
  FabricPort& port_;
};

// The strict provider refuses every tenth receive at first, and ends the process when a message finds none.
class LentBuffers : public ::testing::TestWithParam<std::tuple<std::size_t, std::size_t>> {};

TEST_P(LentBuffers, LeaveOneForEverySenderWithCredit) {
  const auto [rails, payload_bytes] = GetParam();
  const auto ours = open_port(1, payload_bytes, {}, rails);
  const auto seven = open_port(1, payload_bytes, {}, rails);
  Lending at_ours(*ours);
  Received at_seven(*seven);
  const auto place = seven->endpoint().insert(*ours->endpoint().address());
  FrameHeader header;
  header.type = FrameType::kPublish;
  header.sender = 7;
  const std::size_t kept = std::max<std::size_t>(32 / rails, 4) * 5 / 8;  // of those that may be lent
  std::size_t sent = 0;
  while (sent < 20000) {
    while (sent - at_ours.credits < ours->window() &&
           (*seven->send({*place, {}, 0}, header, {}, nullptr)).has_value()) {
      ++sent;
    }
    ASSERT_TRUE(seven->poll(at_seven).ok());
    ASSERT_TRUE(ours->poll(at_ours).ok());
    for (std::size_t i = 0; i < 3 && at_ours.lent.size() > kept; ++i) {
      at_ours.lent.pop_front();
    }
  }
  EXPECT_EQ(at_seven.failures, 0);
}

INSTANTIATE_TEST_SUITE_P(RailsAndPayloads, LentBuffers,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 8),
                                            ::testing::Values(4096, 256U << 10U, 1U << 20U, 4U << 20U)));

TEST(FabricPort, ReceivesInSharedMemoryIfThatIsLargeEnough) {
  constexpr std::size_t kPayload = 4096;
  const std::size_t needed =
      open_port(1, kPayload, {7})->slots().count * open_port(1, kPayload)->slot_bytes();
  std::vector<std::byte> shared(needed);
  for (const std::size_t missing : {std::size_t{0}, std::size_t{1}}) {
    const auto ours = open_port(1, kPayload, {7}, 1, std::span(shared).subspan(missing));
    const auto seven = open_port(1, kPayload, {0});
    EXPECT_EQ(ours->shared_bytes(), missing == 0 ? needed : 0U);
    Received at_ours(*ours);
    Received at_seven(*seven);
    send_one(*seven, at_seven, *ours, at_ours, 1000, 3);
    ASSERT_EQ(at_ours.froms, std::vector{7});
    const std::less<> before;
    const std::byte* const payload = at_ours.places.front();
    const bool is_in_shared = !before(payload, shared.data()) && before(payload, shared.data() + needed);
    EXPECT_EQ(is_in_shared, missing == 0);
  }
}

TEST(FabricPort, ABufferThatWasLentOutlivesThePort) {
  auto port = open_port(1, 4096);
  std::vector<std::shared_ptr<const void>> lent;
  while (auto owner = port->lend(lent.size()).owner) {
    lent.push_back(std::move(owner));
  }
  EXPECT_FALSE(lent.empty());
  port.reset();
  lent.clear();
}

}  // namespace
}  // namespace smdp::testing
