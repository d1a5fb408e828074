#include "shm/mailbox.h"

namespace smdp {
namespace {

template <class Result, class Memory>
Result* board_in(Memory memory, std::size_t ranks) {
  return memory.size() < Board::bytes(ranks) ? nullptr : reinterpret_cast<Result*>(memory.data());
}

}  // namespace

Board* Board::at(std::span<std::byte> memory, std::size_t ranks) { return board_in<Board>(memory, ranks); }

const Board* Board::at(std::span<const std::byte> memory, std::size_t ranks) {
  return board_in<const Board>(memory, ranks);
}

bool Mailbox::post(const FrameHeader& header) {
  const std::uint64_t read = in_.taken.load(std::memory_order_acquire);
  if (posted_ - read >= kRowSlots) {
    return false;
  }
  encode(header, out_.slots[posted_ % kRowSlots].frame);
  // Sequentially consistent with the sleeper's announcement: either the sleeper sees this frame, or this rank
  // sees that it sleeps.
  out_.posted.store(++posted_);
  return true;
}

Mailbox::Taken Mailbox::take(FrameHeader& header) {
  const std::uint64_t there = in_.posted.load(std::memory_order_acquire);
  if (there == taken_) {
    return Taken::kNothing;
  }
  if (there - taken_ > kRowSlots) {
    return Taken::kBreach;
  }
  const auto frame = decode(in_.slots[taken_ % kRowSlots].frame);
  acknowledged_.store(++taken_, std::memory_order_release);
  if (!frame) {
    return Taken::kBreach;
  }
  header = *frame;
  return Taken::kFrame;
}

bool Mailbox::must_wake() {
  const std::uint64_t nap = other_.naps.load();
  if (nap % 2 == 0 || nap == woken_) {
    return false;
  }
  woken_ = nap;
  return true;
}

}  // namespace smdp
