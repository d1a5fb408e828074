#include "values.h"

#include <algorithm>
#include <cstring>

#include "layout/plan.h"

namespace smdp::simulation {
namespace {

using testing::Buffer;

Buffer input_of(const PlannedCall& call, std::uint32_t number, std::size_t ranks, int group_rank) {
  const bool scatters = call.what.collective == Collective::kReduceScatter;
  const std::size_t count = scatters ? call.what.count * ranks : call.what.count;
  return testing::random_buffer(call.what.dtype, count,
                                number * 65537U + static_cast<std::uint32_t>(group_rank * 257));
}

PlannedCall made_as(PlannedCall call, const Descriptor& what) {
  call.what = what;
  return call;
}

// Different on every rank.
std::size_t message_bytes(const PlannedCall& call, int from, int to) {
  return call.what.count + static_cast<std::size_t>(from) * 7 + static_cast<std::size_t>(to) * 3;
}

// Bytes without a type, which are faster to create than values.
Buffer message(const PlannedCall& call, std::uint32_t number, int from, int to) {
  Buffer bytes(message_bytes(call, from, to));
  std::uint64_t state =
      number * 65537ULL + static_cast<std::uint64_t>(from) * 257 + static_cast<std::uint64_t>(to) + 1;
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(state)) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    std::memcpy(bytes.data() + at, &state, std::min(sizeof(state), bytes.size() - at));
  }
  return bytes;
}

// The messages of one rank in a call that is made of them.
std::vector<Values::Message> messages_of(const PlannedCall& call, std::uint32_t number, int ranks, int rank) {
  const auto root = static_cast<int>(call.what.root);
  const auto passes = [&](int from, int to) {
    switch (call.what.collective) {
      case Collective::kSend:
        return from == root && to == call.to;
      case Collective::kGather:
        return to == root;
      case Collective::kScatter:
        return from == root;
      default:
        return true;
    }
  };
  std::vector<Values::Message> messages;
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer == rank) {
      continue;
    }
    if (passes(rank, peer)) {
      messages.push_back({peer, false, message(call, number, rank, peer)});
    }
    if (passes(peer, rank)) {
      messages.push_back({peer, true, Buffer(message_bytes(call, peer, rank))});
    }
  }
  return messages;
}

Buffer reduced(const JobPlan& plan, std::uint32_t number, const PlannedCall& call) {
  const auto& members = plan.groups[call.group];
  const std::vector<int> hosts_of_ranks = host_of(plan);
  std::vector<int> hosts;
  hosts.reserve(members.size());
  for (const int member : members) {
    hosts.push_back(hosts_of_ranks[static_cast<std::size_t>(member)]);
  }
  std::vector<std::vector<Buffer>> inputs;
  for (const auto& ranks : make_group_layout(hosts).hosts) {
    auto& of_host = inputs.emplace_back();
    for (const int rank : ranks) {
      of_host.push_back(input_of(call, number, members.size(), rank));
    }
  }
  return testing::reference_reduce(call.what.dtype, call.what.op, inputs);
}

// The result of which every rank gets all, or a part.
Buffer whole_result(const JobPlan& plan, std::uint32_t number, const PlannedCall& call) {
  const std::size_t ranks = plan.groups[call.group].size();
  switch (call.what.collective) {
    case Collective::kBroadcast:
      return input_of(call, number, ranks, static_cast<int>(call.what.root));
    case Collective::kAllGather: {
      Buffer all;
      for (int rank = 0; std::cmp_less(rank, ranks); ++rank) {
        const Buffer part = input_of(call, number, ranks, rank);
        all.insert(all.end(), part.begin(), part.end());
      }
      return all;
    }
    default:
      return reduced(plan, number, call);
  }
}

}  // namespace

std::size_t Values::digest() const {
  const auto of = [](const testing::Buffer& bytes) {
    return std::hash<std::string_view>()({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  };
  std::size_t all = of(input) * 31 + of(output);
  for (const Message& message : messages) {
    all = all * 31 + of(message.bytes);
  }
  return all;
}

void Values::lend(Call& call) {
  if (call.what.collective != Collective::kBarrier) {
    call.input = input;
    call.output = output;
  }
  for (Message& message : messages) {
    call.parts.push_back({message.peer, message.receive, message.bytes, nullptr});
  }
}

Values values_before(const JobPlan& plan, std::uint32_t number, const Descriptor& what, int group_rank) {
  const PlannedCall call = made_as(plan.calls[number], what);
  const std::size_t ranks = plan.groups[call.group].size();
  Values values;
  if (is_made_of_messages(what.collective)) {
    values.messages = messages_of(call, number, static_cast<int>(ranks), group_rank);
    return values;
  }
  values.input = input_of(call, number, ranks, group_rank);
  const bool gathers = what.collective == Collective::kAllGather;
  values.output.resize((gathers ? what.count * ranks : what.count) * size_of(what.dtype));
  return values;
}

const Buffer& Reference::result_of(std::uint32_t number, const PlannedCall& call) {
  const auto [found, is_new] = results_.try_emplace({number, call.what.count});
  if (is_new) {
    found->second = whole_result(plan_, number, call);
  }
  return found->second;
}

bool Reference::agrees(const Values& values, std::uint32_t number, const Descriptor& what, int group_rank) {
  const PlannedCall call = made_as(plan_.calls[number], what);
  const Collective collective = call.what.collective;
  if (is_made_of_messages(collective)) {
    return std::ranges::all_of(values.messages, [&](const Values::Message& one) {
      return !one.receive || one.bytes == message(call, number, one.peer, group_rank);
    });
  }
  const bool is_for_root =
      collective == Collective::kReduce && std::cmp_not_equal(call.what.root, group_rank);
  if (collective == Collective::kBarrier || is_for_root) {
    return true;
  }
  const std::span<const std::byte> whole = result_of(number, call);
  const std::size_t bytes = values.output.size();
  const bool is_part = collective == Collective::kReduceScatter;
  return std::ranges::equal(values.output,
                            whole.subspan(is_part ? static_cast<std::size_t>(group_rank) * bytes : 0, bytes));
}

}  // namespace smdp::simulation
