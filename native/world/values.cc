#include "values.h"

#include <algorithm>

#include "collectives/plan.h"

namespace smdp::simulation {
namespace {

using testing::Buffer;

// The same whoever asks.
Buffer random_bytes(std::uint32_t number, int from, int to, std::size_t count, DType type) {
  return testing::random_buffer(type, count, number * 65537U + static_cast<std::uint32_t>(from * 257 + to));
}

Buffer input_of(const PlannedCall& call, std::uint32_t number, std::size_t ranks, int group_rank) {
  const bool scatters = call.what.collective == Collective::kReduceScatter;
  const std::size_t count = scatters ? call.what.count * ranks : call.what.count;
  return random_bytes(number, group_rank, 0, count, call.what.dtype);
}

PlannedCall made_as(PlannedCall call, const Descriptor& what) {
  call.what = what;
  return call;
}

// Different between every two ranks.
std::size_t message_bytes(const PlannedCall& call, int from, int to) {
  return (call.what.count + static_cast<std::size_t>(from) * 7 + static_cast<std::size_t>(to) * 3) % 20000;
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
      const std::size_t bytes = message_bytes(call, rank, peer);
      messages.push_back({peer, false, random_bytes(number, rank, peer, bytes, DType::kUInt8)});
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

Buffer expected_output(const JobPlan& plan, std::uint32_t number, const PlannedCall& call, int group_rank) {
  const std::size_t ranks = plan.groups[call.group].size();
  const std::size_t bytes = call.what.count * size_of(call.what.dtype);
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
    case Collective::kReduceScatter: {
      const Buffer sum = reduced(plan, number, call);
      const auto first =
          sum.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(group_rank) * bytes);
      return {first, first + static_cast<std::ptrdiff_t>(bytes)};
    }
    default:
      return reduced(plan, number, call);
  }
}

}  // namespace

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

bool are_right(const Values& values, const JobPlan& plan, std::uint32_t number, const Descriptor& what,
               int group_rank) {
  const PlannedCall call = made_as(plan.calls[number], what);
  const Collective collective = call.what.collective;
  if (is_made_of_messages(collective)) {
    return std::ranges::all_of(values.messages, [&](const Values::Message& one) {
      return !one.receive ||
             one.bytes == random_bytes(number, one.peer, group_rank,
                                       message_bytes(call, one.peer, group_rank), DType::kUInt8);
    });
  }
  const bool is_for_root =
      collective == Collective::kReduce && std::cmp_not_equal(call.what.root, group_rank);
  return collective == Collective::kBarrier || is_for_root ||
         values.output == expected_output(plan, number, call, group_rank);
}

}  // namespace smdp::simulation
