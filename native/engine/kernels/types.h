// Element types, reductions and collectives. The numbers are on the wire and in the C interface: never
// renumber.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace smdp {

enum class DType : std::uint8_t {
  kFloat32 = 0,
  kFloat64 = 1,
  kFloat16 = 2,
  kBFloat16 = 3,
  kInt8 = 4,
  kInt16 = 5,
  kInt32 = 6,
  kInt64 = 7,
  kUInt8 = 8,
  kBool = 9,
};
inline constexpr std::uint8_t kDTypes = 10;

enum class ReduceOp : std::uint8_t {
  kSum = 0,
  kAvg = 1,
  kMin = 2,
  kMax = 3,
  kProduct = 4,
  kBand = 5,
  kBor = 6,
  kBxor = 7,
};
inline constexpr std::uint8_t kReduceOps = 8;

enum class Collective : std::uint8_t {
  kAllReduce = 0,
  kBroadcast = 1,
  kReduce = 2,
  kAllGather = 3,
  kBarrier = 4,
  kReduceScatter = 5,
  // Made of point-to-point messages (collectives/point_to_point.h).
  kGather = 6,
  kScatter = 7,
  kAllToAll = 8,
  kSend = 9,
  kRecv = 10,
};
inline constexpr std::uint8_t kCollectives = 11;

constexpr bool reduces(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduce ||
         collective == Collective::kReduceScatter;
}

constexpr bool has_root(Collective collective) {
  return collective == Collective::kBroadcast || collective == Collective::kReduce;
}

constexpr bool is_made_of_messages(Collective collective) { return collective >= Collective::kGather; }

constexpr std::size_t size_of(DType type) {
  switch (type) {
    case DType::kFloat64:
    case DType::kInt64:
      return 8;
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kInt16:
      return 2;
    default:
      return 1;
  }
}

constexpr bool is_float(DType type) {
  return type == DType::kFloat32 || type == DType::kFloat64 || type == DType::kFloat16 ||
         type == DType::kBFloat16;
}

// Bitwise operations need integers or bool, an average needs numbers.
constexpr bool is_offered(DType type, ReduceOp op) {
  if (op == ReduceOp::kBand || op == ReduceOp::kBor || op == ReduceOp::kBxor) {
    return !is_float(type);
  }
  return op != ReduceOp::kAvg || type != DType::kBool;
}

std::string_view name_of(DType type);
std::string_view name_of(ReduceOp op);
std::string_view name_of(Collective collective);

}  // namespace smdp
