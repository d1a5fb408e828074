#include "collectives/operation.h"

#include <algorithm>

namespace smdp {
namespace {

// The divisor that each host applies to its 16-bit sum for an average: a factor of the number of ranks, and
// at least the number of ranks on the largest host, so that no sum overflows.
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
      trace_(trace),
      offload_(host.executor(), trace.marks, [this](const Offload::Task& done) {
        host_.resume([this, &done] {
          done();
          advance();
        });
      }) {
  watch_.warn_at = warn_at;
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

// The group may be gone already when it failed.
Operation::~Operation() {
  abandon();
  budget_.used -= in_flight_bytes_;
}

// This rank adds the hosts' sums of the piece.
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
    // One event: the delivery, or for a rank that gets no result the end of its part.
    return 1;
  }
  if (p.origin == rank_) {
    return 2U + static_cast<std::uint32_t>(hosts_ - 1);  // delivered, taken, a credit per other host
  }
  const bool relays = my_host_ != layout_.host_of[static_cast<std::size_t>(p.origin)] && is_agent(piece);
  return relays ? 2 : 1;  // delivered, and taken by the other ranks of the host
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
    expect_frames();
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
  // Pieces alone do not count: with hundreds of hosts, much work precedes the first complete piece.
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
    message.sent = [this, to] {  // dropped by cancel() before this operation is destroyed
      if (--sending_[to] == 0) {
        sending_.erase(to);
      }
      check_complete();
    };
  }
  host_.send_network(to, std::move(message));
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

// --- Frames ---

std::optional<Landing> Operation::place(int from, const FrameHeader& header) {
  if (header.piece >= plan_.pieces.size() || header.bytes != at(header.piece).bytes) {
    return std::nullopt;
  }
  const Piece& p = at(header.piece);
  if (header.payload != 0 && header.payload != wire_bytes(header.piece)) {
    return std::nullopt;
  }
  if (header.type == FrameType::kPublish && p.bytes > 0 && !narrowed(header.piece)) {
    const bool direct = p.origin == Piece::kReducing && !p.to_all();
    if (direct && rank_ == p.target) {
      return Landing::into(call_.output.data() + p.out_offset);
    }
    // No result can arrive for an agent that has not sent its own sum: checked before its memory is used.
    const bool expected = p.origin == Piece::kReducing ? has_passed(header.piece, kSummed) : from == p.origin;
    if (!direct && expected && is_agent(header.piece) && waits_[header.piece] > 0) {
      if (const auto memory = local_->result(header.piece); memory.data() != nullptr) {
        Landing landing = Landing::into(memory.data());
        landing.may_stay = layout_.hosts[static_cast<std::size_t>(my_host_)].size() > 1;
        return landing;
      }
    }
  }
  return Landing::fresh(header.payload);
}

bool Operation::arrived(int from, const FrameHeader& header, Landing landing) {
  if (header.piece >= plan_.pieces.size() || header.bytes != at(header.piece).bytes) {
    return false;
  }
  const int host = layout_.host_of[static_cast<std::size_t>(from)];
  marks().heard_host(host, from);
  bool is_expected = false;
  if (header.type == FrameType::kHostSum) {
    is_expected = on_host_sum(from, host, header, std::move(landing));
  } else if (header.type == FrameType::kPublish) {
    is_expected = on_published(from, host, header, std::move(landing));
  } else if (header.type == FrameType::kCredit) {
    is_expected = at(header.piece).origin == rank_ ? on_receipt(from, host, header.piece)
                                                   : on_sum_received(header.piece);
  }
  if (is_expected) {
    advance();
  }
  return is_expected;
}

bool Operation::local_frame(int from, const FrameHeader& header) {
  if (marks().wanted() && (header.type == FrameType::kContribute || header.type == FrameType::kOffer)) {
    marks().heard_local(local_of(from), from);
  }
  const bool known = local_->on_frame(layout_.local_of[static_cast<std::size_t>(from)], header);
  if (known && header.type != FrameType::kConsumed) {
    advance();
  }
  return known;
}

}  // namespace smdp
