// A rank's shared memory: one sparse memfd that its host's other ranks map read-only.
//
// The file has a large size and few pages: the kernel allocates a page when it is first written. It needs no
// /dev/shm (64 MB in containers) and no name. Regions are allocated by first fit and joined when freed.
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
  static Result<Arena> create(std::size_t bytes);
  // Addresses without memory behind them, for a simulation that touches none; no other process can map it.
  static Result<Arena> reserve(std::size_t bytes);

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] std::span<std::byte> bytes() const { return mapping_.bytes(); }
  // Offset of a region of at least `bytes`, aligned to 64; nullopt when none is free.
  std::optional<std::uint64_t> allocate(std::uint64_t bytes);
  void free(std::uint64_t offset);
  // The memory stays mapped after this object.
  void keep() { mapping_.keep(); }
  [[nodiscard]] std::size_t regions_in_use() const { return used_.size(); }

 private:
  Arena(UniqueFd fd, Mapping mapping);

  UniqueFd fd_;
  Mapping mapping_;
  std::map<std::uint64_t, std::uint64_t> free_;  // offset to length
  std::map<std::uint64_t, std::uint64_t> used_;
};

// Maps another rank's arena for reading.
Result<Mapping> map_read_only(int fd);

// The proof that two ranks share memory, over a connected abstract Unix socket: each passes its arena and a
// number that it wrote into it, and reads the other's number from the other's arena. Returns the mapping of
// the other's arena.
Result<Mapping> exchange_arenas(int socket, Arena& mine, TimePoint deadline);

}  // namespace smdp
