#include "net/handshake/hello.h"

#include <algorithm>
#include <string_view>

namespace smdp {
namespace {

constexpr std::string_view kMagic = "SMDPHELO";
static_assert(kMagic.size() == kMagicBytes);

}  // namespace

EncodedHello encode(const Hello& hello) {
  std::array<std::byte, kBuildBytes> build{};
  const auto text = as_bytes_of(hello.build);
  std::copy_n(text.begin(), std::min(text.size(), build.size()), build.begin());
  const Bytes bytes = Writer()
                          .raw(as_bytes_of(kMagic))
                          .put(hello.protocol)
                          .put(hello.purpose)
                          .put(hello.rank)
                          .raw(build)
                          .put(hello.target)
                          .put(hello.world_size)
                          .put(hello.rail)
                          .put(std::uint32_t{0})
                          .put(hello.generation)
                          .put(hello.session)
                          .put(hello.layout_hash)
                          .raw(hello.nonce)
                          .put(std::uint64_t{0})
                          .take();
  static_assert(8 + 4 + 4 + kBuildBytes + 16 + 24 + 16 + 8 == kHelloBytes);
  EncodedHello out{};
  std::ranges::copy(bytes, out.begin());
  return out;
}

bool begins_hello(std::span<const std::byte> in) { return std::ranges::equal(in, as_bytes_of(kMagic)); }

std::optional<Hello> decode_hello(std::span<const std::byte, kHelloBytes> in) {
  Reader reader(in);
  if (!begins_hello(reader.raw(kMagicBytes))) {
    return std::nullopt;
  }
  Hello hello;
  hello.protocol = reader.get<std::uint16_t>();
  hello.purpose = reader.get<Purpose>();
  hello.rank = reader.get<std::uint32_t>();
  hello.build = plain_text(reader.raw(kBuildBytes));
  hello.target = reader.get<std::uint32_t>();
  hello.world_size = reader.get<std::uint32_t>();
  hello.rail = reader.get<std::uint32_t>();
  (void)reader.get<std::uint32_t>();
  hello.generation = reader.get<std::uint64_t>();
  hello.session = reader.get<std::uint64_t>();
  hello.layout_hash = reader.get<std::uint64_t>();
  std::ranges::copy(reader.raw(hello.nonce.size()), hello.nonce.begin());
  return hello;
}

Digest prove_accept(std::span<const std::byte> token, const EncodedHello& connecting,
                    const EncodedHello& accepting) {
  return hmac_sha256(token, {as_bytes_of("smdp accept"), connecting, accepting});
}

Digest prove_connect(std::span<const std::byte> token, const EncodedHello& connecting,
                     const EncodedHello& accepting) {
  return hmac_sha256(token, {as_bytes_of("smdp connect"), connecting, accepting});
}

Digest prove_refusal(std::span<const std::byte> token, const EncodedHello& connecting,
                     const EncodedHello& accepting, std::span<const std::byte> reason) {
  return hmac_sha256(token, {as_bytes_of("smdp refuse"), connecting, accepting, reason});
}

std::string difference(const Hello& ours, const Hello& theirs) {
  const auto both = [&](std::string_view what, const std::string& mine, const std::string& other) {
    return std::string(what) + " differs: rank " + std::to_string(ours.rank) + " has " + mine + ", rank " +
           std::to_string(theirs.rank) + " has " + other;
  };
  if (ours.build != theirs.build) {
    return both("engine build", ours.build, theirs.build);
  }
  if (ours.world_size != theirs.world_size) {
    return both("world size", std::to_string(ours.world_size), std::to_string(theirs.world_size));
  }
  if (ours.generation != theirs.generation) {
    return both("generation (SMDP_GENERATION)", std::to_string(ours.generation),
                std::to_string(theirs.generation));
  }
  if (ours.session != theirs.session && ours.session != 0 && theirs.session != 0) {
    return "rank " + std::to_string(theirs.rank) + " belongs to another rendezvous";
  }
  if (ours.layout_hash != theirs.layout_hash) {
    return both("layout of hosts", std::to_string(ours.layout_hash), std::to_string(theirs.layout_hash));
  }
  return "";
}

}  // namespace smdp
