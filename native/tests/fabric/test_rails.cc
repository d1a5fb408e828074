// Several devices for each rank: which ones, and which frames use them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "cluster.h"
#include "net/fabric/choice.h"
#include "net/fabric/rails.h"
#include "strict.h"

namespace smdp::testing {
namespace {

using Rails = std::vector<std::vector<std::size_t>>;

// A tree as /sys, with PCI devices below bridges.
class Sysfs {
 public:
  Sysfs() {
    std::string pattern = (std::filesystem::temp_directory_path() / "sysfs.XXXXXX").string();
    root_ = ::mkdtemp(pattern.data());
  }
  ~Sysfs() { std::filesystem::remove_all(root_); }
  Sysfs(const Sysfs&) = delete;
  Sysfs& operator=(const Sysfs&) = delete;

  [[nodiscard]] const std::filesystem::path& root() const { return root_; }
  struct Kind {
    const char* vendor;
    const char* device_class;
  };
  // `place`: the root and the bridges, such as pci0000:10/0000:10:00.0; `address`: of the device.
  std::filesystem::path device(const std::string& place, const std::string& address, int numa_node,
                               Kind kind) const {
    const auto device = root_ / "devices" / place / address;
    std::filesystem::create_directories(device);
    std::filesystem::create_directories(root_ / "bus/pci/devices");
    std::ofstream(device / "vendor") << kind.vendor << "\n";
    std::ofstream(device / "class") << kind.device_class << "\n";
    std::ofstream(device / "numa_node") << numa_node << "\n";
    std::filesystem::create_directory_symlink(device, root_ / "bus/pci/devices" / address);
    return device;
  }
  void gpu(const std::string& place, const std::string& address, int numa_node) const {
    device(place, address, numa_node, {"0x10de", "0x030200"});
  }
  void efa(const std::string& place, const std::string& address, int numa_node,
           const std::string& name) const {
    const auto made = device(place, address, numa_node, {"0x1d0f", "0x020000"});
    std::filesystem::create_directories(root_ / "class/infiniband" / name);
    std::filesystem::create_directory_symlink(made, root_ / "class/infiniband" / name / "device");
  }

