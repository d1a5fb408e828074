#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "base/options.h"
#include "base/sha256.h"
#include "layout/layout.h"
#include "net/frame.h"
#include "shm/arena.h"

namespace smdp {
namespace {

std::string sha(std::string_view text) { return to_hex(Sha256().update(as_bytes_of(text)).finish()); }

TEST(Sha256, KnownVectors) {
  EXPECT_EQ(sha(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(HmacSha256, Rfc4231Vectors) {
  const Bytes key(20, std::byte{0x0b});
  EXPECT_EQ(to_hex(hmac_sha256(key, {as_bytes_of("Hi "), as_bytes_of("There")})),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  const Bytes long_key(131, std::byte{0xaa});
  EXPECT_EQ(
      to_hex(hmac_sha256(long_key, {as_bytes_of("Test Using Larger Than Block-Size Key - Hash Key First")})),
      "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Options, AreReadFromTheEnvironmentAndInvalidValuesAreRefused) {
  const auto with = [](const std::string& name, const std::string& value) {
    return read_options(
        [=](const std::string& asked) { return asked == name ? std::optional(value) : std::nullopt; });
  };
  EXPECT_EQ(with("SMDP_PIECE_KIB", "64")->piece_kib, 64);
  EXPECT_EQ(with("SMDP_WARN_S", "0.5")->warn_s, 0.5);
  // A slow rank is named within five seconds: a quarter of a second for the reports, another for the tick of
  // an idle loop.
  EXPECT_LE(Options{}.warn_s + 0.25 + 0.25, 5);
  for (const auto& [name, value] : {std::pair("SMDP_PIECE_KIB", "0"),
                                    {"SMDP_PIECE_KIB", "64k"},
                                    {"SMDP_IPV6", "yes"},
                                    {"SMDP_KERNELS", "sse"},
                                    {"SMDP_WARN_S", "nan"},
                                    {"SMDP_OPERATION_TIMEOUT_S", "1e11"},
                                    {"SMDP_HEARTBEAT_S", "3601"},
                                    {"SMDP_JOB_TOKEN", "abc"}}) {
    const auto refused = with(name, value);
    EXPECT_FALSE(refused.ok()) << name;
    EXPECT_NE(refused.status().message().find(name), std::string::npos);
  }
  for (const OptionInfo& info : option_table()) {
    EXPECT_TRUE(info.name.starts_with("SMDP_"));
    if (!info.default_text.empty()) {
      EXPECT_TRUE(with(std::string(info.name), std::string(info.default_text)).ok()) << info.name;
    }
  }
}

TEST(Options, APieceOfMoreThanASixteenthOfTheMemoryIsRefused) {
  Options options;
  options.arena_mib = 16;
  options.piece_kib = 1024;
  EXPECT_TRUE(check_together(options).ok());
  options.piece_kib = 1025;
  const std::string why = check_together(options).message();
  EXPECT_NE(why.find("SMDP_PIECE_KIB='1025'"), std::string::npos) << why;
  EXPECT_NE(why.find("SMDP_PIECE_KIB to at most 1024, or SMDP_ARENA_MIB to at least 17"), std::string::npos)
      << why;
  options.piece_kib = 256;
  options.small_kib = 65536;
  EXPECT_NE(check_together(options).message().find("SMDP_SMALL_KIB"), std::string::npos);
  options.arena_mib = 1024;
  EXPECT_TRUE(check_together(options).ok());
}

TEST(Clock, VeryLongDurationsDoNotOverflow) {
  EXPECT_GT(seconds(1e300), seconds(1e8));
  EXPECT_LT(seconds(-1e300), seconds(-1e8));
  EXPECT_GT(after(1e300), Clock::now());
}

TEST(Frame, IsEncodedAndDecodedAndInvalidBytesAreRefused) {
  FrameHeader header;
  header.type = FrameType::kPublish;
  header.call = {Collective::kReduce, DType::kInt16, ReduceOp::kMax, 3, 77};
  header.group = 1;
  header.operation = 2;
  header.piece = 5;
  header.offset = 6;
  header.bytes = header.payload = 7;
  std::array<std::byte, kFrameBytes> wire{};
  encode(header, wire);
  const auto back = decode(wire);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->call, header.call);
  EXPECT_EQ(back->payload, 7U);
  std::uint32_t random = 1;
  for (int i = 0; i < 20000; ++i) {
    auto damaged = wire;
    random = random * 1664525U + 1013904223U;
    damaged[(random >> 8U) % kFrameBytes] = static_cast<std::byte>(random >> 20U);
    const auto read = decode(damaged);  // any result but a crash; an accepted header is within bounds
    EXPECT_TRUE(!read || read->payload <= kMaxPayload);
  }
}

TEST(Arena, JoinsFreedRegions) {
  auto arena = Arena::create(1U << 20U);
  ASSERT_TRUE(arena.ok());
  const auto first = arena->allocate(100);
  const auto second = arena->allocate(1000);
  const auto rest = arena->allocate((1U << 20U) - 4096 - 128 - 1024);
  ASSERT_TRUE(first && second && rest);
  EXPECT_FALSE(arena->allocate(64));
  arena->free(*second);
  arena->free(*first);
  arena->free(*rest);
  arena->free(*rest);  // not in use: ignored
  EXPECT_TRUE(arena->allocate((1U << 20U) - 4096));
}

std::int64_t pages_of(int fd) {
  struct stat info{};
  EXPECT_EQ(::fstat(fd, &info), 0);
  return info.st_blocks;
}

TEST(Arena, HasAPartForReceivingThatIsForNoRegion) {
  auto arena = Arena::create(1U << 20U, 8192);
  ASSERT_TRUE(arena.ok());
  EXPECT_TRUE(arena->allocate((1U << 20U) - 4096));
  EXPECT_FALSE(arena->allocate(64));
  EXPECT_EQ(arena->for_receiving().size(), 8192U);
  const auto mapping = map_read_only(arena->fd());
  ASSERT_TRUE(mapping.ok());
  arena->for_receiving().back() = std::byte{7};
  EXPECT_EQ(mapping->bytes().back(), std::byte{7});
  Arena::discard(arena->for_receiving());
  EXPECT_EQ(pages_of(arena->fd()), 0);
  EXPECT_EQ(mapping->bytes().back(), std::byte{0});
}

TEST(Layout, OneKeyMayBecomeSeveralHostsAndTwoKeysNeverBecomeOne) {
  const auto all = std::vector<std::vector<int>>{{1, 2}, {0, 2}, {0, 1}};
  EXPECT_EQ(make_layout({"a", "a", "a"}, all).host_of, (std::vector<int>{0, 0, 0}));
  EXPECT_EQ(make_layout({"a", "b", "a"}, all).host_of, (std::vector<int>{0, 1, 0}));
  const auto without =
      std::vector<std::vector<int>>{{1}, {0, 2}, {}};  // rank 1 reports that it shares with 2, and 2 does not
  const Layout split = make_layout({"a", "a", "a"}, without);
  EXPECT_EQ(split.host_of, (std::vector<int>{0, 0, 1}));
  EXPECT_EQ(split.host_names, (std::vector<std::string>{"a", "a#2"}));
}

}  // namespace
}  // namespace smdp
