#include "net/frame.h"

#include <cstring>

#include "base/bytes.h"

namespace smdp {

void encode(const FrameHeader& header, std::span<std::byte, kFrameBytes> out) {
  std::byte* at = out.data();
  const auto put = [&at](auto value) {
    std::memcpy(at, &value, sizeof(value));
    at += sizeof(value);
  };
  put(kFrameMagic);
  put(header.type);
  put(header.call.collective);
  put(header.call.dtype);
  put(header.call.op);
  put(header.group);
  put(header.operation);
  put(header.call.count);
  put(header.call.root);
  put(header.sender);
  put(header.piece);
  put(std::uint32_t{0});
  put(header.offset);
  put(header.bytes);
  put(header.payload);
  static_assert(4 + 4 + 3 * 8 + 4 * 4 + 3 * 8 == kFrameBytes);
}

std::uint32_t sender_of(std::span<const std::byte, kFrameBytes> in) {
  constexpr std::size_t kOffset = 4 + 4 + 3 * 8 + 4;
  return Reader(in.subspan(kOffset)).get<std::uint32_t>();
}

bool goes_first(const Descriptor& call, std::uint64_t payload) {
  constexpr std::uint64_t kFrame = 16U << 10U;
  constexpr std::uint64_t kCall = 256U << 10U;
  return payload == 0 || (payload <= kFrame && call.count * size_of(call.dtype) <= kCall);
}

std::optional<FrameHeader> decode(std::span<const std::byte, kFrameBytes> in) {
  Reader reader(in);
  FrameHeader header;
  const auto magic = reader.get<std::uint32_t>();
  header.type = reader.get<FrameType>();
  header.call.collective = reader.get<Collective>();
  header.call.dtype = reader.get<DType>();
  header.call.op = reader.get<ReduceOp>();
  header.group = reader.get<std::uint64_t>();
  header.operation = reader.get<std::uint64_t>();
  header.call.count = reader.get<std::uint64_t>();
  header.call.root = reader.get<std::uint32_t>();
  header.sender = reader.get<std::uint32_t>();
  header.piece = reader.get<std::uint32_t>();
  const auto reserved = reader.get<std::uint32_t>();
  header.offset = reader.get<std::uint64_t>();
  header.bytes = reader.get<std::uint64_t>();
  header.payload = reader.get<std::uint64_t>();
  const auto type = static_cast<std::uint8_t>(header.type);
  const bool known = type >= 1 && type < kFrameTypes &&
                     static_cast<std::uint8_t>(header.call.collective) < kCollectives &&
                     static_cast<std::uint8_t>(header.call.dtype) < kDTypes &&
                     static_cast<std::uint8_t>(header.call.op) < kReduceOps;
  const bool has_payload = header.type == FrameType::kHostSum || header.type == FrameType::kPublish ||
                           header.type == FrameType::kSend;
  const std::uint64_t most = has_payload                               ? kMaxPayload
                             : header.type == FrameType::kAbort        ? kMaxText
                             : header.type == FrameType::kFabricCredit ? kMaxSlots
                                                                       : std::uint64_t{0};
  if (magic != kFrameMagic || reserved != 0 || !known || header.payload > most ||
      (has_payload && header.payload != header.bytes && header.payload * 2 != header.bytes)) {
    return std::nullopt;
  }
  return header;
}

}  // namespace smdp