 private:
  std::filesystem::path root_;
};

Rails rails_in(const Sysfs& sysfs, const std::vector<std::string>& devices, std::size_t ranks,
               std::size_t rails = 0) {
  std::vector<PciPlace> places;
  for (const std::string& device : devices) {
    places.push_back(place_of_device(sysfs.root(), device));
  }
  return assign_rails(places, gpus_of(sysfs.root()), ranks, rails);
}

std::string hex(int number) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  return {kDigits[static_cast<std::size_t>(number / 16)], kDigits[static_cast<std::size_t>(number % 16)]};
}

// As lspci prints ml.p4d.24xlarge: no bridge is visible, and the GPUs and the EFA device of a switch have one
// root. `order`: the switch that the EFA device number i is below.
std::vector<std::string> add_p4d(const Sysfs& sysfs, const std::vector<int>& order) {
  sysfs.device("pci0000:00", "0000:00:03.0", 0, {"0x1d0f", "0x030000"});  // the console
  for (const char* const address : {"0000:80:1a.0", "0000:80:1b.0", "0000:80:1c.0"}) {
    sysfs.device("pci0000:80", address, 1, {"0x10de", "0x068000"});  // NVSwitch
  }
  const std::vector<std::string> buses = {"10", "20", "90", "a0"};
  std::vector<std::string> devices(buses.size());
  for (int one = 0; one < 4; ++one) {
    const std::string& bus = buses[static_cast<std::size_t>(one)];
    const std::string root = "pci0000:" + bus;
    sysfs.device(root, "0000:" + bus + ":00.0", one / 2, {"0x1d0f", "0x020000"});  // ENA
    const std::string name = "rdmap" + std::to_string(std::stoi(bus, nullptr, 16)) + "s27";
    sysfs.efa(root, "0000:" + bus + ":1b.0", one / 2, name);
    sysfs.gpu(root, "0000:" + bus + ":1c.0", one / 2);
    sysfs.gpu(root, "0000:" + bus + ":1d.0", one / 2);
    devices[static_cast<std::size_t>(std::ranges::find(order, one) - order.begin())] = name + "-rdm";
  }
  return devices;
}

TEST(Rails, OnP4dARankUsesTheDeviceBelowTheSwitchOfItsGpu) {
  const Sysfs sysfs;
  EXPECT_EQ(rails_in(sysfs, add_p4d(sysfs, {0, 1, 2, 3}), 8),
            (Rails{{0}, {0}, {1}, {1}, {2}, {2}, {3}, {3}}));
}

TEST(Rails, TheOrderInWhichLibfabricNamesTheDevicesDoesNotMatter) {
  const Sysfs sysfs;
  EXPECT_EQ(rails_in(sysfs, add_p4d(sysfs, {3, 1, 0, 2}), 8),
            (Rails{{2}, {2}, {1}, {1}, {3}, {3}, {0}, {0}}));
}

TEST(Rails, OnP3dnAllRanksUseTheOneDevice) {
  const Sysfs sysfs;
  for (int gpu = 0; gpu < 8; ++gpu) {
    sysfs.gpu("pci0000:00", "0000:00:" + hex(0x16 + gpu) + ".0", gpu / 4);
  }
  sysfs.efa("pci0000:00", "0000:00:06.0", 0, "rdmap0s6");
  EXPECT_EQ(rails_in(sysfs, {"rdmap0s6-rdm"}, 8), Rails(8, {0}));
}

// As ml.p5.48xlarge: 32 EFA devices, four below the switch of each GPU, each behind a port of the switch.
TEST(Rails, OnP5ARankUsesTheFourDevicesBelowTheSwitchOfItsGpu) {
  const Sysfs sysfs;
  std::vector<std::string> devices;
  Rails expected(8);
  // The devices have lower addresses than the GPU of their switch, and libfabric names the last switch first.
  for (int gpu = 7; gpu >= 0; --gpu) {
    const int bus = 0x4f + gpu * 17;
    const std::string up = "0000:" + hex(bus - 10);
    const std::string switch_of_gpu = "pci0000:" + hex(bus - 11) + "/" + up + ":00.0";
    for (int card = 0; card < 5; ++card) {
      const std::string port = switch_of_gpu + "/" + up + ":0" + std::to_string(card + 1) + ".0";
      const std::string address = "0000:" + hex(bus + card) + ":00.0";
      if (card == 4) {
        sysfs.gpu(port, address, gpu / 4);
        continue;
      }
      const std::string name = "rdmap" + std::to_string(bus + card) + "s0";
      sysfs.efa(port, address, gpu / 4, name);
      expected[static_cast<std::size_t>(gpu)].push_back(devices.size());
      devices.push_back(name + "-rdm");
    }
  }
  EXPECT_EQ(rails_in(sysfs, devices, 8), expected);
  EXPECT_EQ(rails_in(sysfs, devices, 8, 1), (Rails{{28}, {24}, {20}, {16}, {12}, {8}, {4}, {0}}));
}

// The job uses the first ones, where another rank has fewer.
TEST(Rails, TheNearestComesFirst) {
  const Sysfs sysfs;
  sysfs.gpu("pci0000:10", "0000:10:1c.0", 0);
  sysfs.efa("pci0000:30", "0000:30:1b.0", 1, "rdmap48s27");
  sysfs.efa("pci0000:20", "0000:20:1b.0", 0, "rdmap32s27");
  sysfs.efa("pci0000:10", "0000:10:1b.0", 0, "rdmap16s27");
  EXPECT_EQ(rails_in(sysfs, {"rdmap48s27-rdm", "rdmap32s27-rdm", "rdmap16s27-rdm"}, 1), (Rails{{2, 1, 0}}));
}

TEST(Rails, WhereNoSwitchIsSharedTheNumaNodeDecides) {
  const Sysfs sysfs;
  sysfs.gpu("pci0000:10", "0000:10:1c.0", 1);
  sysfs.gpu("pci0000:20", "0000:20:1c.0", 0);
  sysfs.efa("pci0000:30", "0000:30:1b.0", 0, "rdmap48s27");
  sysfs.efa("pci0000:40", "0000:40:1b.0", 1, "rdmap64s27");
  EXPECT_EQ(rails_in(sysfs, {"rdmap48s27-rdm", "rdmap64s27-rdm"}, 2), (Rails{{1}, {0}}));
}

TEST(Rails, WithoutGpusNeighbouringRanksUseNeighbouringDevices) {
  const std::vector<PciPlace> unknown(4);
  EXPECT_EQ(assign_rails(unknown, {}, 8, 0), (Rails{{0}, {0}, {1}, {1}, {2}, {2}, {3}, {3}}));
  EXPECT_EQ(assign_rails(unknown, {}, 2, 0), (Rails{{0, 1}, {2, 3}}));
  EXPECT_EQ(assign_rails(unknown, {}, 3, 0), (Rails{{0}, {1}, {2}}));
  EXPECT_EQ(assign_rails(std::vector<PciPlace>(32), {}, 1, 0)[0].size(), kMostRails);
}

TEST(Rails, MoreRailsThanDevicesUseDevicesTwice) {
  const std::vector<PciPlace> unknown(2);
  EXPECT_EQ(assign_rails(unknown, {}, 1, 4), (Rails{{0, 1, 0, 1}}));
  EXPECT_EQ(assign_rails(std::vector<PciPlace>(1), {}, 2, 3), (Rails{{0, 0, 0}, {0, 0, 0}}));
}

// 3 devices below the roots a, b, b; GPUs below b, b, c.
TEST(Rails, ARankUsesNoDeviceTwiceWhileAnotherIsLeft) {
  const Sysfs sysfs;
  sysfs.gpu("pci0000:10", "0000:10:1c.0", 0);
  sysfs.gpu("pci0000:10", "0000:10:1d.0", 0);
  sysfs.gpu("pci0000:30", "0000:30:1c.0", 0);
  sysfs.efa("pci0000:20", "0000:20:1b.0", 0, "rdmap32s27");
  sysfs.efa("pci0000:10", "0000:10:1a.0", 0, "rdmap16s26");
  sysfs.efa("pci0000:10", "0000:10:1b.0", 0, "rdmap16s27");
  for (const auto& rails : rails_in(sysfs, {"rdmap32s27-rdm", "rdmap16s26-rdm", "rdmap16s27-rdm"}, 3, 2)) {
    ASSERT_EQ(rails.size(), 2U);
    EXPECT_NE(rails[0], rails[1]);
  }
}

// Every layout: each rank gets as many as all, and the ranks of one device are at most one share.
TEST(Rails, NoDeviceHasMoreRanksThanItsShare) {
  for (std::size_t devices = 1; devices <= 16; ++devices) {
    for (std::size_t ranks = 1; ranks <= 16; ++ranks) {
      const Rails rails = assign_rails(std::vector<PciPlace>(devices), {}, ranks, 0);
      const std::size_t each = std::clamp<std::size_t>(devices / ranks, 1, kMostRails);
      std::vector<std::size_t> used(devices);
      for (const auto& one : rails) {
        EXPECT_EQ(one.size(), each) << devices << " " << ranks;
        for (const std::size_t device : one) {
          ++used[device];
        }
      }
      EXPECT_LE(std::ranges::max(used), (ranks * each + devices - 1) / devices) << devices << " " << ranks;
    }
  }
}

// --- In a job ---

struct Setting {
  std::vector<int> hosts;
  StrictVariables provider;
  const char* rails;
  const char* writes;
  const char* notice;
};

std::map<std::string, std::string> options_of(const char* rails, const char* writes) {
  return {{"SMDP_TRANSPORT", "ofi"},
          {"SMDP_LIBFABRIC", SMDP_STRICT_PROVIDER},
          {"SMDP_FABRIC_RAILS", rails},
          {"SMDP_FABRIC_WRITES", writes},
          {"SMDP_PIECE_KIB", "16"}};
}

class SeveralRailsOf : public ::testing::TestWithParam<Setting> {};

TEST_P(SeveralRailsOf, GiveTheResultsOfTheReference) {
  const Setting& setting = GetParam();
  const StrictEnvironment provider(setting.provider);
  Cluster cluster({.hosts = setting.hosts, .options = options_of(setting.rails, setting.writes)});
  ASSERT_TRUE(cluster.ok()) << cluster.opened()[0].message();
  EXPECT_NE(cluster.notices().find(setting.notice), std::string::npos) << cluster.notices();
  const std::uint64_t group = cluster.group(everybody(cluster), "all");
  for (std::uint32_t round = 0; round < 5; ++round) {
    check_all_reduce(cluster, group, 400001, round * 100);
  }
}

TEST(SeveralRanks, ShareTheDevicesOfTheirHost) {
  const StrictEnvironment provider(StrictVariables{{"STRICT_DEVICES", "4"}});
  Cluster cluster({.hosts = {2, 2}, .options = options_of("0", "1")});
  ASSERT_TRUE(cluster.ok()) << cluster.opened()[0].message();
  for (const char* const device : {"strict0", "strict1", "strict2", "strict3"}) {
    EXPECT_EQ(strict_open_endpoints(device), 2U) << device;
  }
}

// Ranks 0 and 1 are to use the device 0, ranks 2 and 3 the device 1.
TEST(SeveralRanks, UseAnotherDeviceWhereTheirsDoesNotOpen) {
  const StrictEnvironment provider(StrictVariables{{"STRICT_DEVICES", "2"}, {"STRICT_REFUSES", "strict1"}});
  Cluster cluster({.hosts = {2, 2}, .options = options_of("0", "1")});
  ASSERT_TRUE(cluster.ok()) << cluster.opened()[0].message();
  EXPECT_EQ(strict_open_endpoints("strict0"), 4U);
  EXPECT_NE(joined(cluster.warnings())
                .find("strict1 did not open (" + strict_name() +
                      ": creating the endpoint failed: No such device): this rank uses strict0 instead"),
            std::string::npos)
      << joined(cluster.warnings());
  check_all_reduce(cluster, cluster.group(everybody(cluster), "all"), 400001, 1);
}

TEST(SeveralRails, ARailThatDoesNotOpenLeavesTheOthers) {
  const StrictEnvironment provider(StrictVariables{{"STRICT_DEVICES", "3"}, {"STRICT_REFUSES", "strict1"}});
  Cluster cluster({.hosts = {1, 1}, .options = options_of("0", "1")});
  ASSERT_TRUE(cluster.ok()) << cluster.opened()[0].message();
  EXPECT_NE(cluster.notices().find("(devices strict0, strict2 on this rank), by writes"), std::string::npos);
  EXPECT_NE(joined(cluster.warnings()).find("this rank uses 2 of its 3 devices"), std::string::npos)
      << joined(cluster.warnings());
  check_all_reduce(cluster, cluster.group(everybody(cluster), "all"), 400001, 1);
}

TEST(SeveralRails, WithoutADeviceThatOpensThereIsNoFabric) {
  const StrictEnvironment provider(StrictVariables{{"STRICT_REFUSES", "strict0"}});
  Cluster cluster({.hosts = {1, 1}, .options = options_of("0", "1")});
  EXPECT_EQ(cluster.opened()[0].message(),
            "SMDP_TRANSPORT=ofi: rank 0 (host host-0): " + strict_name() +
                ": creating the endpoint failed: No such device; SMDP_TRANSPORT=tcp needs no fabric");
}

TEST(SeveralRails, EachIsProbedBeforeTheJobUsesIt) {
  const StrictEnvironment provider(StrictVariables{{"STRICT_DEVICES", "2"}, {"STRICT_UNPLUGGED", "strict1"}});
  Cluster cluster({.hosts = {1, 1}, .options = options_of("0", "1")});
  EXPECT_EQ(cluster.opened()[0].message(),
            "SMDP_TRANSPORT=ofi: rank 0 (host host-0): no frame reaches rank 1 (host host-1) over rail 1 "
            "(here the device strict1): the fabric could not deliver a frame: No route to host; "
            "SMDP_TRANSPORT=tcp needs no fabric");
}

const std::vector<Setting> kSettings = {
    {{1, 1},
     {{"STRICT_DEVICES", "4"}},
     "0",
     "1",
     "(devices strict0, strict1, strict2, strict3 on this rank), by writes"},
    {{1, 1},
     {{"STRICT_DEVICES", "4"}},
     "0",
     "0",
     "(devices strict0, strict1, strict2, strict3 on this rank), by messages"},
    {{2, 2}, {{"STRICT_DEVICES", "4"}}, "0", "1", "(devices strict0, strict1 on this rank), by writes"},
    {{2, 2}, {}, "0", "1", "(device strict0 on this rank), by writes"},
    // A rank sends in the same way over all its rails.
    {{1, 1},
     {{"STRICT_DEVICES", "2"}, {"STRICT_WRITES", "strict0"}},
     "0",
     "1",
     "(devices strict0, strict1 on this rank), by messages"},
    // The ranks of the larger host have one rail each, so all ranks use one.
    {{3, 1}, {{"STRICT_DEVICES", "4"}}, "0", "1", "(device strict0 on this rank), by writes"},
    {{1, 1, 1},
     {},
     "8",
     "0",
     "(devices strict0, strict0, strict0, strict0, strict0, strict0, strict0, strict0 on this rank)"},
};

INSTANTIATE_TEST_SUITE_P(Layouts, SeveralRailsOf, ::testing::ValuesIn(kSettings));

}  // namespace
}  // namespace smdp::testing
