#include "reference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <utility>

namespace smdp::testing {
namespace {

template <class T>
T get(const Buffer& from, std::size_t i) {
  T value;
  std::memcpy(&value, from.data() + i * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void put(Buffer& to, std::size_t i, T value) {
  std::memcpy(to.data() + i * sizeof(T), &value, sizeof(T));
}

template <class T>
T one_nan(T value) {
  return std::isnan(value) ? std::numeric_limits<T>::quiet_NaN() : value;
}

template <class T>
T float_op(ReduceOp op, T a, T b) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return a + b;
    case ReduceOp::kProduct:
      return a * b;
    default:
      break;
  }
  if (std::isnan(a) || std::isnan(b)) {
    return std::numeric_limits<T>::quiet_NaN();
  }
  return op == ReduceOp::kMin ? (b < a ? b : a) : (b > a ? b : a);
}

template <class T>
T integer_op(ReduceOp op, T a, T b) {
  using U = std::make_unsigned_t<T>;
  const auto ua = static_cast<std::uint64_t>(static_cast<U>(a));
  const auto ub = static_cast<std::uint64_t>(static_cast<U>(b));
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return static_cast<T>(static_cast<U>(ua + ub));
    case ReduceOp::kProduct:
      return static_cast<T>(static_cast<U>(ua * ub));
    case ReduceOp::kMin:
      return std::min(a, b);
    case ReduceOp::kMax:
      return std::max(a, b);
    case ReduceOp::kBand:
      return static_cast<T>(static_cast<U>(ua & ub));
    case ReduceOp::kBor:
      return static_cast<T>(static_cast<U>(ua | ub));
    case ReduceOp::kBxor:
      return static_cast<T>(static_cast<U>(ua ^ ub));
  }
  return a;
}

bool truth_op(ReduceOp op, bool a, bool b) {
  switch (op) {
    case ReduceOp::kProduct:
    case ReduceOp::kMin:
    case ReduceOp::kBand:
      return a && b;
    case ReduceOp::kBxor:
      return a != b;
    default:
      return a || b;
  }
}

// One fold over the sources in order; `divisor` above 1 for the last fold of an average.
template <class T>
Buffer fold_float(ReduceOp op, const std::vector<const Buffer*>& sources, int divisor) {
  Buffer out(sources[0]->size());
  for (std::size_t i = 0; i < out.size() / sizeof(T); ++i) {
    T sum = get<T>(*sources[0], i);
    for (std::size_t s = 1; s < sources.size(); ++s) {
      sum = float_op(op, sum, get<T>(*sources[s], i));
    }
    put(out, i, one_nan(divisor > 1 ? sum / static_cast<T>(divisor) : sum));
  }
  return out;
}

Buffer fold_narrow(DType type, ReduceOp op, const std::vector<const Buffer*>& sources, int divisor) {
  Buffer out(sources[0]->size());
  for (std::size_t i = 0; i < out.size() / 2; ++i) {
    float sum = widen(type, get<std::uint16_t>(*sources[0], i));
    for (std::size_t s = 1; s < sources.size(); ++s) {
      sum = float_op(op, sum, widen(type, get<std::uint16_t>(*sources[s], i)));
    }
    put(out, i, narrow(type, divisor > 1 ? sum / static_cast<float>(divisor) : sum));
  }
  return out;
}

template <class T>
Buffer fold_integer(ReduceOp op, const std::vector<const Buffer*>& sources, int divisor) {
  Buffer out(sources[0]->size());
  for (std::size_t i = 0; i < out.size() / sizeof(T); ++i) {
    T sum = get<T>(*sources[0], i);
    for (std::size_t s = 1; s < sources.size(); ++s) {
      sum = integer_op(op, sum, get<T>(*sources[s], i));
    }
    put(out, i, divisor > 1 ? static_cast<T>(static_cast<std::int64_t>(sum) / divisor) : sum);
  }
  return out;
}

Buffer fold_truth(ReduceOp op, const std::vector<const Buffer*>& sources) {
  Buffer out(sources[0]->size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    bool sum = (*sources[0])[i] != std::byte{0};
    for (std::size_t s = 1; s < sources.size(); ++s) {
      sum = truth_op(op, sum, (*sources[s])[i] != std::byte{0});
    }
    out[i] = std::byte{sum};
  }
  return out;
}

Buffer fold(DType type, ReduceOp op, const std::vector<const Buffer*>& sources, int divisor) {
  switch (type) {
    case DType::kFloat32:
      return fold_float<float>(op, sources, divisor);
    case DType::kFloat64:
      return fold_float<double>(op, sources, divisor);
    case DType::kFloat16:
    case DType::kBFloat16:
      return fold_narrow(type, op, sources, divisor);
    case DType::kInt8:
      return fold_integer<std::int8_t>(op, sources, divisor);
    case DType::kInt16:
      return fold_integer<std::int16_t>(op, sources, divisor);
    case DType::kInt32:
      return fold_integer<std::int32_t>(op, sources, divisor);
    case DType::kInt64:
      return fold_integer<std::int64_t>(op, sources, divisor);
    case DType::kUInt8:
      return fold_integer<std::uint8_t>(op, sources, divisor);
    case DType::kBool:
      return fold_truth(op, sources);
  }
  return {};
}

}  // namespace

