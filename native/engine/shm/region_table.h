// The regions of a rank's arena that the calls of one group use, each with the number of its holders.
#pragma once

#include <cstdint>
#include <new>
#include <optional>
#include <span>
#include <unordered_map>

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
        holders_[*offset] = 1;
      } catch (const std::bad_alloc&) {
        arena_.free(*offset);
        throw;
      }
    }
    return offset;
  }
  void hold(std::uint64_t offset, std::uint32_t more) { holders_[offset] += more; }
  // Removes one holder; the last frees the region. Ignores unknown offsets, which come from other processes.
  void release(std::uint64_t offset) {
    const auto found = holders_.find(offset);
    if (found != holders_.end() && --found->second == 0) {
      holders_.erase(found);
      arena_.free(offset);
    }
  }
  // Frees all regions, whatever their holders.
  void clear() {
    for (const auto& [offset, holders] : holders_) {
      arena_.free(offset);
    }
    holders_.clear();
  }
  [[nodiscard]] std::size_t count() const { return holders_.size(); }
  // The most bytes that the regions of all groups can have together.
  [[nodiscard]] std::uint64_t capacity() const { return arena_.bytes().size(); }
  [[nodiscard]] std::span<std::byte> at(std::uint64_t offset, std::uint64_t bytes) const {
    return arena_.bytes().subspan(offset, bytes);
  }

 private:
  Arena& arena_;
  std::unordered_map<std::uint64_t, std::uint32_t> holders_;
};

}  // namespace smdp
