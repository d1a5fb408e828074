#include "net/fabric/rails.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <ranges>
#include <string_view>
#include <system_error>
#include <tuple>

namespace smdp {
namespace {

constexpr std::size_t kOtherRoot = 100;
constexpr std::size_t kOtherNode = 200;
constexpr std::string_view kNvidia = "0x10de";
constexpr std::string_view kDisplay = "0x03";  // the base class of GPUs, with a screen or without

std::string line_of(const std::filesystem::path& file) {
  std::string line;
  std::ifstream stream(file);
  std::getline(stream, line);
  return line;
}

// 0000:10:1c.0, or a root: pci0000:10.
bool is_pci_address(const std::string& name) {
  return name.starts_with("pci") || std::ranges::count(name, ':') == 2;
}

std::vector<std::filesystem::path> entries(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> found;
  std::error_code none;
  for (std::filesystem::directory_iterator one(folder, none), end; !none && one != end; one.increment(none)) {
    found.push_back(one->path());
  }
  std::ranges::sort(found);
  return found;
}

}  // namespace

PciPlace pci_place(const std::filesystem::path& folder) {
  PciPlace place;
  std::error_code failed;
  const auto real = std::filesystem::canonical(folder, failed);
  if (failed) {
    return place;
  }
  for (const auto& part : real) {
    if (is_pci_address(part.string())) {
      place.path.push_back(part.string());
    }
  }
  const std::string node = line_of(real / "numa_node");
  std::from_chars(node.data(), node.data() + node.size(), place.numa_node);
  return place;
}

std::vector<PciPlace> gpus_of(const std::filesystem::path& sysfs) {
  std::vector<PciPlace> gpus;
  for (const auto& device : entries(sysfs / "bus/pci/devices")) {
    if (line_of(device / "vendor") == kNvidia && line_of(device / "class").starts_with(kDisplay)) {
      gpus.push_back(pci_place(device));
    }
  }
  return gpus;
}

PciPlace place_of_device(const std::filesystem::path& sysfs, const std::string& device) {
  for (const auto& one : entries(sysfs / "class/infiniband")) {
    const std::string name = one.filename().string();
    if (device == name || device.starts_with(name + "-")) {
      return pci_place(one / "device");
    }
  }
  return {};
}

std::size_t distance(const PciPlace& one, const PciPlace& other) {
  const auto differ = std::ranges::mismatch(one.path, other.path);
  if (differ.in1 != one.path.begin()) {
    return static_cast<std::size_t>((one.path.end() - differ.in1) + (other.path.end() - differ.in2));
  }
  return one.numa_node >= 0 && one.numa_node == other.numa_node ? kOtherRoot : kOtherNode;
}

std::vector<std::vector<std::size_t>> assign_rails(std::span<const PciPlace> devices,
                                                   std::span<const PciPlace> gpus, std::size_t ranks,
                                                   std::size_t rails) {
  const std::size_t count = devices.size();
  const std::size_t each = rails > 0 ? rails : std::clamp<std::size_t>(count / ranks, 1, kMostRails);
  const std::size_t share = (ranks * each + count - 1) / count;  // of one device, in ranks
  // Of equal devices, the rank takes those of its place among the ranks.
  const auto first = [&](std::size_t rank) { return rank * count / ranks; };
  std::vector<std::tuple<std::size_t, std::size_t, std::size_t, std::size_t>> pairs;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    for (std::size_t device = 0; device < count; ++device) {
      const std::size_t apart = gpus.size() < ranks ? 0 : distance(gpus[rank], devices[device]);
      pairs.emplace_back(apart, (device + count - first(rank)) % count, rank, device);
    }
  }
  std::ranges::sort(pairs);
  std::vector<std::vector<std::size_t>> assigned(ranks);
  std::vector<std::size_t> used(count);
  for (const auto& [apart, turn, rank, device] : pairs) {
    if (assigned[rank].size() < each && used[device] < share) {
      assigned[rank].push_back(device);
      ++used[device];
    }
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    while (assigned[rank].size() < each) {
      // A device that the rank lacks, else one that it has: the least used.
      const auto order = [&](std::size_t device) {
        return std::tuple(std::ranges::count(assigned[rank], device), used[device],
                          (device + count - first(rank)) % count);
      };
      const auto devices_of_host = std::views::iota(std::size_t{0}, count);
      const std::size_t least = *std::ranges::min_element(devices_of_host, {}, order);
      assigned[rank].push_back(least);
      ++used[least];
    }
  }
  return assigned;
}

}  // namespace smdp
