#include "counting_kernels.h"

namespace smdp::model {
namespace {

// A kernel is a function without an object.
Memory* charged = nullptr;
const Costs* costs_now = nullptr;

void charge(double each, std::size_t bytes) { charged->move(each, bytes); }

template <std::size_t kWidth>
void fold(const std::byte* const*, std::size_t sources, std::byte*, std::size_t count, std::uint32_t) {
  charge(costs_now->fold_byte, sources * count * kWidth);
}

ReduceFn reduce(DType type, ReduceOp) {
  switch (size_of(type)) {
    case 1:
      return fold<1>;
    case 2:
      return fold<2>;
    case 4:
      return fold<4>;
    default:
      return fold<8>;
  }
}

Conversion convert(DType) {
  return {[](const float*, std::byte*, std::size_t count) {
            charge(costs_now->copy_byte, count * sizeof(float));
          },
          [](const std::byte*, float*, std::size_t count) {
            charge(costs_now->copy_byte, count * sizeof(float));
          }};
}

void copy(std::span<const std::byte> from, std::span<std::byte>) {
  charge(costs_now->copy_byte, from.size());
}

constexpr KernelSet kSet = {reduce, convert, copy, copy};

}  // namespace

CountingKernels::CountingKernels(const Costs& costs) { costs_now = &costs; }

CountingKernels::~CountingKernels() { costs_now = nullptr; }

CountingKernels::On::On(Memory& memory) { charged = &memory; }

CountingKernels::On::~On() { charged = nullptr; }

const KernelSet& CountingKernels::set() { return kSet; }

}  // namespace smdp::model
