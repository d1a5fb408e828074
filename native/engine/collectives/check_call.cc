#include "collectives/check_call.h"

#include <cstdint>
#include <set>
#include <string>
#include <utility>

namespace smdp {
namespace {

// An empty buffer may be one that this rank does not have.
Status check_buffer(const Call& call, const std::string& which, std::span<const std::byte> buffer,
                    std::uint64_t bytes) {
  if (buffer.size() != bytes && !buffer.empty()) {
    return {Code::kInvalid, describe(call.what) + ": the " + which + " has " + std::to_string(buffer.size()) +
                                " bytes, and the call needs " + std::to_string(bytes)};
  }
  const std::size_t element = size_of(call.what.dtype);
  const std::uintptr_t past = reinterpret_cast<std::uintptr_t>(buffer.data()) % element;
  if (past != 0) {
    return {Code::kInvalid, describe(call.what) + ": the " + which + " is at offset " + std::to_string(past) +
                                " from a multiple of " + std::to_string(element) +
                                ", the size of its elements: align its memory"};
  }
  return {};
}

// Checks that memory is aligned to elements and has the right length, and that input and output are the same
// memory or do not overlap.
Status check_buffers(const Call& call, int group_size, int group_rank) {
  const std::size_t element = size_of(call.what.dtype);
  if (call.what.count > (1ULL << 48U)) {
    return {Code::kInvalid, describe(call.what) + ": too large"};
  }
  const auto ranks = static_cast<std::uint64_t>(group_size);
  const std::uint64_t one = call.what.count * element;
  const bool gathers = call.what.collective == Collective::kAllGather;
  const bool scatters = call.what.collective == Collective::kReduceScatter;
  const std::uint64_t bytes = scatters ? one * ranks : one;
  const std::uint64_t out_bytes = gathers ? one * ranks : one;
  if (call.what.collective == Collective::kBarrier || bytes == 0) {
    return {};
  }
  if (Status status = check_buffer(call, "input", call.input, bytes); !status.ok()) {
    return status;
  }
  if (Status status = check_buffer(call, "output", call.output, out_bytes); !status.ok()) {
    return status;
  }
  const std::byte* in = call.input.data();
  const std::byte* out = call.output.data();
  const bool overlap =
      !call.input.empty() && !call.output.empty() && in < out + out_bytes && out < in + bytes;
  const std::uint64_t own =
      one * static_cast<std::uint64_t>(group_rank);  // of a scattered or gathered buffer
  const bool same = scatters ? in + own == out : in == (gathers ? out + own : out);
  if (overlap && !same) {
    const std::string rule = gathers    ? "the input must be this rank's part of the output, or apart from it"
                             : scatters ? "the output must be this rank's part of the input, or apart from it"
                                        : "they must be the same or apart";
    return {Code::kInvalid, describe(call.what) + ": input and output overlap; " + rule};
  }
  return {};
}

Status check_parts(const Call& call, int group_size, int group_rank) {
  const Collective collective = call.what.collective;
  std::set<std::pair<int, bool>> seen;
  for (const Part& part : call.parts) {
    if (!seen.emplace(part.peer, part.receive).second && collective != Collective::kSend &&
        collective != Collective::kRecv) {
      return {Code::kInvalid,
              describe(call.what) + ": has two messages one way for rank " + std::to_string(part.peer)};
    }
    const bool any = part.peer == Part::kAnyRank && part.receive && collective == Collective::kRecv;
    if (!any && (part.peer < 0 || part.peer >= group_size || part.peer == group_rank)) {
      return {Code::kInvalid,
              describe(call.what) + ": rank " + std::to_string(part.peer) + " is no other rank of the group"};
    }
    if (part.memory.data() == nullptr && !part.memory.empty()) {
      return {Code::kInvalid, describe(call.what) + ": a buffer is missing"};
    }
  }
  if (call.tag >= 1U << 31U) {
    return {Code::kInvalid,
            describe(call.what) + ": the tag " + std::to_string(call.tag) + " is not below 2147483648"};
  }
  if (call.keyed) {
    return {Code::kInvalid,
            describe(call.what) + ": only all_reduce takes buffers named by (step, index, count)"};
  }
  return {};
}

std::string reductions_of(DType type) {
  std::string names;
  for (std::uint8_t i = 0; i < kReduceOps; ++i) {
    const auto op = static_cast<ReduceOp>(i);
    if (is_offered(type, op)) {
      names += (names.empty() ? "" : ", ") + std::string(name_of(op));
    }
  }
  return names;
}

Status check_collective(const Call& call, int group_size, int group_rank) {
  const Descriptor& what = call.what;
  if (reduces(what.collective) && !is_offered(what.dtype, what.op)) {
    return {Code::kUnsupported, describe(what) + ": this reduction is not defined for this type; " +
                                    std::string(name_of(what.dtype)) + " has " + reductions_of(what.dtype)};
  }
  if (has_root(what.collective) && what.root >= static_cast<std::uint32_t>(group_size)) {
    return {Code::kInvalid, describe(what) + ": the root is no rank of the group"};
  }
  if (call.keyed && what.collective != Collective::kAllReduce) {
    return {Code::kUnsupported,
            describe(what) + ": only all_reduce takes buffers named by (step, index, count)"};
  }
  if (Status status = check_buffers(call, group_size, group_rank); !status.ok()) {
    return status;
  }
  const bool is_root = std::cmp_equal(what.root, group_rank);
  const bool needs_input =
      what.collective != Collective::kBarrier && (what.collective != Collective::kBroadcast || is_root);
  const bool needs_output =
      what.collective != Collective::kBarrier && (what.collective != Collective::kReduce || is_root);
  if (what.count > 0 && ((needs_input && call.input.empty()) || (needs_output && call.output.empty()))) {
    return {Code::kInvalid, describe(what) + ": a buffer is missing"};
  }
  return {};
}

}  // namespace

Status check_call(const Call& call, int group_size, int group_rank) {
  return is_made_of_messages(call.what.collective) ? check_parts(call, group_size, group_rank)
                                                   : check_collective(call, group_size, group_rank);
}

}  // namespace smdp
