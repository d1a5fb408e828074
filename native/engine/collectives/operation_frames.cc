// What an operation does with what the other ranks send.
#include <utility>

#include "collectives/operation.h"

namespace smdp {

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
    // An agent that has not sent its own sum cannot be sent a result: checked before its memory is handed
    // out.
    const bool expected = p.origin == Piece::kReducing ? has_passed(header.piece, kSummed) : from == p.origin;
    if (!direct && expected && is_agent(header.piece) && waits_[header.piece] > 0) {
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
  marks().heard_host(host, from);
  switch (header.type) {
    case FrameType::kHostSum: {
      if (!adds_hosts(piece) || host == my_host_ || header.payload != wire_bytes(piece) ||
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
      const bool from_owner = p.origin == Piece::kReducing
                                  ? p.owner_host >= 0 && from == layout_.agent(p.owner_host, p.lane) &&
                                        host != my_host_ &&
                                        (rank_ == p.target || (p.to_all() && is_agent(piece)))
                                  : from == p.origin && is_agent(piece);
      if (!from_owner || header.payload != wire_bytes(piece) || has_passed(piece, kPublished)) {
        return false;
      }
      passed_[piece] |= kPublished;
      if (p.origin == Piece::kReducing && is_agent(piece) && p.owner_host != my_host_) {
        settle(piece);
      }
      settle_published(piece, std::move(landing));
      advance();
      return true;
    }
    case FrameType::kCredit: {
      if (p.origin == rank_) {
        if (layout_.agent(host, p.lane) != from || !credited_[piece].insert(host).second) {
          return false;
        }
        account(piece);
      } else if (p.origin == Piece::kReducing && !p.to_all() && has_passed(piece, kSummed) &&
                 is_agent(piece)) {
        settle(piece);
        local_->discard(piece);  // the one that adds the hosts' sums has this one
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
  if (p.origin == Piece::kReducing && !p.to_all()) {  // straight to the root
    put_landed(piece, std::move(landing), call_.output.data() + p.out_offset,
               [this, piece] { account(piece); });
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
  const auto held = std::make_shared<Landing>(std::move(landing));
  offload_.run(
      Phase::kCopy, at(piece).bytes,
      [this, piece, held, to] {
        put_result(piece, at(piece).bytes / size_of(call_.what.dtype), held->data, to);
      },
      std::move(done));
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
