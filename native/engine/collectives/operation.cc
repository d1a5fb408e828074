#include "collectives/operation.h"

#include <algorithm>

namespace smdp {
namespace {

constexpr std::byte no_bytes{};  // stands for a sum without bytes: null is one that has not come

// By what each host divides its sum of 16 bits for an average: a factor of the number of ranks, and no less
// than the most that add up on a host, so that no sum is beyond the largest value.
std::uint32_t host_divisor(const GroupLayout& layout) {
  std::size_t divisor = std::ranges::max(layout.hosts, {}, &std::vector<int>::size).size();
  while (static_cast<std::size_t>(layout.size()) % divisor != 0) {
    ++divisor;
  }
  return static_cast<std::uint32_t>(divisor);
}

}  // namespace

Operation::Operation(OperationHost& host, std::uint64_t number, Call call, const GroupLayout& layout,
                     int rank, const PlanOptions& options, const KernelSet& kernels, std::uint32_t window,
                     TimePoint deadline, TimePoint warn_at, const OperationTrace& trace)
    : host_(host),
      budget_(host.budget()),
      number_(number),
      call_(std::move(call)),
      layout_(layout),
      rank_(rank),
      my_host_(layout.host_of[static_cast<std::size_t>(rank)]),
      hosts_(static_cast<int>(layout.hosts.size())),
      plan_(make_plan(call_.what, layout, options, my_host_, static_cast<std::uint32_t>(number))),
      window_(std::max(window, 2U * static_cast<std::uint32_t>(hosts_))),
      kernels_(kernels),
      deadline_(deadline),
      warn_at_(warn_at),
      trace_(trace),
      offload_(host.executor(), trace.marks, [this](const Offload::Task& done) {
        host_.resume([this, &done] {
          done();
          advance();
        });
      }) {
  const bool average = call_.what.op == ReduceOp::kAvg;
  if (call_.what.dtype == DType::kFloat32 && (average || call_.what.op == ReduceOp::kSum) && hosts_ > 1) {
    wire_dtype_ = options.wire_dtype;
  }
  const DType between_hosts = wire_dtype_.value_or(call_.what.dtype);
  folding_.fold = kernels_.reduce(call_.what.dtype, call_.what.op);
  folding_.merge = kernels_.reduce(between_hosts, call_.what.op);
  if (average) {
    folding_.host_divisor = size_of(between_hosts) == 2 && is_float(between_hosts) ? host_divisor(layout) : 1;
    folding_.divisor = static_cast<std::uint32_t>(layout.size()) / folding_.host_divisor;
  }
  if (wire_dtype_) {
    conversion_ = kernels_.convert(*wire_dtype_);
  }
  const auto first_round = std::ranges::count_if(
      plan_.pieces, [&](const Piece& p) { return p.round == 0 && layout.agent(my_host_, p.lane) == rank; });
  round_ = std::max(static_cast<std::uint32_t>(hosts_), static_cast<std::uint32_t>(first_round));
  passed_.assign(plan_.pieces.size(), 0);
  waits_.assign(plan_.pieces.size(), 0);
}

// Of a failed group, the group may be gone by now.
Operation::~Operation() {
  abandon();
  budget_.used -= in_flight_bytes_;
}

// This rank adds the hosts' sums of the piece up.
bool Operation::adds_hosts(std::uint32_t piece) const {
  const Piece& p = at(piece);
  return p.origin == Piece::kReducing && is_agent(piece) &&
         (p.owner_host == Piece::kEveryHost || p.owner_host == my_host_);
}

bool Operation::gets_result(std::uint32_t piece) const {
  return at(piece).to_all() || at(piece).target == rank_;
}

std::uint32_t Operation::events_of(std::uint32_t piece) const {
  const Piece& p = at(piece);
  if (p.origin == Piece::kReducing) {
    // One event each: the delivery, or for a rank that gets nothing that its part is done.
    return 1;
  }
  if (p.origin == rank_) {
    return 2U + static_cast<std::uint32_t>(hosts_ - 1);  // delivered, taken, a credit per other host
  }
  const bool relays = my_host_ != layout_.host_of[static_cast<std::size_t>(p.origin)] && is_agent(piece);
  return relays ? 2 : 1;  // delivered, and taken by the host's others
}

void Operation::start() {
  LocalSpec spec;
  spec.call = call_.what;
  spec.plan = &plan_;
  spec.layout = &layout_;
  spec.rank = rank_;
  spec.input = call_.input;
  spec.output = call_.output;
  spec.fold = folding_.fold;
  spec.divisor = folding_.host_divisor;
  spec.kernels = &kernels_;
  spec.offload = &offload_;
  local_ = host_.make_local_job(spec, number_, *this);
  pieces_left_ = plan_.pieces.size();
  for (std::uint32_t piece = 0; piece < plan_.pieces.size(); ++piece) {
    waits_[piece] = events_of(piece);
    if (at(piece).origin == rank_) {
      to_publish_.push_back(piece);
    }
  }
  if (marks().wanted()) {
    expect_words();
  }
  started_ = true;
  started_at_ = Clock::now();
  local_->start();
  advance();
}

void Operation::account(std::uint32_t piece) {
  if (waits_[piece] > 0) {
    --waits_[piece];
    if (waits_[piece] == 0) {
      --pieces_left_;
      publishing_ -= at(piece).origin == rank_ ? 1 : 0;
    }
  }
  check_complete();
}

bool Operation::is_leisurely(TimePoint now) const {
  constexpr std::chrono::milliseconds kBetweenSteps{1};
  constexpr std::uint64_t kNearTheEnd = 16;  // pieces
  // Not pieces alone: hundreds of hosts are at work for long before the first piece is done.
  const std::uint64_t steps = plan_.pieces.size() - pieces_left_ + sums_seen_;
  return pieces_left_ > kNearTheEnd && now - started_at_ > (steps + 1) * kBetweenSteps;
}

void Operation::check_complete() {
  if (started_ && !finished_ && pieces_left_ == 0 && sending_.empty()) {
    finished_ = true;
    host_.finished(number_);
  }
}

void Operation::send(int to, FrameType type, std::uint32_t piece, std::span<const std::byte> payload,
                     std::shared_ptr<const void> keep) {
  Message message;
  message.header.type = type;
  message.header.call = call_.what;
  message.header.operation = number_;
  message.header.piece = piece;
  message.header.offset = at(piece).in_offset;
  message.header.bytes = at(piece).bytes;
  message.payload = payload;
  message.keep = std::move(keep);
  if (!payload.empty()) {
    ++sending_[to];
    message.sent = [this, to] {  // dropped by cancel() before this operation dies
      if (--sending_[to] == 0) {
        sending_.erase(to);
      }
      check_complete();
    };
  }
  host_.send_network(to, std::move(message));
}

// --- Reducing pieces ---

void Operation::contributed(std::uint32_t piece) {
  ready_.push_back(piece);
  if (started_) {
    advance();
  }
}

void Operation::handed_over(std::uint32_t piece) {
  if (!gets_result(piece)) {
    account(piece);
  }
}

void Operation::advance() {
  if (!started_ || finished_) {
    return;
  }
  local_->pump();
  while (!to_combine_.empty() && try_combine(to_combine_.front())) {
    to_combine_.pop_front();
  }
  while (!to_deliver_.empty()) {
    auto [piece, landing] = std::move(to_deliver_.front());
    to_deliver_.pop_front();
    if (!settle_published(piece, std::move(landing))) {
      break;  // back at the end of the queue
    }
  }
  while (sum_next() || publish_next()) {
  }
}

// Two rounds are needed to keep every host supplied; they also keep the hosts from waiting for each other's
// windows in a circle (plan.h).
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

void Operation::summed(std::uint32_t piece, std::span<const std::byte> sum) {
  passed_[piece] |= kSummed;
  ++sums_seen_;
  const bool is_alone = layout_.hosts[static_cast<std::size_t>(my_host_)].size() == 1;
  if (!is_alone || folding_.host_divisor == 1 || sum.empty()) {
    send_summed(piece, sum, nullptr);
    return;
  }
  // Nobody made this sum: it is the input.
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

// `keep`: owner of the sum; null: it is in this host's own memory.
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
    // Small: a copy travels, for the result may be written over the sum before the kernel has taken it.
    const std::shared_ptr<std::byte[]> copy =  // NOLINT(modernize-avoid-c-arrays)
        std::make_shared_for_overwrite<std::byte[]>(sum.size());
    kernels_.copy(sum, {copy.get(), sum.size()});
    send_sum(piece, {copy.get(), sum.size()}, copy);
  } else {
    send_sum(piece, sum, keep);
  }
}

