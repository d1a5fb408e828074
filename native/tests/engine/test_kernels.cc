#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>
#include <string>

#include "kernels/copy.h"
#include "kernels/reduce.h"
#include "reference.h"

namespace smdp::testing {
namespace {

// Into a separate buffer, or over the source of index `place`.
Buffer run(Isa isa, DType type, ReduceOp op, std::vector<Buffer> inputs, std::uint32_t divisor,
           std::optional<std::size_t> place = std::nullopt) {
  std::vector<const std::byte*> sources;
  for (const Buffer& input : inputs) {
    sources.push_back(input.data());
  }
  Buffer own(inputs[0].size());
  Buffer& out = place ? inputs[*place] : own;
  kernels(isa).reduce(type, op)(sources.data(), sources.size(), out.data(), out.size() / size_of(type),
                                divisor);
  return out;
}

std::vector<Isa> available() {
  std::vector<Isa> isas;
  std::ranges::copy_if(kIsas, std::back_inserter(isas), is_available);
  return isas;
}

// With all instruction sets, into a separate buffer and over each source.
void expect_reference(DType type, ReduceOp op, std::size_t count, std::size_t sources) {
  std::vector<Buffer> inputs;
  std::vector<std::vector<Buffer>>
      hosts;  // of one rank each, so that the reference's second fold sees the values
  for (std::size_t rank = 0; rank < sources; ++rank) {
    inputs.push_back(random_buffer(type, count, static_cast<std::uint32_t>(100 * rank + count)));
    hosts.push_back({inputs.back()});
  }
  const Buffer expected = reference_reduce(type, op, hosts);
  const std::uint32_t divisor = op == ReduceOp::kAvg ? static_cast<std::uint32_t>(sources) : 1;
  for (const Isa isa : available()) {
    const auto where = [&] {
      return std::string(name_of(isa)) + " " + std::string(name_of(type)) + " " + std::string(name_of(op)) +
             " " + std::to_string(count) + " of " + std::to_string(sources);
    };
    EXPECT_EQ(run(isa, type, op, inputs, divisor), expected) << where();
    for (std::size_t place = 0; place < sources; ++place) {
      EXPECT_EQ(run(isa, type, op, inputs, divisor, place), expected) << where() << " over " << place;
    }
  }
}

TEST(Kernels, EveryTypeAndOperationGivesTheReferencesBitsOnEveryInstructionSet) {
  int compared = 0;
  for (std::uint8_t t = 0; t < kDTypes; ++t) {
    for (std::uint8_t o = 0; o < kReduceOps; ++o) {
      const auto type = static_cast<DType>(t);
      const auto op = static_cast<ReduceOp>(o);
      if (!is_offered(type, op)) {
        continue;
      }
      for (const std::size_t count : {1U, 7U, 8U, 31U, 2048U, 5003U}) {
        for (const std::size_t sources : {1U, 2U, 3U, 5U}) {
          expect_reference(type, op, count, sources);
        }
        ++compared;
      }
    }
  }
  EXPECT_EQ(compared, 6 * (4 * 5 + 5 * 8 + 7));
}

TEST(Kernels, ConvertEveryFloat16AndEveryBFloat16) {
  for (const DType type : {DType::kFloat16, DType::kBFloat16}) {
    Buffer all(2 * 65536);
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
      const auto half = static_cast<std::uint16_t>(bits);
      std::memcpy(all.data() + 2 * bits, &half, 2);
    }
    const Buffer zero = Buffer(all.size());
    const Buffer expected = reference_reduce(type, ReduceOp::kSum, {{all}, {zero}});
    for (const Isa isa : available()) {
      EXPECT_EQ(run(isa, type, ReduceOp::kSum, {all, zero}, 1), expected) << name_of(isa);
    }
  }
}

TEST(Kernels, StreamingCopiesExactlyTheGivenBytes) {
  const Buffer from = random_buffer(DType::kUInt8, 1000, 1);
  for (std::size_t offset = 0; offset < 70; ++offset) {
    for (const std::size_t length : {0U, 1U, 63U, 64U, 65U, 200U, 640U}) {
      Buffer to(1000);
      copy_streaming(std::span(from).subspan(offset / 2, length), std::span(to).subspan(offset, length));
      Buffer expected(1000);
      std::memcpy(expected.data() + offset, from.data() + offset / 2, length);
      ASSERT_EQ(to, expected) << offset << " " << length;
    }
  }
}

}  // namespace
}  // namespace smdp::testing
