// Little-endian encoding into growing byte strings, and its checked counterpart.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace smdp {

static_assert(std::endian::native == std::endian::little,
              "the wire format is written for little-endian hosts");

using Bytes = std::vector<std::byte>;

inline std::span<const std::byte> as_bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

class Writer {
 public:
  template <class T>
  Writer& put(T value) {
    static_assert(std::is_integral_v<T> || std::is_enum_v<T>);
    return raw(std::as_bytes(std::span(&value, 1)));
  }
  Writer& raw(std::span<const std::byte> data) {
    out_.insert(out_.end(), data.begin(), data.end());
    return *this;
  }
  // Length as u32, then the characters.
  Writer& text(std::string_view value) {
    put(static_cast<std::uint32_t>(value.size()));
    return raw(as_bytes_of(value));
  }
  [[nodiscard]] Bytes take() { return std::move(out_); }

 private:
  Bytes out_;
};

// Reads what Writer wrote. A short or overlong input makes ok() false and every later value zero or empty.
// It never reads outside `data`.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> data) : data_(data) {}

  template <class T>
  T get() {
    T value{};
    if (const auto part = raw(sizeof(T)); part.size() == sizeof(T)) {
      std::memcpy(&value, part.data(), sizeof(T));
    }
    return value;
  }
  std::span<const std::byte> raw(std::size_t bytes) {
    if (bytes > data_.size()) {
      ok_ = false;
      data_ = {};
      return {};
    }
    const auto part = data_.first(bytes);
    data_ = data_.subspan(bytes);
    return part;
  }
  std::string text() {
    const auto part = raw(get<std::uint32_t>());
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }
  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] bool at_end() const { return ok_ && data_.empty(); }

 private:
  std::span<const std::byte> data_;
  bool ok_ = true;
};

// FNV-1a: names of groups and layouts. Not for secrets.
inline std::uint64_t hash64(std::span<const std::byte> data) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const std::byte b : data) {
    hash = (hash ^ std::to_integer<std::uint64_t>(b)) * 0x100000001b3U;
  }
  return hash;
}

// Random bits from the kernel; aborts the process when the kernel has no generator.
std::array<std::byte, 16> random128();
std::string to_hex(std::span<const std::byte> data);
// The printable ASCII characters of data that may come from an unauthenticated client, for messages and logs.
std::string plain_text(std::span<const std::byte> data);

}  // namespace smdp
