// Frames between the ranks of a host, through shared memory: no system call while both sides are awake.
//
// Each rank has a board in its arena, which the host's other ranks map read-only. The board holds one row per
// rank of the host: a ring of frames to that rank, the number of frames posted in it, and the number of
// frames that this rank took from that rank's ring. So every word has one writer. A rank that goes to sleep
// announces that on its board; a rank that posts to it wakes it through its socket (ShmTransport).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "net/frame.h"

namespace smdp {

inline constexpr std::size_t kRowSlots = 256;

struct Board {
  struct alignas(64) Slot {
    std::array<std::byte, kFrameBytes> frame;
  };
  struct Row {
    alignas(64) std::atomic<std::uint64_t> posted;
    alignas(64) std::atomic<std::uint64_t> taken;
    std::array<Slot, kRowSlots> slots;
  };

  alignas(64) std::atomic<std::uint64_t> naps;  // odd while its owner sleeps

  // The rows follow the board; memory that is too small for them is refused by at().
  [[nodiscard]] static std::size_t bytes(std::size_t ranks) { return sizeof(Board) + ranks * sizeof(Row); }
  [[nodiscard]] static Board* at(std::span<std::byte> memory, std::size_t ranks);
  [[nodiscard]] static const Board* at(std::span<const std::byte> memory, std::size_t ranks);
  [[nodiscard]] Row& row(std::size_t rank) { return reinterpret_cast<Row*>(this + 1)[rank]; }
  [[nodiscard]] const Row& row(std::size_t rank) const {
    return reinterpret_cast<const Row*>(this + 1)[rank];
  }
};

// This rank's end of the two rings it shares with another.
class Mailbox {
 public:
  // `mine`, `theirs`: index of the two ranks within the host.
  Mailbox(Board& own, const Board& other, std::size_t mine, std::size_t theirs)
      : other_(other), out_(own.row(theirs)), in_(other.row(mine)), acknowledged_(own.row(theirs).taken) {}

  // False when the ring is full.
  bool post(const FrameHeader& header);
  enum class Taken : std::uint8_t { kNothing, kFrame, kBreach };
  Taken take(FrameHeader& header);
  [[nodiscard]] bool has_frames() const { return in_.posted.load() != taken_; }
  // The other rank sleeps, and this rank has not woken it. True once for each time it sleeps.
  bool must_wake();

 private:
  const Board& other_;
  Board::Row& out_;
  const Board::Row& in_;
  std::atomic<std::uint64_t>& acknowledged_;
  std::uint64_t posted_ = 0;
  std::uint64_t taken_ = 0;
  std::uint64_t woken_ = 0;
};

}  // namespace smdp
