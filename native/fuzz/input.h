// Reads an input value by value. Returns zeros after its end.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>

namespace smdp::fuzzing {

class Input {
 public:
  explicit Input(std::span<const std::byte> data) : data_(data) {}

  std::uint8_t u8() {
    const auto part = take(1);
    return part.empty() ? std::uint8_t{0} : std::to_integer<std::uint8_t>(part[0]);
  }
  std::uint16_t u16() {
    const unsigned low = u8();
    return static_cast<std::uint16_t>(low | static_cast<unsigned>(u8()) << 8U);
  }
  // At most `bytes` of the rest.
  std::span<const std::byte> take(std::size_t bytes) {
    const auto part = data_.first(std::min(bytes, data_.size()));
    data_ = data_.subspan(part.size());
    return part;
  }
  [[nodiscard]] bool empty() const { return data_.empty(); }

 private:
  std::span<const std::byte> data_;
};

// Thrown when an input refutes a statement about the engine.
class Refuted : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

inline void require(bool holds, const char* statement) {
  if (!holds) {
    throw Refuted(statement);
  }
}

}  // namespace smdp::fuzzing
