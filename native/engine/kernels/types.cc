#include "kernels/types.h"

#include <array>

namespace smdp {
namespace {

constexpr std::array<std::string_view, kDTypes> kDTypeNames = {
    "float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool"};
constexpr std::array<std::string_view, kReduceOps> kReduceOpNames = {"sum",     "avg",  "min", "max",
                                                                     "product", "band", "bor", "bxor"};
constexpr std::array<std::string_view, kCollectives> kCollectiveNames = {
    "all_reduce", "broadcast", "reduce",     "all_gather", "barrier", "reduce_scatter",
    "gather",     "scatter",   "all_to_all", "send",       "recv"};

template <std::size_t N, class E>
std::string_view look_up(const std::array<std::string_view, N>& names, E value) {
  const auto index = static_cast<std::size_t>(value);
  return index < N ? names[index] : "unknown";
}

}  // namespace

std::string_view name_of(DType type) { return look_up(kDTypeNames, type); }
std::string_view name_of(ReduceOp op) { return look_up(kReduceOpNames, op); }
std::string_view name_of(Collective collective) { return look_up(kCollectiveNames, collective); }

}  // namespace smdp
