#include "collectives/operation.h"

#include <algorithm>
#include <cstring>

namespace smdp {

Status OperationHandle::wait(std::chrono::nanoseconds timeout) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, timeout, [this] { return complete_; })) {
    return {Code::kTimeout, "the operation is not complete yet"};
  }
  return status_;
}

bool OperationHandle::is_complete() const {
  const std::lock_guard lock(mutex_);
  return complete_;
}

void OperationHandle::complete(const Status& status) {
  if (const Done done = std::move(done_)) {
    done(status);  // first, so that who waits finds it done
  }
  {
    const std::lock_guard lock(mutex_);
    complete_ = true;
    status_ = status;
  }
  changed_.notify_all();
}

Operation::Operation(OperationHost& host, std::uint64_t number, Call call, const GroupLayout& layout,
                     int rank, const PlanOptions& options, Isa isa, std::uint32_t window, TimePoint deadline,
                     TimePoint warn_at)
    : host_(host),
      number_(number),
      call_(std::move(call)),
      layout_(layout),
      rank_(rank),
      my_host_(layout.host_of[static_cast<std::size_t>(rank)]),
      hosts_(static_cast<int>(layout.hosts.size())),
      plan_(make_plan(call_.what, layout, options, my_host_)),
      window_(std::max(window, 2U * static_cast<std::uint32_t>(hosts_))),
      deadline_(deadline),
      warn_at_(warn_at) {
  const bool average = call_.what.op == ReduceOp::kAvg;
  kernels_ = {reduce_kernel(isa, call_.what.dtype, call_.what.op),
              average ? static_cast<std::uint32_t>(layout.size()) : 1U};
  summed_.assign(plan_.pieces.size(), 0);
  waits_.assign(plan_.pieces.size(), 0);
}

// This rank adds the hosts' sums of the piece up.
bool Operation::adds_hosts(std::uint32_t piece) const {
  const Piece& p = at(piece);
  return p.origin == Piece::kReducing && is_agent(piece) &&
         (p.owner_host == Piece::kEveryHost || p.owner_host == my_host_);
}

bool Operation::gets_result(std::uint32_t piece) const {
  return at(piece).to_all || static_cast<int>(call_.what.root) == rank_;
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
  spec.kernel = kernels_.fold;
  spec.window = window_;
  local_ = host_.make_local_job(spec, number_, *this);
  pieces_left_ = plan_.pieces.size();
  for (std::uint32_t piece = 0; piece < plan_.pieces.size(); ++piece) {
    waits_[piece] = events_of(piece);
    if (at(piece).origin == rank_) {
      to_publish_.push_back(piece);
    }
  }
  started_ = true;
  local_->start();
  advance();
}

void Operation::account(std::uint32_t piece) {
  if (waits_[piece] > 0) {
    --waits_[piece];
    if (waits_[piece] == 0) {
      --pieces_left_;
    }
  }
  check_complete();
}

