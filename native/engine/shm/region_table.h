// The regions of a rank's arena that the calls of one group use, each with the number of its holders. A
// region is allocated in the arena, or adopted: it then belongs to another owner, such as a receive buffer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>

#include "shm/arena.h"

namespace smdp {

class RegionTable {
 public:
  explicit RegionTable(Arena& arena) : arena_(arena) {}

  // A region with one holder, its creator.
  std::optional<std::uint64_t> take(std::uint64_t bytes) {
    const auto offset = arena_.allocate(bytes);
    if (offset) {
      try {
        regions_[*offset].holders = 1;
      } catch (const std::bad_alloc&) {
        arena_.free(*offset);
        throw;
      }
    }
    return offset;
  }
  // Enters memory of Arena::for_receiving() as a region with one holder. Drops `owner`, which is not null,
  // when the last holder releases it.
  void adopt(std::uint64_t offset, std::shared_ptr<const void> owner) {
    regions_.emplace(offset, Region{1, std::move(owner)});
    try {
      arena_.adopt(offset);
    } catch (const std::bad_alloc&) {
      regions_.erase(offset);
      throw;
    }
  }
  void hold(std::uint64_t offset, std::uint32_t more) { regions_[offset].holders += more; }
  // Removes one holder; the last frees the region. Ignores unknown offsets, which come from other processes.
  void release(std::uint64_t offset) {
    const auto found = regions_.find(offset);
    if (found != regions_.end() && --found->second.holders == 0) {
      arena_.free(offset);
      regions_.erase(found);
    }
  }
  // Frees all regions, whatever their holders.
  void clear() {
    for (const auto& [offset, region] : regions_) {
      arena_.free(offset);
    }
    regions_.clear();
  }
  [[nodiscard]] std::size_t count() const { return regions_.size(); }
  // The most bytes that the allocated regions of all groups can have together.
  [[nodiscard]] std::uint64_t capacity() const { return arena_.for_regions().size(); }
  // Where these bytes are in the arena; nullopt: not in it.
  [[nodiscard]] std::optional<std::uint64_t> offset_of(std::span<const std::byte> bytes) const {
    const std::span<const std::byte> all = arena_.bytes();
    const std::less_equal<> not_after;
    const bool within = !bytes.empty() && !all.empty() && not_after(all.data(), bytes.data()) &&
                        not_after(bytes.data() + bytes.size(), all.data() + all.size());
    return within ? std::optional(static_cast<std::uint64_t>(bytes.data() - all.data())) : std::nullopt;
  }
  [[nodiscard]] std::span<std::byte> at(std::uint64_t offset, std::uint64_t bytes) const {
    return arena_.bytes().subspan(offset, bytes);
  }

 private:
  struct Region {
    std::uint32_t holders = 0;
    std::shared_ptr<const void> owner;  // null: allocated
  };

  Arena& arena_;
  std::unordered_map<std::uint64_t, Region> regions_;  // by offset
};

}  // namespace smdp
