// A rank's shared memory: one sparse memfd that its host's other ranks map read-only.
//
// The file has a large size and few pages: the kernel allocates a page when it is first written. It needs no
// /dev/shm (64 MB in containers) and no name. Regions are allocated by first fit and joined when freed. A
// part behind the regions is for the receive buffers of a fabric.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"

namespace smdp {

class Arena {
 public:
  Arena() = default;  // empty
  // `regions`: the bytes for allocate(). `receiving`: those of the part behind them.
  static Result<Arena> create(std::size_t regions, std::size_t receiving = 0);
  // Addresses without memory behind them, for a simulation that touches none; no other process can map it.
  static Result<Arena> reserve(std::size_t bytes);

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] std::span<std::byte> bytes() const { return mapping_.bytes(); }
  // The two parts of bytes().
  [[nodiscard]] std::span<std::byte> for_regions() const {
    return bytes().first(bytes().size() - receiving_);
  }
  [[nodiscard]] std::span<std::byte> for_receiving() const { return bytes().last(receiving_); }
  // Offset of a region of at least `bytes`, aligned to 64; nullopt when none is free.
  std::optional<std::uint64_t> allocate(std::uint64_t bytes);
  // Counts memory of for_receiving() among the regions in use until free().
  void adopt(std::uint64_t offset) { used_.emplace(offset, 0); }
  void free(std::uint64_t offset);
  // Gives the pages of a part of bytes() back to the kernel; they are zero afterwards.
  static void discard(std::span<std::byte> pages);
  // The memory stays mapped after this object.
  void keep() { mapping_.keep(); }
  [[nodiscard]] std::size_t regions_in_use() const { return used_.size(); }

 private:
  Arena(UniqueFd fd, Mapping mapping, std::size_t receiving);

  UniqueFd fd_;
  Mapping mapping_;
  std::size_t receiving_ = 0;
  std::map<std::uint64_t, std::uint64_t> free_;  // offset to length
  std::map<std::uint64_t, std::uint64_t> used_;  // the same; length 0: adopted
};

// Maps another rank's arena for reading.
Result<Mapping> map_read_only(int fd);

// The proof that two ranks share memory, over a connected abstract Unix socket: each passes its arena and a
// number that it wrote into it, and reads the other's number from the other's arena. Returns the mapping of
// the other's arena.
Result<Mapping> exchange_arenas(int socket, Arena& mine, TimePoint deadline);

}  // namespace smdp