void Operation::check_complete() {
  if (started_ && !finished_ && pieces_left_ == 0 && sends_left_ == 0) {
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
    ++sends_left_;
    message.sent = [this] {  // dropped by cancel() before this operation dies
      --sends_left_;
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

bool Operation::sum_next() {
  if (ready_.empty() || in_flight_ >= window_) {
    return false;
  }
  const std::uint32_t piece = ready_.front();
  const auto sum = local_->sum(piece);
  if (sum.data() == nullptr) {
    return false;
  }
  ready_.pop_front();
  ++in_flight_;
  summed_[piece] = 1;
  const Piece& p = at(piece);
  if (p.owner_host == Piece::kEveryHost && hosts_ > 1) {
    // Small: a copy travels, for the result may be written over the sum before the kernel has taken it.
    auto copy = std::make_shared<std::vector<std::byte>>(sum.begin(), sum.end());
    for (int turn = 1; turn < hosts_; ++turn) {
      send(layout_.agent((my_host_ + turn) % hosts_, p.lane), FrameType::kHostSum, piece, *copy, copy);
    }
  } else if (p.owner_host != Piece::kEveryHost && p.owner_host != my_host_) {
    send(layout_.agent(p.owner_host, p.lane), FrameType::kHostSum, piece, sum, nullptr);
    return true;
  }
  flight(piece).ours = true;
  add_sum(piece, my_host_, sum.data(), {});
  return true;
}

Operation::InFlight& Operation::flight(std::uint32_t piece) {
  InFlight& state = flights_[piece];
  if (state.sums.empty()) {
    state.sums.assign(static_cast<std::size_t>(hosts_), nullptr);
    state.landings.resize(static_cast<std::size_t>(hosts_));
  }
  return state;
}

void Operation::add_sum(std::uint32_t piece, int host, const std::byte* data, Landing landing) {
  InFlight& state = flight(piece);
  const auto index = static_cast<std::size_t>(host);
  state.sums[index] = data;
  state.landings[index] = std::move(landing);
  if (++state.count == state.sums.size() && !try_combine(piece)) {
    to_combine_.push_back(piece);
  }
}

bool Operation::try_combine(std::uint32_t piece) {
  const Piece& p = at(piece);
  const auto result = local_->result(piece);
  if (result.data() == nullptr) {
    return false;
  }
  InFlight& state = flight(piece);
  if (p.bytes > 0) {
    kernels_.fold(state.sums.data(), state.sums.size(), result.data(), p.bytes / size_of(call_.what.dtype),
                  kernels_.divisor);
  }
  flights_.erase(piece);
  --in_flight_;
  publish_combined(piece, result);
  return true;
}

void Operation::publish_combined(std::uint32_t piece, std::span<std::byte> result) {
  const Piece& p = at(piece);
  const int root_host = layout_.host_of[static_cast<std::size_t>(call_.what.root) % layout_.host_of.size()];
  const bool here = p.to_all || root_host == my_host_;
  if (p.owner_host != Piece::kEveryHost) {
    for (int turn = 1; turn < hosts_; ++turn) {
      const int host = (my_host_ + turn) % hosts_;
      const int agent = layout_.agent(host, p.lane);
      if (p.to_all) {
        send(agent, FrameType::kPublish, piece, result, local_->keep(piece));
        continue;
      }
      if (host == root_host) {
        send(static_cast<int>(call_.what.root), FrameType::kPublish, piece, result, local_->keep(piece));
      }
      if (agent != static_cast<int>(call_.what.root)) {
        send(agent, FrameType::kCredit, piece, {}, nullptr);
      }
    }
  }
  if (here) {
    local_->deliver(piece);
  } else if (!gets_result(piece)) {
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
  if (!source.empty() && result.data() != source.data()) {
    std::memcpy(result.data(), source.data(), source.size());
  }
  for (int turn = 1; turn < hosts_; ++turn) {
    send(layout_.agent((my_host_ + turn) % hosts_, p.lane), FrameType::kPublish, piece, source, nullptr);
  }
  local_->deliver(piece);
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
  if (p.origin == rank_ && waits_[piece] == 0) {
    --publishing_;
  }
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

// --- Frames ---

std::optional<Landing> Operation::place(int from, const FrameHeader& header) {
  if (header.piece >= plan_.pieces.size() || header.bytes != at(header.piece).bytes) {
    return std::nullopt;
  }
  const Piece& p = at(header.piece);
  if (header.type == FrameType::kPublish && p.bytes > 0) {
    const bool direct_root = p.origin == Piece::kReducing && !p.to_all;
    if (direct_root && rank_ == static_cast<int>(call_.what.root)) {
      return Landing::into(call_.output.data() + p.out_offset);
    }
    // An agent that has not sent its own sum cannot be sent a result: checked before its memory is handed
    // out.
    const bool expected = p.origin == Piece::kReducing ? summed_[header.piece] != 0 : from == p.origin;
    if (!direct_root && expected && is_agent(header.piece) && waits_[header.piece] > 0) {
      if (const auto memory = local_->result(header.piece); memory.data() != nullptr) {
        return Landing::into(memory.data());
      }
    }
  }
  return Landing::fresh(header.payload);
}

bool Operation::arrived(int from, const FrameHeader& header, Landing landing) {
  if (header.piece >= plan_.pieces.size() || header.bytes != at(header.piece).bytes) {
    return false;
  }
  const std::uint32_t piece = header.piece;
  const Piece& p = at(piece);
  const int host = layout_.host_of[static_cast<std::size_t>(from)];
  switch (header.type) {
    case FrameType::kHostSum: {
      if (!adds_hosts(piece) || host == my_host_ || header.payload != p.bytes ||
          layout_.agent(host, p.lane) != from ||
          flight(piece).sums[static_cast<std::size_t>(host)] != nullptr) {
        return false;
      }
      const std::byte* data = landing.data;
      add_sum(piece, host, data, std::move(landing));
      advance();
      return true;
    }
    case FrameType::kPublish: {
      const bool from_owner =
          p.origin == Piece::kReducing
              ? p.owner_host >= 0 && from == layout_.agent(p.owner_host, p.lane) && host != my_host_
              : from == p.origin && is_agent(piece);
      if (!from_owner || header.payload != p.bytes || waits_[piece] == 0) {
        return false;
      }
      if (p.origin == Piece::kReducing && is_agent(piece) && p.owner_host != my_host_) {
        --in_flight_;
      }
      settle_published(piece, std::move(landing));
      advance();
      return true;
    }
    case FrameType::kCredit: {
      if (p.origin == rank_) {
        account(piece);
        if (waits_[piece] == 0) {
          --publishing_;
        }
      } else if (p.origin == Piece::kReducing && !p.to_all && summed_[piece] != 0 && is_agent(piece)) {
        --in_flight_;
        if (!gets_result(piece)) {
          account(piece);
        }
      } else {
        return false;
      }
      advance();
      return true;
    }
    default:
      return false;
  }
}

// The published bytes of a piece are here, in the result's memory or in memory of their own.
bool Operation::settle_published(std::uint32_t piece, Landing landing) {
  const Piece& p = at(piece);
  if (p.origin == Piece::kReducing && !p.to_all) {  // straight to the root
    std::byte* output = call_.output.data() + p.out_offset;
    if (landing.data != output && p.bytes > 0) {
      std::memcpy(output, landing.data, p.bytes);
    }
    account(piece);
    return true;
  }
  const auto memory = local_->result(piece);
  if (memory.data() == nullptr) {
    to_deliver_.emplace_back(piece, std::move(landing));
    return false;
  }
  if (p.bytes > 0 && landing.data != memory.data()) {
    std::memcpy(memory.data(), landing.data, p.bytes);
  }
  local_->deliver(piece);
  return true;
}

bool Operation::local_frame(int from, const FrameHeader& header) {
  const bool known = local_->on_frame(layout_.local_of[static_cast<std::size_t>(from)], header);
  if (known && header.type != FrameType::kConsumed) {
    advance();
  }
  return known;
}

Operation::Wait Operation::waiting_for() const {
  if (!started_) {
    return {"waiting for its turn", {}};
  }
  for (std::uint32_t piece = 0; piece < plan_.pieces.size(); ++piece) {
    if (waits_[piece] == 0) {
      continue;
    }
    const Piece& p = at(piece);
    if (p.origin != Piece::kReducing && p.origin != rank_) {
      return {"waiting for the data", {p.origin}};
    }
    if (p.origin == rank_) {
      Wait wait{"waiting for the receivers", {}};
      for (int other = 0; other < layout_.size(); ++other) {
        if (other != rank_) {
          wait.ranks.push_back(other);
        }
      }
      return wait;
    }
    if (is_agent(piece) && summed_[piece] == 0) {
      Wait wait{"waiting for the values of the host's ranks", {}};
      for (const int local : local_->missing(piece)) {
        wait.ranks.push_back(
            layout_.hosts[static_cast<std::size_t>(my_host_)][static_cast<std::size_t>(local)]);
      }
      return wait;
    }
    if (adds_hosts(piece)) {
      Wait wait{"waiting for the sums of the other hosts", {}};
      const auto found = flights_.find(piece);
      for (int host = 0; host < hosts_; ++host) {
        if (host != my_host_ &&
            (found == flights_.end() || found->second.sums[static_cast<std::size_t>(host)] == nullptr)) {
          wait.ranks.push_back(layout_.agent(host, p.lane));
        }
      }
      return wait;
    }
    const int from = is_agent(piece) && p.owner_host >= 0 ? layout_.agent(p.owner_host, p.lane)
                                                          : layout_.agent(my_host_, p.lane);
    return {"waiting for the result", {from}};
  }
  return {"sending", {}};
}

}  // namespace smdp
