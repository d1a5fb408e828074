// The regions of a rank's arena that the calls of one group use, each with the number of its holders.
#pragma once

#include <cstdint>
#include <functional>
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
  Arena& arena_;
  std::unordered_map<std::uint64_t, std::uint32_t> holders_;
};

}  // namespace smdp
