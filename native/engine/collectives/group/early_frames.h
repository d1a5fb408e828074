// Frames that arrived before their operation began or their group was created.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "net/frame.h"
#include "net/transport/transport.h"

namespace smdp {

struct EarlyFrame {
  int from = 0;  // the sending rank, as the owner numbers ranks
  FrameHeader header;
  Landing landing;
};

class EarlyFrames {
 public:
  // `owner`: the number of the operation or of the group.
  void add(std::uint64_t owner, EarlyFrame frame) {
    const std::uint64_t bytes = frame.header.payload;
    frames_[owner].push_back(std::move(frame));
    bytes_ += bytes;  // last: push_back may throw
  }
  // In the order of arrival.
  std::vector<EarlyFrame> take(std::uint64_t owner) {
    auto taken = frames_.extract(owner);
    if (taken.empty()) {
      return {};
    }
    for (const EarlyFrame& frame : taken.mapped()) {
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
  std::unordered_map<std::uint64_t, std::vector<EarlyFrame>> frames_;
  std::uint64_t bytes_ = 0;
};

}  // namespace smdp
