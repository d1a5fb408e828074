#include "collectives/group/retired_regions.h"

#include <utility>

namespace smdp {

void RetiredRegions::retire(std::uint64_t group, std::shared_ptr<RegionTable> regions,
                            const std::vector<int>& readers, const std::function<bool(int)>& is_gone) {
  if (regions->count() > 0) {
    Retired& retired = retired_[group];
    retired.regions = std::move(regions);
    const auto released = released_.find(group);
    for (const int reader : readers) {
      if (!is_gone(reader) && (released == released_.end() || !released->second.contains(reader))) {
        retired.readers.insert(reader);
      }
    }
    free_unread(group);
  }
  released_.erase(group);
}

void RetiredRegions::on_released(int rank, std::uint64_t group) {
  const auto found = retired_.find(group);
  if (found == retired_.end()) {
    released_[group].insert(rank);
    return;
  }
  found->second.readers.erase(rank);
  free_unread(group);
}

void RetiredRegions::on_lost(int rank) noexcept {
  for (auto next = retired_.begin(); next != retired_.end();) {
    const std::uint64_t group = (next++)->first;  // it may be erased
    on_released(rank, group);
  }
}

void RetiredRegions::release(std::uint64_t group, std::uint64_t offset) {
  if (const auto found = retired_.find(group); found != retired_.end()) {
    found->second.regions->release(offset);
  }
}

std::size_t RetiredRegions::regions() const {
  std::size_t count = 0;
  for (const auto& [group, retired] : retired_) {
    count += retired.regions->count();
  }
  return count;
}

void RetiredRegions::free_unread(std::uint64_t group) {
  const auto found = retired_.find(group);
  if (found->second.readers.empty()) {
    found->second.regions->clear();
    retired_.erase(found);
  }
}

}  // namespace smdp