namespace {

// By the definition of the formats, in double.
float define_widened(DType type, std::uint16_t bits) {
  if (type == DType::kBFloat16) {
    const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16U;
    float value = 0;
    std::memcpy(&value, &wide, sizeof(value));
    return value;
  }
  const int sign = (bits & 0x8000U) != 0 ? -1 : 1;
  const int exponent = (bits >> 10U) & 31;
  const int fraction = bits & 1023;
  if (exponent == 31) {
    return fraction != 0 ? std::numeric_limits<float>::quiet_NaN()
                         : static_cast<float>(sign) * std::numeric_limits<float>::infinity();
  }
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return static_cast<float>(std::copysign(magnitude, sign));
}

std::vector<float> widen_all(DType type) {
  std::vector<float> table(65536);
  for (std::uint32_t bits = 0; bits < table.size(); ++bits) {
    table[bits] = define_widened(type, static_cast<std::uint16_t>(bits));
  }
  return table;
}

}  // namespace

float widen(DType type, std::uint16_t bits) {
  static const std::vector<float> half = widen_all(DType::kFloat16);
  static const std::vector<float> bfloat16 = widen_all(DType::kBFloat16);
  return (type == DType::kFloat16 ? half : bfloat16)[bits];
}

// The nearest value of the type, the even one of two equally near ones.
std::uint16_t narrow(DType type, float value) {
  const unsigned exponent_bits = type == DType::kFloat16 ? 5 : 8;
  const int fraction_bits = type == DType::kFloat16 ? 10 : 7;
  const unsigned infinity = ((1U << exponent_bits) - 1U) << static_cast<unsigned>(fraction_bits);
  if (std::isnan(value)) {
    return static_cast<std::uint16_t>(infinity | 1U << static_cast<unsigned>(fraction_bits - 1));
  }
  const unsigned sign = std::signbit(value) ? 0x8000U : 0U;
  const double magnitude = std::fabs(static_cast<double>(value));
  if (std::isinf(value)) {
    return static_cast<std::uint16_t>(sign | infinity);
  }
  const int bias = (1 << (exponent_bits - 1)) - 1;
  int exponent = magnitude == 0 ? 1 - bias : std::ilogb(magnitude);
  exponent = std::max(exponent, 1 - bias);
  const double unit = std::ldexp(1.0, exponent - fraction_bits);
  const auto steps = static_cast<std::uint32_t>(std::nearbyint(magnitude / unit));  // ties to even
  // `steps` carries its own leading one for normal numbers, so adding moves the exponent where rounding
  // overflowed.
  const std::uint32_t base = static_cast<std::uint32_t>(exponent + bias - 1)
                             << static_cast<unsigned>(fraction_bits);
  return static_cast<std::uint16_t>(sign | std::min(base + steps, infinity));
}

