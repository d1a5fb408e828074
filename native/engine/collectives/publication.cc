// How an operation moves final bytes to all hosts: the pieces of broadcast and all_gather, which their origin
// publishes, and the results of reduction.cc on their way from the rank that added the hosts' sums.
//
// The origin sends the piece to one agent per other host and delivers it on its own host. Each agent delivers
// it on its host and sends the origin a credit when all ranks of the host have it. The origin has at most
// SMDP_WINDOW pieces in flight that lack a credit.
#include <memory>
#include <utility>

#include "collectives/operation.h"

namespace smdp {

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

// The final bytes of a piece arrive from its origin, or from the rank that added the hosts' sums.
bool Operation::on_published(int from, int host, const FrameHeader& header, Landing landing) {
  const std::uint32_t piece = header.piece;
  const Piece& p = at(piece);
  const bool reduces = p.origin == Piece::kReducing;
  const bool is_expected = reduces ? p.owner_host >= 0 && from == layout_.agent(p.owner_host, p.lane) &&
                                         host != my_host_ &&
                                         (rank_ == p.target || (p.to_all() && is_agent(piece)))
                                   : from == p.origin && is_agent(piece);
  if (!is_expected || header.payload != wire_bytes(piece) || has_passed(piece, kPublished)) {
    return false;
  }
  passed_[piece] |= kPublished;
  if (reduces && is_agent(piece) && p.owner_host != my_host_) {
    settle(piece);
  }
  settle_published(piece, std::move(landing));
  return true;
}

// The published bytes of a piece have arrived: in the memory of the result, in a buffer of their own, or in a
// receive buffer, which the ranks of this host may be able to read.
bool Operation::settle_published(std::uint32_t piece, Landing landing) {
  const Piece& p = at(piece);
  if (p.origin == Piece::kReducing && !p.to_all()) {  // the root gets it directly
    put_landed(piece, std::move(landing), call_.output.data() + p.out_offset,
               [this, piece] { account(piece); });
    return true;
  }
  if (landing.owned != nullptr && !narrowed(piece) &&
      local_->adopt(piece, {landing.data, p.bytes}, landing.owned.get_deleter().lender)) {
    local_->deliver(piece);
    return true;
  }
  const auto memory = local_->result(piece);
  if (memory.data() == nullptr) {
    to_deliver_.emplace_back(piece, std::move(landing));
    return false;
  }
  put_landed(piece, std::move(landing), memory.data(), [this, piece] { local_->deliver(piece); });
  return true;
}

template <class Done>
void Operation::put_landed(std::uint32_t piece, Landing landing, std::byte* to, Done done) {
  if (at(piece).bytes == 0 || landing.data == to) {
    done();
    return;
  }
  const auto arrived = std::make_shared<Landing>(std::move(landing));
  offload_.run(
      Phase::kCopy, at(piece).bytes,
      [this, piece, arrived, to] {
        put_result(piece, at(piece).bytes / size_of(call_.what.dtype), arrived->data, to);
      },
      std::move(done));
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

// The other host has all bytes of a piece of this rank.
bool Operation::on_receipt(int from, int host, std::uint32_t piece) {
  if (layout_.agent(host, at(piece).lane) != from || !credited_[piece].insert(host).second) {
    return false;
  }
  account(piece);
  return true;
}

}  // namespace smdp
