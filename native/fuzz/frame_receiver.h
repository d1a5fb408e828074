// Receives the frames that a transport reads, and decodes the same bytes in one piece for comparison.
#pragma once

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "input.h"
#include "net/transport/transport.h"

namespace smdp::fuzzing {

inline constexpr int kPeer = 1;             // its rank
inline constexpr std::uint64_t kBegun = 8;  // operations below it have their own memory

// `bytes` of an operation's memory, different for each operation and place. At most 256 KiB.
std::span<const std::byte> pattern(std::uint64_t operation, std::size_t bytes);

// A frame as bytes.
Bytes text_of(const FrameHeader& header, std::span<const std::byte> payload);

bool same(std::span<const std::byte> left, std::span<const std::byte> right);

// Whether the receiver accepts the frame.
bool wanted(const FrameHeader& header);

// The frames in bytes of one piece. `broken`: a frame at their end breaks the protocol.
struct Reading {
  std::vector<FrameHeader> headers;
  std::vector<Bytes> texts;
  bool broken = false;
};

Reading read_frames(std::span<const std::byte> bytes);

// The group and its operations, as a transport knows them.
class Receiver final : public Transport::Events {
 public:
  struct Arrived {
    FrameHeader header;
    Bytes text;
    bool cancelled = false;  // its payload is incomplete
  };

  std::optional<Landing> place(int peer, const FrameHeader& header) override {
    require(peer == kPeer && header.sender == kPeer, "a frame names the rank at the connection's other end");
    if (!wanted(header)) {
      return std::nullopt;
    }
    if (!lands_in_operation(header)) {
      return Landing::fresh(header.payload);
    }
    auto& memory = memory_.emplace_back(header, std::make_unique<Bytes>(header.payload));
    return Landing::into(memory.second->data());
  }

  void arrived(int peer, const FrameHeader& header, Landing landing) override {
    require(peer == kPeer, "frames come from the peer that sent them");
    const bool cancelled = lands_in_operation(header) && landing.owned != nullptr;
    Bytes text = text_of(header, {landing.data, header.payload});
    std::erase_if(memory_, [&](const auto& entry) { return entry.second->data() == landing.data; });
    on_rail[rail].push_back({header, std::move(text), cancelled});
  }

  void lost(int /*peer*/, bool /*orderly*/, Status why) override {
    require(!is_lost, "a peer is lost once");
    require(!why.ok() && !why.message().empty(), "a loss has a reason");
    is_lost = true;
  }

  // The operation and its memory are gone.
  void forget(std::uint64_t group, std::uint64_t operation) {
    std::erase_if(memory_, [&](const auto& entry) {
      return entry.first.group == group && entry.first.operation == operation;
    });
  }

  std::size_t rail = 0;  // whose bytes are being read
  std::array<std::vector<Arrived>, 2> on_rail;
  bool is_lost = false;

 private:
  static bool lands_in_operation(const FrameHeader& header) {
    return header.operation < kBegun && header.payload > 0 && header.type != FrameType::kAbort;
  }

  std::vector<std::pair<FrameHeader, std::unique_ptr<Bytes>>> memory_;
};

}  // namespace smdp::fuzzing
