#include "frame_receiver.h"

#include <cstring>

namespace smdp::fuzzing {
namespace {

constexpr std::uint64_t kMostPayload = 250U << 10U;  // that place() accepts; larger ones test nothing more
constexpr std::uint32_t kUnwanted = 0xee;            // a piece that place() refuses
constexpr std::size_t kMostSize = 256U << 10U;

}  // namespace

// The bytes of an operation, different for each operation and place.
std::span<const std::byte> pattern(std::uint64_t operation, std::size_t bytes) {
  static const Bytes text = [] {
    Bytes made(kMostSize + 256);
    for (std::size_t i = 0; i < made.size(); ++i) {
      made[i] = static_cast<std::byte>(i * 7 + i / 256);
    }
    return made;
  }();
  return std::span(text).subspan(operation * 31 % 256, bytes);
}

Bytes text_of(const FrameHeader& header, std::span<const std::byte> payload) {
  Bytes text(kFrameBytes);
  encode(header, std::span<std::byte, kFrameBytes>(text.data(), kFrameBytes));
  text.insert(text.end(), payload.begin(), payload.end());
  return text;
}

bool same(std::span<const std::byte> left, std::span<const std::byte> right) {
  return left.size() == right.size() && std::memcmp(left.data(), right.data(), left.size()) == 0;
}

bool wanted(const FrameHeader& header) { return header.piece != kUnwanted && header.payload <= kMostPayload; }

Reading read_frames(std::span<const std::byte> bytes) {
  Reading reading;
  while (bytes.size() >= kFrameBytes) {
    const auto head = bytes.first<kFrameBytes>();
    const auto header = decode(head);
    reading.broken = !header;
    if (!header || bytes.size() - kFrameBytes < header->payload) {
      break;
    }
    Bytes text = text_of(*header, bytes.subspan(kFrameBytes, header->payload));
    require(same(head, std::span(text).first<kFrameBytes>()), "a header is encoded as it was read");
    reading.headers.push_back(*header);
    reading.texts.push_back(std::move(text));
    bytes = bytes.subspan(kFrameBytes + header->payload);
  }
  return reading;
}

}  // namespace smdp::fuzzing
