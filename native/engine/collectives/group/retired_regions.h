// Shared memory of failed groups, until the other ranks of the host do not read it any more.
//
// When a group fails on a rank, that rank reports to the ranks of its host that it reads nothing of theirs
// any more (FrameType::kReleased). The reports of different ranks, and the failure here, come in any order.
// Belongs to the engine, on the loop.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "shm/region_table.h"

namespace smdp {

class RetiredRegions {
 public:
  // The group has failed here. `readers`: ranks of the job that may read its regions; `is_gone`: those that
  // have no process any more. May throw std::bad_alloc, and is then called again.
  void retire(std::uint64_t group, std::shared_ptr<RegionTable> regions, const std::vector<int>& readers,
              const std::function<bool(int)>& is_gone);
  // `rank` reads nothing of the group any more. May throw std::bad_alloc if the group has not failed here.
  void on_released(int rank, std::uint64_t group);
  // `rank` is lost, so it reads nothing any more.
  void on_lost(int rank) noexcept;
  // A region of a failed group was read.
  void release(std::uint64_t group, std::uint64_t offset);

  [[nodiscard]] bool contains(std::uint64_t group) const { return retired_.contains(group); }
  [[nodiscard]] std::size_t regions() const;

 private:
  struct Retired {
    std::shared_ptr<RegionTable> regions;
    std::set<int> readers;
  };

  void free_unread(std::uint64_t group);

  std::map<std::uint64_t, Retired> retired_;  // by group
  std::map<std::uint64_t, std::set<int>>
      released_;  // by group that has not failed here: ranks that released it
};

}  // namespace smdp
