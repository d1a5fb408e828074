// Several devices for each rank: which ones, and which frames use them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "all_reduce.h"
#include "cluster.h"
#include "net/fabric/choice.h"
#include "net/fabric/rails.h"

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
  // `place`: the bridges, such as pci0000:10/0000:10:00.0; `address`: of the device.
  void gpu(const std::string& place, const std::string& address, int numa_node) const {
    add(place, address, numa_node, "0x10de", "0x030200");
  }
  void efa(const std::string& place, const std::string& address, int numa_node,
           const std::string& name) const {
    const auto device = add(place, address, numa_node, "0x1d0f", "0x020000");
    std::filesystem::create_directories(root_ / "class/infiniband" / name);
    std::filesystem::create_directory_symlink(device, root_ / "class/infiniband" / name / "device");
  }

 private:
  std::filesystem::path add(const std::string& place, const std::string& address, int numa_node,
                            const char* vendor, const char* kind) const {
    const auto device = root_ / "devices" / place / address;
    std::filesystem::create_directories(device);
    std::filesystem::create_directories(root_ / "bus/pci/devices");
    std::ofstream(device / "vendor") << vendor << "\n";
    std::ofstream(device / "class") << kind << "\n";
    std::ofstream(device / "numa_node") << numa_node << "\n";
    std::filesystem::create_directory_symlink(device, root_ / "bus/pci/devices" / address);
    return device;
  }

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

// As ml.p4d.24xlarge: four PCI switches, each with two GPUs and one EFA device. `order`: the switch that the
// EFA device number i is below.
std::vector<std::string> add_p4d(const Sysfs& sysfs, const std::vector<int>& order) {
  std::vector<std::string> devices(4);
  for (int one = 0; one < 4; ++one) {
    const std::string bus = hex(16 * (one + 1));
    const std::string root = "pci0000:" + bus;
    const std::string bridge = root + "/0000:" + bus + ":00.0";
    sysfs.gpu(bridge, "0000:" + bus + ":1c.0", one / 2);
    sysfs.gpu(bridge, "0000:" + bus + ":1d.0", one / 2);
    const std::string name = "rdmap" + std::to_string(16 * (one + 1)) + "s27";
    sysfs.efa(bridge, "0000:" + bus + ":1b.0", one / 2, name);
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

// As ml.p5.48xlarge: 32 EFA devices, four below the switch of each GPU.
TEST(Rails, OnP5ARankUsesTheFourDevicesBelowTheSwitchOfItsGpu) {
  const Sysfs sysfs;
  std::vector<std::string> devices;
  Rails expected;
  for (int gpu = 0; gpu < 8; ++gpu) {
    const std::string bus = hex(0x50 + gpu * 8);
    const std::string bridge = "pci0000:" + bus + "/0000:" + bus + ":00.0";
    sysfs.gpu(bridge, "0000:" + bus + ":1d.0", gpu / 4);
    expected.emplace_back();
    for (int card = 0; card < 4; ++card) {
      const std::string name = "rdmap" + std::to_string(0x50 + gpu * 8) + "s" + std::to_string(card);
      sysfs.efa(bridge, "0000:" + bus + ":0" + std::to_string(card) + ".0", gpu / 4, name);
      expected.back().push_back(devices.size());
      devices.push_back(name + "-rdm");
    }
  }
  EXPECT_EQ(rails_in(sysfs, devices, 8), expected);
  EXPECT_EQ(rails_in(sysfs, devices, 8, 1), (Rails{{0}, {4}, {8}, {12}, {16}, {20}, {24}, {28}}));
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
  EXPECT_EQ(assign_rails(unknown, {}, 1, 4), (Rails{{0, 0, 1, 1}}));
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

struct StrictDevices {
  explicit StrictDevices(const char* count) { ::setenv("STRICT_DEVICES", count, 1); }
  ~StrictDevices() { ::unsetenv("STRICT_DEVICES"); }
  StrictDevices(const StrictDevices&) = delete;
  StrictDevices& operator=(const StrictDevices&) = delete;
};

struct Setting {
  std::vector<int> hosts;
  const char* devices;
  const char* rails;
  const char* writes;
  const char* notice;
};

class SeveralRails : public ::testing::TestWithParam<Setting> {};

TEST_P(SeveralRails, GiveTheResultsOfTheReference) {
  const Setting& setting = GetParam();
  const StrictDevices devices(setting.devices);
  std::mutex mutex;
  std::string notices;
  const auto adjust = [&](int, EngineConfig& config) {
    config.log = [&](LogLevel level, const std::string& text) {
      const std::lock_guard lock(mutex);
      notices += level == LogLevel::kNotice ? text + "\n" : "";
    };
  };
  Cluster cluster({.hosts = setting.hosts,
                   .options = {{"SMDP_TRANSPORT", "ofi"},
                               {"SMDP_LIBFABRIC", SMDP_STRICT_PROVIDER},
                               {"SMDP_FABRIC_RAILS", setting.rails},
                               {"SMDP_FABRIC_WRITES", setting.writes},
                               {"SMDP_PIECE_KIB", "16"}},
                   .adjust = adjust});
  ASSERT_TRUE(cluster.ok()) << cluster.opened()[0].message();
  EXPECT_NE(notices.find(setting.notice), std::string::npos) << notices;
  const std::uint64_t group = cluster.group(everybody(cluster), "all");
  for (std::uint32_t round = 0; round < 5; ++round) {
    check_all_reduce(cluster, group, 400001, round * 100);
  }
}

const std::vector<Setting> kSettings = {
    {{1, 1}, "4", "0", "1", "(devices strict0, strict1, strict2, strict3 on this rank), by writes"},
    {{1, 1}, "4", "0", "0", "(devices strict0, strict1, strict2, strict3 on this rank), by messages"},
    {{2, 2}, "4", "0", "1", "(devices strict0, strict1 on this rank), by writes"},
    {{2, 2}, "1", "0", "1", "(device strict0 on this rank), by writes"},
    // The ranks of the larger host have one rail each, so all ranks use one.
    {{3, 1}, "4", "0", "1", "(device strict0 on this rank), by writes"},
    {{1, 1, 1},
     "1",
     "8",
     "0",
     "(devices strict0, strict0, strict0, strict0, strict0, strict0, strict0, strict0 on this rank)"},
};

INSTANTIATE_TEST_SUITE_P(Layouts, SeveralRails, ::testing::ValuesIn(kSettings));

}  // namespace
}  // namespace smdp::testing
