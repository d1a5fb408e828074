// SHA-256 (FIPS 180-4) and HMAC-SHA256 (RFC 2104), for the proof of the job's token.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

namespace smdp {

using Digest = std::array<std::byte, 32>;

class Sha256 {
 public:
  Sha256& update(std::span<const std::byte> data);
  [[nodiscard]] Digest finish();

 private:
  void block(const std::byte* data);

  std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, 64> pending_{};
  std::size_t pending_bytes_ = 0;
  std::uint64_t total_bytes_ = 0;
};

// The code of the concatenation of `parts`.
[[nodiscard]] Digest hmac_sha256(std::span<const std::byte> key,
                                 std::initializer_list<std::span<const std::byte>> parts);

// Compares in a time that does not depend on where the digests differ.
[[nodiscard]] bool equal_digests(std::span<const std::byte> left, std::span<const std::byte> right);

}  // namespace smdp
