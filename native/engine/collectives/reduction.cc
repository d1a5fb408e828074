// The reducing pieces of an operation, from top to bottom: all_reduce, reduce and reduce_scatter.
//
//   1  The ranks of each host contribute their values (LocalJob). On the piece's agent, sum() adds them
//      in the order of local ranks: the host's sum.
//   2  The agent sends the host's sum to the rank that adds the sums of all hosts: the agent of the piece's
//      owner host, or, for small pieces, the agent of every host. fp32 sums may be narrowed first
//      (SMDP_WIRE_DTYPE).
//   3  That rank collects one sum per host and adds them in the order of hosts.
//   4  It sends the result to the agents of the other hosts. A result for a single rank goes to that rank.
//   5  Each agent delivers the result to the ranks of its host.
//
// On one host, steps 2 to 4 move no bytes. Every piece takes these steps independently of the others.
#include <algorithm>
#include <utility>

#include "collectives/operation.h"

namespace smdp {
namespace {

constexpr std::byte no_bytes{};  // a sum without bytes; null: the sum has not arrived

}  // namespace

// --- 1: the sum of this host ---

void Operation::contributed(std::uint32_t piece) {
  ready_.push_back(piece);
  if (started_) {
    advance();
  }
}

// Two rounds keep every host busy, and prevent a circle of hosts that wait for each other's windows (plan.h).
bool Operation::may_send(std::uint32_t piece) {
  const std::uint64_t bytes = wire_bytes(piece);
  const bool due = in_flight_ < 2 * round_ && host_.is_oldest(number_);
  if (hosts_ == 1 || goes_first(call_.what, bytes) || due || budget_.used + bytes <= budget_.limit) {
    return true;
  }
  budget_.starved = true;
  return false;
}

void Operation::settle(std::uint32_t piece) {
  --in_flight_;
  in_flight_bytes_ -= wire_bytes(piece);
  budget_.used -= wire_bytes(piece);
}

bool Operation::sum_next() {
  if (ready_.empty() || !may_send(ready_.front())) {
    return false;
  }
  const std::uint32_t piece = ready_.front();
  if (!local_->may_sum(piece)) {
    return false;
  }
  ready_.pop_front();
  ++in_flight_;
  in_flight_bytes_ += wire_bytes(piece);
  budget_.used += wire_bytes(piece);
  local_->sum(piece);
  return true;
}

// --- 2: to the rank that adds the sums of the hosts ---

void Operation::summed(std::uint32_t piece, std::span<const std::byte> sum) {
  passed_[piece] |= kSummed;
  ++sums_seen_;
  const bool is_alone = layout_.hosts[static_cast<std::size_t>(my_host_)].size() == 1;
  if (!is_alone || folding_.host_divisor == 1 || sum.empty()) {
    send_summed(piece, sum, nullptr);
    return;
  }
  // This sum is the input itself, which nothing has divided.
  const std::shared_ptr<std::byte[]> divided =  // NOLINT(modernize-avoid-c-arrays)
      std::make_shared_for_overwrite<std::byte[]>(sum.size());
  offload_.run(
      Phase::kReduce, sum.size(),
      [this, sum, to = divided.get()] {
        const std::byte* const only = sum.data();
        folding_.fold(&only, 1, to, sum.size() / size_of(call_.what.dtype), folding_.host_divisor);
      },
      [this, piece, divided, bytes = sum.size()] { send_summed(piece, {divided.get(), bytes}, divided); });
}

// `keep`: the owner of the sum; null: the sum is in this host's own memory.
void Operation::send_summed(std::uint32_t piece, std::span<const std::byte> sum,
                            const std::shared_ptr<const void>& keep) {
  if (narrowed(piece)) {
    std::shared_ptr<std::byte[]> halves =  // NOLINT(modernize-avoid-c-arrays)
        std::make_shared_for_overwrite<std::byte[]>(wire_bytes(piece));
    offload_.run(
        Phase::kCopy, sum.size(),
        [this, sum, keep, to = halves.get()] {
          conversion_.narrow(reinterpret_cast<const float*>(sum.data()), to, sum.size() / sizeof(float));
        },
        [this, piece, halves] { send_sum(piece, {halves.get(), wire_bytes(piece)}, halves); });
  } else if (at(piece).owner_host == Piece::kEveryHost && hosts_ > 1) {
    // Small: sends a copy, because the result may overwrite the sum before the kernel has taken it.
    const std::shared_ptr<std::byte[]> copy =  // NOLINT(modernize-avoid-c-arrays)
        std::make_shared_for_overwrite<std::byte[]>(sum.size());
    kernels_.copy(sum, {copy.get(), sum.size()});
    send_sum(piece, {copy.get(), sum.size()}, copy);
  } else {
    send_sum(piece, sum, keep);
  }
}

// To the ranks that add the hosts' sums.
void Operation::send_sum(std::uint32_t piece, std::span<const std::byte> payload,
                         const std::shared_ptr<const void>& keep) {
  const Piece& p = at(piece);
  if (p.owner_host == Piece::kEveryHost) {
    for (int turn = 1; turn < hosts_; ++turn) {
      send(layout_.agent((my_host_ + turn) % hosts_, p.lane), FrameType::kHostSum, piece, payload, keep);
    }
  } else if (p.owner_host != my_host_) {
    // The result may replace the sum, and free its memory, before a fabric reports the sum as sent.
    send(layout_.agent(p.owner_host, p.lane), FrameType::kHostSum, piece, payload,
         keep ? keep : local_->keep(piece));
    return;
  }
  flight(piece).keep = keep;
  add_sum(piece, my_host_, payload.data(), {});
}

// --- 3: the sum over the hosts ---

bool Operation::on_host_sum(int from, int host, const FrameHeader& header, Landing landing) {
  const std::uint32_t piece = header.piece;
  if (!adds_hosts(piece) || host == my_host_ || header.payload != wire_bytes(piece) ||
      layout_.agent(host, at(piece).lane) != from ||
      flight(piece).sums[static_cast<std::size_t>(host)] != nullptr) {
    return false;
  }
  const std::byte* data = landing.data;
  add_sum(piece, host, data, std::move(landing));
  return true;
}

// Complete before it is inserted: the allocations in between may throw.
Operation::InFlight& Operation::flight(std::uint32_t piece) {
  if (const auto found = flights_.find(piece); found != flights_.end()) {
    return found->second;
  }
  InFlight state;
  state.sums.assign(static_cast<std::size_t>(hosts_), nullptr);
  state.landings.resize(static_cast<std::size_t>(hosts_));
  return flights_.emplace(piece, std::move(state)).first->second;
}

void Operation::add_sum(std::uint32_t piece, int host, const std::byte* data, Landing landing) {
  ++sums_seen_;
  InFlight& state = flight(piece);
  const auto index = static_cast<std::size_t>(host);
  state.sums[index] = data == nullptr ? &no_bytes : data;
  state.landings[index] = std::move(landing);
  if (++state.count == state.sums.size() && !try_combine(piece)) {
    to_combine_.push_back(piece);
  }
}

bool Operation::try_combine(std::uint32_t piece) {
  const auto result = local_->result(piece);
  if (result.data() == nullptr) {
    return false;
  }
  std::shared_ptr<std::byte[]> merged;  // NOLINT(modernize-avoid-c-arrays): sent instead of the result
  if (narrowed(piece)) {
    merged =
        std::make_shared_for_overwrite<std::byte[]>(wire_bytes(piece));  // NOLINT(modernize-avoid-c-arrays)
  }
  InFlight& state = flight(piece);
  std::vector<Part> parts = parts_of(piece, state.sums);
  state.parts_left = parts.size();
  for (Part& part : parts) {
    const std::uint64_t reads = part.count * element_on_wire(piece) * static_cast<std::uint64_t>(hosts_);
    offload_.run(
        Phase::kReduce, reads,
        [this, piece, part = std::move(part), merged = merged.get(), result = result.data()] {
          add_hosts_up(piece, part, merged, result);
        },
        [this, piece, result, merged] {
          if (--flight(piece).parts_left > 0) {
            return;
          }
          flights_.erase(piece);
          settle(piece);
          publish_combined(
              piece, merged ? std::span<const std::byte>(merged.get(), wire_bytes(piece)) : result, merged);
        });
  }
  return true;
}

// One part where this thread adds the sums, otherwise as many as keep the copy threads busy.
std::vector<Operation::Part> Operation::parts_of(std::uint32_t piece,
                                                 const std::vector<const std::byte*>& sums) const {
  constexpr std::size_t kPartReads = 1U << 20U;  // bytes
  constexpr std::size_t kCacheLine = 64;         // bytes; also a number of elements of any size
  const std::size_t elements = at(piece).bytes / size_of(call_.what.dtype);
  const std::size_t wide = element_on_wire(piece);
  if (!offload_.has_threads() || elements * wide * sums.size() <= kPartReads) {
    return {Part{0, elements, sums}};
  }
  const std::size_t step =
      std::max<std::size_t>(1, kPartReads / (wide * sums.size() * kCacheLine)) * kCacheLine;
  std::vector<Part> parts;
  for (std::size_t first = 0; first < elements; first += step) {
    Part part{first, std::min(step, elements - first), sums};
    for (const std::byte*& begin : part.sums) {
      begin += first * wide;
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

// On any thread. `merged`: null where the result itself is sent.
void Operation::add_hosts_up(std::uint32_t piece, const Part& part, std::byte* merged,
                             std::byte* result) const {
  std::byte* const here = result + part.first * size_of(call_.what.dtype);
  std::byte* const to = merged == nullptr ? here : merged + part.first * element_on_wire(piece);
  if (part.count > 0) {
    folding_.merge(part.sums.data(), part.sums.size(), to, part.count, folding_.divisor);
  }
  if (merged != nullptr) {
    put_result(piece, part.count, to, here);
  }
}

// --- 4: the result ---

// `keep`: the owner of the payload; null: the payload is the result in this host's own memory.
void Operation::publish_combined(std::uint32_t piece, std::span<const std::byte> payload,
                                 const std::shared_ptr<const void>& keep) {
  const Piece& p = at(piece);
  const int target_host = p.to_all() ? my_host_ : layout_.host_of[static_cast<std::size_t>(p.target)];
  if (p.owner_host != Piece::kEveryHost) {
    for (int turn = 1; turn < hosts_; ++turn) {
      const int host = (my_host_ + turn) % hosts_;
      const int agent = layout_.agent(host, p.lane);
      if (p.to_all()) {
        send(agent, FrameType::kPublish, piece, payload, keep ? keep : local_->keep(piece));
        continue;
      }
      if (host == target_host) {
        send(p.target, FrameType::kPublish, piece, payload, keep ? keep : local_->keep(piece));
      }
      if (agent != p.target) {
        send(agent, FrameType::kCredit, piece, {}, nullptr);
      }
    }
  }
  if (target_host == my_host_) {
    local_->deliver(piece);
  } else {
    local_->discard(piece);
    account(piece);
  }
}

// The rank that adds the hosts' sums has the sum of this host, and this host gets no result of the piece.
bool Operation::on_sum_received(std::uint32_t piece) {
  const Piece& p = at(piece);
  if (p.origin != Piece::kReducing || p.to_all() || !has_passed(piece, kSummed) || !is_agent(piece)) {
    return false;
  }
  settle(piece);
  local_->discard(piece);
  if (!gets_result(piece)) {
    account(piece);
  }
  return true;
}

// --- 5: delivery on this host ---

void Operation::handed_over(std::uint32_t piece) {
  if (!gets_result(piece)) {
    account(piece);
  }
}

void Operation::delivered(std::uint32_t piece) {
  const Piece& p = at(piece);
  if (p.origin == Piece::kReducing && !gets_result(piece)) {
    if (is_agent(piece)) {
      account(piece);  // it delivered the result to the root of its host
    }
    return;
  }
  account(piece);
}

// --- The type between hosts ---

bool Operation::narrowed(std::uint32_t piece) const {
  return wire_dtype_.has_value() && at(piece).origin == Piece::kReducing && at(piece).bytes > 0;
}

std::uint64_t Operation::wire_bytes(std::uint32_t piece) const {
  return at(piece).bytes / size_of(call_.what.dtype) * element_on_wire(piece);
}

std::size_t Operation::element_on_wire(std::uint32_t piece) const {
  return size_of(narrowed(piece) ? *wire_dtype_ : call_.what.dtype);
}

// On any thread. `from`: elements of a piece in their type between hosts.
void Operation::put_result(std::uint32_t piece, std::size_t count, const std::byte* from,
                           std::byte* to) const {
  if (narrowed(piece)) {
    conversion_.widen(from, reinterpret_cast<float*>(to), count);
  } else {
    const std::size_t bytes = count * size_of(call_.what.dtype);
    kernels_.copy({from, bytes}, {to, bytes});
  }
}

}  // namespace smdp
