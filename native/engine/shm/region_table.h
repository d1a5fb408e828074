// The regions of a rank's arena that others are reading, each with the number of readers still to come.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>

#include "shm/arena.h"

namespace smdp {

class RegionTable {
 public:
  explicit RegionTable(Arena& arena) : arena_(arena) {}

  // A region with one holder, its maker.
  std::optional<std::uint64_t> take(std::uint64_t bytes) {
    const auto offset = arena_.allocate(bytes);
    if (offset) {
      holders_[*offset] = 1;
    }
    return offset;
  }
  void hold(std::uint64_t offset, std::uint32_t more) { holders_[offset] += more; }
  // One holder less; the last frees the region. Offsets of no region are ignored: they come from other
  // processes.
  void release(std::uint64_t offset) {
    const auto found = holders_.find(offset);
    if (found != holders_.end() && --found->second == 0) {
      holders_.erase(found);
      arena_.free(offset);
    }
  }
  // Bytes of all regions together, at most.
  [[nodiscard]] std::uint64_t capacity() const { return arena_.bytes().size(); }
  [[nodiscard]] std::span<std::byte> at(std::uint64_t offset, std::uint64_t bytes) const {
    return arena_.bytes().subspan(offset, bytes);
  }

 private:
  Arena& arena_;
  std::unordered_map<std::uint64_t, std::uint32_t> holders_;
};

}  // namespace smdp
