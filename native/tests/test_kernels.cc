#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "kernels/copy.h"
#include "kernels/reduce.h"
#include "reference.h"

namespace smdp::testing {
namespace {

Buffer run(Isa isa, DType type, ReduceOp op, const std::vector<Buffer>& inputs, std::uint32_t divisor) {
  std::vector<const std::byte*> sources;
  for (const Buffer& input : inputs) {
    sources.push_back(input.data());
  }
  Buffer out(inputs[0].size());
  reduce_kernel(isa, type, op)(sources.data(), sources.size(), out.data(), out.size() / size_of(type),
                               divisor);
  return out;
}

std::vector<Isa> available() {
  std::vector<Isa> isas;
  std::ranges::copy_if(kIsas, std::back_inserter(isas), is_available);
  return isas;
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
        std::vector<Buffer> inputs;
        for (std::uint32_t rank = 0; rank < 3; ++rank) {
          inputs.push_back(random_buffer(type, count, 100 * rank + static_cast<std::uint32_t>(count)));
        }
        // One host of one rank each: the reference's second fold sees the values themselves.
        const Buffer expected = reference_reduce(type, op, {{inputs[0]}, {inputs[1]}, {inputs[2]}});
        const std::uint32_t divisor = op == ReduceOp::kAvg ? 3 : 1;
        for (const Isa isa : available()) {
          EXPECT_EQ(run(isa, type, op, inputs, divisor), expected)
              << name_of(isa) << " " << name_of(type) << " " << name_of(op) << " " << count;
        }
        ++compared;
      }
    }
  }
  EXPECT_EQ(compared, 6 * (4 * 5 + 5 * 8 + 7));
}

TEST(Kernels, ConvertEveryHalfAndEveryBrainFloat) {
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

TEST(Kernels, TheOutputMayBeASource) {
  Buffer first = random_buffer(DType::kFloat32, 4099, 1);
  const Buffer second = random_buffer(DType::kFloat32, 4099, 2);
  const Buffer expected = run(Isa::kPortable, DType::kFloat32, ReduceOp::kSum, {first, second}, 1);
  const std::byte* sources[] = {first.data(), second.data()};  // NOLINT(modernize-avoid-c-arrays)
  reduce_kernel(best_isa(), DType::kFloat32, ReduceOp::kSum)(sources, 2, first.data(), 4099, 1);
  EXPECT_EQ(first, expected);
}

TEST(Kernels, StreamingCopiesEveryByteAndNoOther) {
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
