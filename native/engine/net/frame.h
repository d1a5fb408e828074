// The one header that travels before every payload, between hosts and between the ranks of a host.
// docs/wire_format.md is its description; a change here needs kProtocolVersion raised.
//
// A frame says by itself where its payload belongs: group, operation, piece and offset. So frames may travel
// on any connection and arrive in any order, before the receiver has begun the operation too.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "kernels/types.h"

namespace smdp {

inline constexpr std::uint16_t kProtocolVersion = 5;
inline constexpr std::uint32_t kFrameMagic = 0x50444d53;  // "SMDP"
inline constexpr std::size_t kFrameBytes = 72;

enum class FrameType : std::uint8_t {
  // Between hosts, with a payload.
  kHostSum = 1,  // a host's sum of a piece, to the rank that adds the hosts up
  kPublish = 2,  // the final bytes of a piece
  // Between hosts, without.
  kCredit = 3,  // a piece was used up: its sender may go on with another
  // Within a host: `offset` points into the sender's shared memory.
  kContribute = 4,  // a rank's own values of a piece
  kConsumed = 5,    // ... were read, the memory is free again
  kOffer = 6,       // the final bytes of a piece
  kTaken = 7,       // ... were read, the memory is free again
  // To every rank of a group or of the job.
  kAbort = 8,     // the group failed; payload: code and text
  kGoodbye = 9,   // nothing more comes on this connection
  kPing = 10,     // keeps the kernels talking (heartbeat)
  kSuspect = 11,  // `piece` is a rank that its neighbour has been waiting for
  // The sender destroyed the group: it completes nothing from `operation` on, nor named buffers from `offset`
  // on.
  kLeave = 12,
  // From a rank that keeps a timeline to rank 0, and back; `offset`: the asker's clock, `bytes`: rank 0's.
  kClockAsk = 13,
  kClockAnswer = 14,
  // Messages between two ranks (collectives/mail.h): `root` is their tag, `piece` their number under it.
  kAnnounce = 15,  // a message of `bytes` bytes waits for its receiver
  kReady = 16,     // the receiver has memory for it
  kSend = 17,      // part of a message, with a payload, between hosts; within a host kOffer and kTaken
  // Within a host: the group has failed at the sender, which reads no shared memory of its calls any more.
  kReleased = 18,
};
inline constexpr std::uint8_t kFrameTypes = 19;

// What a rank called. Two ranks of a group must have equal ones under the same operation number.
struct Descriptor {
  Collective collective = Collective::kBarrier;
  DType dtype = DType::kUInt8;
  ReduceOp op = ReduceOp::kSum;
  std::uint32_t root = 0;
  std::uint64_t count = 0;

  friend bool operator==(const Descriptor&, const Descriptor&) = default;
};

// Whether a frame with so many bytes of payload goes ahead of bulk data: small ones of small calls. Pieces of
// a large call may be as small where there are many hosts and ranks.
[[nodiscard]] bool goes_first(const Descriptor& call, std::uint64_t payload);

struct FrameHeader {
  FrameType type = FrameType::kPing;
  Descriptor call;
  std::uint32_t sender = 0;     // rank in the job
  std::uint32_t piece = 0;      // index in the operation's plan
  std::uint64_t group = 0;      // identity of the group
  std::uint64_t operation = 0;  // number within the group (collectives/group.h)
  std::uint64_t offset = 0;     // bytes into the buffer, or into the sender's shared memory
  std::uint64_t bytes = 0;      // of the piece
  std::uint64_t payload = 0;    // bytes that follow this header: the piece's, or half as many if narrowed
};

void encode(const FrameHeader& header, std::span<std::byte, kFrameBytes> out);

// nullopt when the bytes are no header: wrong magic, an unknown type or call, a payload above kMaxPayload.
std::optional<FrameHeader> decode(std::span<const std::byte, kFrameBytes> in);

inline constexpr std::uint64_t kMaxPayload = 64U << 20U;  // the largest piece
inline constexpr std::uint64_t kMaxText = 4096;           // payload of kAbort

}  // namespace smdp