// To those that add the hosts' sums up.
void Operation::send_sum(std::uint32_t piece, std::span<const std::byte> payload,
                         const std::shared_ptr<const void>& keep) {
  const Piece& p = at(piece);
  if (p.owner_host == Piece::kEveryHost) {
    for (int turn = 1; turn < hosts_; ++turn) {
      send(layout_.agent((my_host_ + turn) % hosts_, p.lane), FrameType::kHostSum, piece, payload, keep);
    }
  } else if (p.owner_host != my_host_) {
    send(layout_.agent(p.owner_host, p.lane), FrameType::kHostSum, piece, payload, keep);
    return;
  }
  flight(piece).keep = keep;
  add_sum(piece, my_host_, payload.data(), {});
}

// Whole before it is found by others: memory may be lost on the way.
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
  std::shared_ptr<std::byte[]>
      merged;  // NOLINT(modernize-avoid-c-arrays): what travels instead of the result
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

// One part where this thread adds it up, else as many as keep the copy threads busy.
std::vector<Operation::Part> Operation::parts_of(std::uint32_t piece,
                                                 const std::vector<const std::byte*>& sums) const {
  constexpr std::size_t kPartReads = 1U << 20U;  // bytes
  constexpr std::size_t kCacheLine = 64;         // bytes; also elements, of whatever size
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

// On any thread. `merged`: null where the result travels itself.
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

bool Operation::narrowed(std::uint32_t piece) const {
  return wire_dtype_.has_value() && at(piece).origin == Piece::kReducing && at(piece).bytes > 0;
}

std::uint64_t Operation::wire_bytes(std::uint32_t piece) const {
  return at(piece).bytes / size_of(call_.what.dtype) * element_on_wire(piece);
}

std::size_t Operation::element_on_wire(std::uint32_t piece) const {
  return size_of(narrowed(piece) ? *wire_dtype_ : call_.what.dtype);
}

// On any thread. `from`: elements of a piece as they travelled.
void Operation::put_result(std::uint32_t piece, std::size_t count, const std::byte* from,
                           std::byte* to) const {
  if (narrowed(piece)) {
    conversion_.widen(from, reinterpret_cast<float*>(to), count);
  } else {
    const std::size_t bytes = count * size_of(call_.what.dtype);
    kernels_.copy({from, bytes}, {to, bytes});
  }
}

// `keep`: owner of the payload; null: it is the result in this host's own memory.
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

// --- Publishing pieces ---

bool Operation::publish_next() {
  if (to_publish_.empty() || publishing_ >= window_) {
    return false;
  }
  const std::uint32_t piece = to_publish_.front();
  const Piece& p = at(piece);
  const auto source = call_.input.subspan(p.in_offset, p.bytes);
  const auto result = local_->result(piece);
  if (result.data() == nullptr) {
    return false;
  }
  to_publish_.pop_front();
  ++publishing_;
  for (int turn = 1; turn < hosts_; ++turn) {
    send(layout_.agent((my_host_ + turn) % hosts_, p.lane), FrameType::kPublish, piece, source, nullptr);
  }
  if (source.empty() || result.data() == source.data()) {
    local_->deliver(piece);
    return true;
  }
  offload_.run(
      Phase::kCopy, source.size(),
      [copy = kernels_.copy, source, to = result.first(source.size())] { copy(source, to); },
      [this, piece] { local_->deliver(piece); });
  return true;
}

void Operation::taken(std::uint32_t piece) {
  const Piece& p = at(piece);
  if (p.origin == Piece::kReducing) {
    return;
  }
  if (p.origin != rank_) {
    send(p.origin, FrameType::kCredit, piece, {}, nullptr);
  }
  account(piece);
}

void Operation::delivered(std::uint32_t piece) {
  const Piece& p = at(piece);
  if (p.origin == Piece::kReducing && !gets_result(piece)) {
    if (is_agent(piece)) {
      account(piece);  // it handed the result to the root of its host
    }
    return;
  }
  account(piece);
}

}  // namespace smdp
