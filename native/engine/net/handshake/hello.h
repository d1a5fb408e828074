// The hello: which rank connects, and the proof that it belongs to the job. docs/reference/wire-format.md
// draws it.
//
//   connecting side                        accepting side
//   Hello (magic, versions, nonce)   ->
//                                    <-    accept: Hello (own nonce), HMAC("smdp accept", both hellos)
//                                          or refuse: the reason
//   HMAC("smdp connect", both hellos)->
//                                    <-    welcome,
//                                          or refuse: HMAC("smdp refuse", both hellos, reason), the
//                                          reason
//
// The codes are keyed with the job's token and cover both nonces, so neither side can replay the code of the
// other, nor one of an earlier handshake. The prefix of each code differs, so a code cannot be reflected. A
// refusal without a code, or with a wrong one, may come from a process outside the job.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/bytes.h"
#include "base/sha256.h"

namespace smdp {

enum class Purpose : std::uint16_t { kRendezvous = 0, kData = 1, kLocal = 2 };

struct Hello {
  std::uint16_t protocol = 0;
  Purpose purpose = Purpose::kRendezvous;
  std::uint32_t rank = 0;
  std::uint32_t target = 0;  // rank that the connecting side wants to reach
  std::uint32_t world_size = 0;
  std::uint32_t rail = 0;  // which of the connections between the two
  std::uint64_t generation = 0;
  std::uint64_t session = 0;      // drawn by rank 0 for each rendezvous; 0 before it is known
  std::uint64_t layout_hash = 0;  // 0 before the layout is known
  std::string build;
  std::array<std::byte, 16> nonce{};
};

inline constexpr std::size_t kHelloBytes = 112;
inline constexpr std::size_t kBuildBytes = 32;
inline constexpr std::size_t kMagicBytes = 8;

using EncodedHello = std::array<std::byte, kHelloBytes>;

EncodedHello encode(const Hello& hello);
// `in`, of kMagicBytes, begins as every version of the hello does.
bool begins_hello(std::span<const std::byte> in);
// nullopt when it does not begin with the magic. The caller checks the protocol version: every version keeps
// magic, protocol, rank and build in their places.
std::optional<Hello> decode_hello(std::span<const std::byte, kHelloBytes> in);

Digest prove_accept(std::span<const std::byte> token, const EncodedHello& connecting,
                    const EncodedHello& accepting);
Digest prove_connect(std::span<const std::byte> token, const EncodedHello& connecting,
                     const EncodedHello& accepting);
Digest prove_refusal(std::span<const std::byte> token, const EncodedHello& connecting,
                     const EncodedHello& accepting, std::span<const std::byte> reason);

// Why two authenticated ranks refuse each other, naming both; empty: they do not.
std::string difference(const Hello& ours, const Hello& theirs);

}  // namespace smdp
