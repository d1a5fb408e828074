// Which devices of a fabric each rank of a host uses. A device that a rank uses is a rail of the rank.
//
// The ranks of a host do not talk about it: each computes the same answer for all of them, from the
// system's description of the machine. A rank gets the devices nearest to its GPU, and no device gets more
// ranks than its share. The GPU of a rank is the one whose number, by PCI address, is the local rank. Where
// the host has fewer GPUs than ranks, neighbouring ranks get neighbouring devices.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace smdp {

constexpr std::size_t kMostRails = 8;

// The place of a PCI device in the machine.
struct PciPlace {
  std::vector<std::string>
      path;            // addresses of the root and the bridges above it, and its own; empty: unknown
  int numa_node = -1;  // -1: unknown
};

// `folder`: of the device in sysfs.
PciPlace pci_place(const std::filesystem::path& folder);
// By PCI address. `sysfs`: /sys, or a tree with the same folders.
std::vector<PciPlace> gpus_of(const std::filesystem::path& sysfs);
// `device`: as libfabric names it, such as rdmap16s27-rdm.
PciPlace place_of_device(const std::filesystem::path& sysfs, const std::string& device);

// How far apart two devices are: bridges between them, more where their roots differ, and most where their
// NUMA nodes differ or are unknown.
std::size_t distance(const PciPlace& one, const PciPlace& other);

// The rails of each rank of a host, as indices of `devices`, the nearest first. `gpus`: by local rank; may be
// fewer than `ranks`, and is then not used. `rails`: of each rank; 0: its share of the devices, at least 1
// and at most kMostRails. More rails than devices use devices twice.
std::vector<std::vector<std::size_t>> assign_rails(std::span<const PciPlace> devices,
                                                   std::span<const PciPlace> gpus, std::size_t ranks,
                                                   std::size_t rails);

}  // namespace smdp
