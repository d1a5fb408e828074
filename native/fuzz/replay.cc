// Replays the corpora, input by input, with the compiler and sanitizers of the tests.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "targets.h"

namespace smdp::fuzzing {
namespace {

namespace fs = std::filesystem;

std::vector<char> contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void replay(const std::string& corpus, void (*target)(std::span<const std::byte>)) {
  std::size_t count = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(SMDP_CORPORA) / corpus)) {
    SCOPED_TRACE(entry.path().filename().string());
    const std::vector<char> input = contents(entry.path());
    EXPECT_NO_THROW(target(std::as_bytes(std::span(input))));
    ++count;
  }
  EXPECT_GT(count, 0U);
  std::printf("replayed %s: %zu inputs\n", corpus.c_str(), count);
}

TEST(Corpora, Frame) { replay("frame", fuzz_frame); }
TEST(Corpora, Hello) { replay("hello", fuzz_hello); }
TEST(Corpora, Rendezvous) { replay("rendezvous", fuzz_rendezvous); }

}  // namespace
}  // namespace smdp::fuzzing
