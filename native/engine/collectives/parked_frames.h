// Frames that came before what they belong to: an operation that has not begun, a group that is not made.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "net/frame.h"
#include "net/transport.h"

namespace smdp {

struct ParkedFrame {
  int from = 0;  // rank of the job
  FrameHeader header;
  Landing landing;
};

class ParkedFrames {
 public:
  // `owner`: the number of the operation or of the group.
  void add(std::uint64_t owner, ParkedFrame frame) {
    const std::uint64_t bytes = frame.header.payload;
    frames_[owner].push_back(std::move(frame));
    bytes_ += bytes;  // last: memory may be lost on the way
  }
  // In the order in which they came.
  std::vector<ParkedFrame> take(std::uint64_t owner) {
    auto taken = frames_.extract(owner);
    if (taken.empty()) {
      return {};
    }
    for (const ParkedFrame& frame : taken.mapped()) {
      bytes_ -= frame.header.payload;
    }
    return std::move(taken.mapped());
  }
  void clear() {
    frames_.clear();
    bytes_ = 0;
  }
  // Of all payloads.
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

 private:
  std::unordered_map<std::uint64_t, std::vector<ParkedFrame>> frames_;
  std::uint64_t bytes_ = 0;
};

}  // namespace smdp