namespace {

// The divisors of an average that is rounded to 16 bits between hosts: of each host's sum, and of the sum of
// these. So no sum is larger than the largest value.
std::pair<int, int> divisors(const std::vector<std::vector<Buffer>>& hosts) {
  int ranks = 0;
  int most = 0;
  for (const auto& host : hosts) {
    ranks += static_cast<int>(host.size());
    most = std::max(most, static_cast<int>(host.size()));
  }
  int by = most;
  while (ranks % by != 0) {
    ++by;
  }
  return {by, ranks / by};
}

}  // namespace

Buffer reference_reduce(DType type, ReduceOp op, const std::vector<std::vector<Buffer>>& hosts) {
  const bool narrow = type == DType::kFloat16 || type == DType::kBFloat16;
  auto [of_host, of_all] = op == ReduceOp::kAvg ? divisors(hosts) : std::pair(1, 1);
  if (!narrow) {
    of_all *= std::exchange(of_host, 1);
  }
  std::vector<Buffer> host_sums;
  for (const auto& host : hosts) {
    std::vector<const Buffer*> sources;
    for (const Buffer& buffer : host) {
      sources.push_back(&buffer);
    }
    host_sums.push_back(fold(type, op, sources, of_host));
  }
  std::vector<const Buffer*> sources;
  for (const Buffer& buffer : host_sums) {
    sources.push_back(&buffer);
  }
  return fold(type, op, sources, of_all);
}

namespace {

// Numbers of both signs below 2^15, over more than thirty binary orders of magnitude, and sometimes a special
// value.
double random_value(std::mt19937_64& random) {
  static constexpr std::array<double, 8> kRare = {0.0, -0.0, 1e-40, -6e-8, 60000.0, INFINITY, -INFINITY, NAN};
  const std::uint64_t bits = random();
  if (bits % 64 == 0) {
    return kRare[(bits >> 6U) % kRare.size()];
  }
  const auto mantissa = static_cast<double>(static_cast<std::int32_t>(bits >> 32U));
  return mantissa / static_cast<double>(1ULL << (16U + bits % 32));
}

}  // namespace

Buffer random_buffer(DType type, std::size_t count, std::uint32_t seed) {
  Buffer out(count * size_of(type));
  std::mt19937_64 random(seed);
  if (!is_float(type)) {
    for (std::size_t at = 0; at < out.size(); at += sizeof(std::uint64_t)) {
      const std::uint64_t bits = random();
      std::memcpy(out.data() + at, &bits, std::min(sizeof(bits), out.size() - at));
    }
    return out;
  }
  for (std::size_t i = 0; i < count; ++i) {
    const double value = random_value(random);
    if (type == DType::kFloat32) {
      put(out, i, static_cast<float>(value));
    } else if (type == DType::kFloat64) {
      put(out, i, value);
    } else {
      put(out, i, narrow(type, static_cast<float>(value)));
    }
  }
  return out;
}

Buffer reference_reduce_narrowed(DType wire, ReduceOp op, const std::vector<std::vector<Buffer>>& hosts) {
  const auto [of_host, of_all] = op == ReduceOp::kAvg ? divisors(hosts) : std::pair(1, 1);
  std::vector<Buffer> sums;
  for (const auto& inputs : hosts) {
    std::vector<const Buffer*> sources;
    for (const Buffer& buffer : inputs) {
      sources.push_back(&buffer);
    }
    sums.push_back(fold(DType::kFloat32, ReduceOp::kSum, sources, of_host));
  }
  const auto sent_value = [&](const Buffer& from, std::size_t i) {
    return widen(wire, narrow(wire, get<float>(from, i)));
  };
  Buffer out(sums[0].size());
  for (std::size_t i = 0; i < out.size() / sizeof(float); ++i) {
    float sum = sent_value(sums[0], i);
    for (std::size_t host = 1; host < sums.size(); ++host) {
      sum += sent_value(sums[host], i);
    }
    sum = of_all > 1 ? sum / static_cast<float>(of_all) : sum;
    put(out, i, widen(wire, narrow(wire, sum)));
  }
  return out;
}

}  // namespace smdp::testing
