// The header that precedes every payload, between hosts and between the ranks of a host.
// docs/reference/wire-format.md describes it; every change to it raises kProtocolVersion.
//
// A frame names the place of its payload: group, operation, piece and offset. So frames may use any
// connection and arrive in any order, also before the receiver begins the operation.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "kernels/types.h"

namespace smdp {

inline constexpr std::uint16_t kProtocolVersion = 9;
inline constexpr std::uint32_t kFrameMagic = 0x50444d53;  // "SMDP"
inline constexpr std::size_t kFrameBytes = 72;

enum class FrameType : std::uint8_t {
  // Between hosts, with a payload.
  kHostSum = 1,  // a host's sum of a piece, to the rank that adds the sums of the hosts
  kPublish = 2,  // the final bytes of a piece
  // Between hosts, without a payload.
  kCredit = 3,  // a piece was consumed: its sender may send another
  // Within a host: `offset` points into the sender's shared memory.
  kContribute = 4,  // a rank's own values of a piece
  kConsumed = 5,    // ... were read, the memory is free again
  kOffer = 6,       // the final bytes of a piece
  kTaken = 7,       // ... were read, the memory is free again
  // To every rank of a group or of the job.
  kAbort = 8,     // the group failed; payload: code and text
  kGoodbye = 9,   // nothing more comes on this connection
  kPing = 10,     // heartbeat
  kSuspect = 11,  // suspicion report: the sender waits for the rank `piece`
  // The sender destroyed the group, or with `piece` 1 closed its engine: it completes no calls from
  // `operation`
  // on, and no named buffers from `offset` on.
  kLeave = 12,
  // From a rank that writes a timeline to rank 0, and back; `offset`: the clock of that rank, `bytes`: of
  // rank 0.
  kClockAsk = 13,
  kClockAnswer = 14,
  // Point-to-point messages (collectives/point_to_point.h): `root` is the tag, `piece` the number under it.
  kAnnounce = 15,  // a message of `bytes` bytes waits for its receiver
  kReady = 16,     // the receiver has memory for it
  kSend = 17,      // part of a message, with a payload, between hosts; within a host kOffer and kTaken
  // Within a host: the group has failed at the sender, which reads no shared memory of the group any more.
  kReleased = 18,
  // About the frames that the other rank sends, or the sender sent, over a fabric (ofi_transport.h), and not
  // over one themselves.
  // `offset` of them were taken so far over the rail `piece`; payload: the slots of the next ones, if any.
  kFabricCredit = 19,
  kFabricEnd = 20,  // `offset` of them were sent in all, over all rails
};
inline constexpr std::uint8_t kFrameTypes = 21;

// The call of a rank. Equal on all ranks of a group for the same operation number.
struct Descriptor {
  Collective collective = Collective::kBarrier;
  DType dtype = DType::kUInt8;
  ReduceOp op = ReduceOp::kSum;
  std::uint32_t root = 0;
  std::uint64_t count = 0;

  friend bool operator==(const Descriptor&, const Descriptor&) = default;
};

// Whether a frame with `payload` bytes uses the connection for small frames: small frames of small calls do.
// With many hosts and ranks, pieces of a large call may be small too; they do not.
[[nodiscard]] bool goes_first(const Descriptor& call, std::uint64_t payload);

struct FrameHeader {
  FrameType type = FrameType::kPing;
  Descriptor call;
  std::uint32_t sender = 0;     // rank in the job
  std::uint32_t piece = 0;      // index in the operation's plan
  std::uint64_t group = 0;      // identity of the group
  std::uint64_t operation = 0;  // number within the group (call_number.h)
  std::uint64_t offset = 0;     // bytes into the buffer, or into the sender's shared memory
  std::uint64_t bytes = 0;      // of the piece
  std::uint64_t payload = 0;    // bytes that follow this header: the piece's, or half as many if narrowed
};

void encode(const FrameHeader& header, std::span<std::byte, kFrameBytes> out);

// nullopt when the bytes are not a header: wrong magic, an unknown type or call, a payload above kMaxPayload.
std::optional<FrameHeader> decode(std::span<const std::byte, kFrameBytes> in);
// The field `sender` of bytes that need not be a header.
std::uint32_t sender_of(std::span<const std::byte, kFrameBytes> in);

inline constexpr std::uint64_t kMaxPayload = 64U << 20U;  // the largest piece
inline constexpr std::uint64_t kMaxText = 4096;           // payload of kAbort
inline constexpr std::uint64_t kMaxSlots = 64;            // payload of kFabricCredit

}  // namespace smdp
