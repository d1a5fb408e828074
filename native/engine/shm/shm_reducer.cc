#include "shm/shm_reducer.h"

#include <algorithm>
#include <utility>

namespace smdp {
namespace {

// Larger buffers have left the caches when their last piece is done.
constexpr std::size_t kStreamingBytes = 2U << 20U;

// The values that a rank offers to the other ranks of its host at a time: those of all ranks should fit in
// the last cache. Measured with 8 ranks: a window of 4 MiB each costs half as much again as one of 1 MiB.
// Copy threads need more, to have work while others wait for their agent; hosts with processors for them have
// larger caches. Modelled with 64 hosts of 8 ranks: 1 MiB takes a third longer.
constexpr std::uint64_t kHeldOutBytes = 1U << 20U;
constexpr std::uint64_t kHeldOutToThreads = 4U << 20U;
// The share of a small arena, so that concurrent operations leave room for results.
constexpr std::uint64_t kHeldOutShare = 16;

std::byte nothing{};  // the address of an empty range

}  // namespace

ShmJob::ShmJob(LocalSpec spec, std::shared_ptr<RegionTable> regions, Send send, Peek peek, Events& events)
    : spec_(spec),
      regions_(std::move(regions)),
      send_(std::move(send)),
      peek_(std::move(peek)),
      events_(events) {
  const auto rank = static_cast<std::size_t>(spec_.rank);
  host_ranks_ = &spec_.layout->hosts[static_cast<std::size_t>(spec_.layout->host_of[rank])];
  local_ = spec_.layout->local_of[rank];
  locals_ = host_ranks_->size();
  input_offset_ = regions_->offset_of(spec_.input);
  max_offered_ = std::min(spec_.offload->has_threads() ? kHeldOutToThreads : kHeldOutBytes,
                          regions_->capacity() / kHeldOutShare);
}

ShmJob::~ShmJob() {
  // A result that was not delivered still has its creator as holder; the readers of a delivered one free it.
  for (const auto& [piece, offset] : results_) {
    regions_->release(offset);
  }
}

std::optional<std::uint64_t> ShmJob::take(std::uint64_t bytes) {
  const auto offset = regions_->take(bytes);
  if (offset) {
    starved_since_.reset();
  } else if (!starved_since_) {
    starved_since_ = Clock::now();
  }
  return offset;
}

bool ShmJob::is_agent(std::uint32_t piece) const {
  return piece_at(piece).lane % locals_ == static_cast<std::size_t>(local_);
}

bool ShmJob::gets(int local_rank, std::uint32_t piece) const {
  const Piece& at = piece_at(piece);
  return at.to_all() || (*host_ranks_)[static_cast<std::size_t>(local_rank)] == at.target;
}

// Only the agent gets the result, and writes it to its output.
bool ShmJob::stays_here(std::uint32_t piece) const {
  const Piece& at = piece_at(piece);
  return at.origin == Piece::kReducing && at.target == spec_.rank && is_agent(piece) && at.bytes > 0;
}

std::span<const std::byte> ShmJob::input_of(std::uint32_t piece) const {
  const Piece& at = piece_at(piece);
  return at.bytes == 0 ? std::span<const std::byte>() : spec_.input.subspan(at.in_offset, at.bytes);
}

std::span<std::byte> ShmJob::output_of(std::uint32_t piece) const {
  const Piece& at = piece_at(piece);
  if (at.bytes == 0 || spec_.output.empty() || !gets(local_, piece)) {
    return {};
  }
  return spec_.output.subspan(at.out_offset, at.bytes);
}

template <class Done>
void ShmJob::copy_out(std::span<const std::byte> result, std::span<std::byte> output, Done done) const {
  if (output.empty()) {
    done();
    return;
  }
  const auto copy =
      spec_.output.size() >= kStreamingBytes ? spec_.kernels->copy_streaming : spec_.kernels->copy;
  spec_.offload->run(
      Phase::kCopy, output.size(), [copy, result, output] { copy(result, output); }, std::move(done));
}

// Complete before it is inserted: the allocations in between may throw.
ShmJob::Values& ShmJob::values_of(std::uint32_t piece) {
  if (const auto found = values_.find(piece); found != values_.end()) {
    return found->second;
  }
  Values values;
  values.of.assign(locals_, nullptr);
  values.offsets.assign(locals_, 0);
  const Piece& at = piece_at(piece);
  values.of[static_cast<std::size_t>(local_)] = at.bytes == 0 ? &nothing : input_of(piece).data();
  values.count = 1;
  return values_.emplace(piece, std::move(values)).first->second;
}

void ShmJob::start() {
  if (locals_ == 1) {
    for (const std::uint32_t piece : spec_.plan->order) {
      if (piece_at(piece).origin == Piece::kReducing) {
        values_of(piece);
        events_.contributed(piece);
      }
    }
    return;
  }
  pump();
}

void ShmJob::pump() {
  const auto& order = spec_.plan->order;
  while (locals_ > 1 && next_ < order.size() && (offered_ == 0 || offered_ < max_offered_)) {
    const std::uint32_t piece = order[next_];
    const Piece& at = piece_at(piece);
    if (at.origin != Piece::kReducing || is_agent(piece)) {
      ++next_;
      continue;
    }
    if (input_offset_) {
      ++next_;
      offered_ += std::max<std::uint64_t>(at.bytes, 1);
      lent_.insert(piece);
      contributions_.push_back({piece, *input_offset_ + at.in_offset, true});
      contribute_copied();
      continue;
    }
    const auto offset = take(at.bytes);
    if (!offset) {
      return;  // retried when memory is freed, and on the next tick
    }
    ++next_;
    offered_ += std::max<std::uint64_t>(at.bytes, 1);
    Contribution& contribution = contributions_.emplace_back(piece, *offset);
    spec_.offload->run(
        Phase::kCopy, at.bytes,
        [copy = spec_.kernels->copy, from = input_of(piece), to = regions_->at(*offset, at.bytes)] {
          copy(from, to);
        },
        [this, &contribution] {
          contribution.copied = true;
          contribute_copied();
        });
  }
}

// In the plan's order, whichever copy was done first: the windows of the agents depend on it (plan.h).
void ShmJob::contribute_copied() {
  while (!contributions_.empty() && contributions_.front().copied) {
    const Piece& at = piece_at(contributions_.front().piece);
    FrameHeader header;
    header.type = FrameType::kContribute;
    header.piece = contributions_.front().piece;
    header.offset = contributions_.front().offset;
    header.bytes = at.bytes;
    contributions_.pop_front();
    send_(static_cast<int>(at.lane % locals_), header);
    if (!lent_.contains(header.piece)) {
      events_.handed_over(header.piece);
    }
  }
}

bool ShmJob::on_contribution(int sender, const FrameHeader& header) {
  const Piece& at = piece_at(header.piece);
  if (at.origin != Piece::kReducing || !is_agent(header.piece) || header.bytes != at.bytes) {
    return false;
  }
  const auto memory = peek_(sender, header.offset, header.bytes);
  Values& values = values_of(header.piece);
  const auto index = static_cast<std::size_t>(sender);
  if (memory.data() == nullptr || values.of[index] != nullptr) {
    return false;
  }
  values.of[index] = memory.data();
  values.offsets[index] = header.offset;
  if (++values.count == locals_) {
    events_.contributed(header.piece);
  }
  return true;
}

void ShmJob::sum(std::uint32_t piece) {
  const Piece& at = piece_at(piece);
  const Values& values = values_of(piece);
  if (locals_ == 1) {
    events_.summed(piece, {values.of[0], at.bytes});
    return;
  }
  const auto memory = result(piece);
  const std::size_t count = at.bytes / size_of(spec_.call.dtype);
  spec_.offload->run(
      Phase::kReduce, at.bytes * locals_,
      [fold = spec_.fold, by = spec_.divisor, of = values.of.data(), locals = locals_, to = memory.data(),
       count] {
        if (count > 0) {
          fold(of, locals, to, count, by);
        }
      },
      [this, piece, memory] {
        give_back_values(piece);
        events_.summed(piece, memory);
      });
}

// The sum of this host is complete.
void ShmJob::give_back_values(std::uint32_t piece) {
  const auto found = values_.find(piece);
  for (std::size_t other = 0; other < locals_; ++other) {
    if (other != static_cast<std::size_t>(local_)) {
      FrameHeader header;
      header.type = FrameType::kConsumed;
      header.piece = piece;
      header.offset = found->second.offsets[other];
      header.bytes = piece_at(piece).bytes;
      send_(static_cast<int>(other), header);
    }
  }
  values_.erase(found);
}

std::span<std::byte> ShmJob::result(std::uint32_t piece) {
  const Piece& at = piece_at(piece);
  if (locals_ > 1 && stays_here(piece)) {
    return output_of(piece);
  }
  if (locals_ == 1) {
    const auto output = output_of(piece);
    if (!output.empty() || at.bytes == 0) {
      return at.bytes == 0 ? std::span(&nothing, 0) : output;
    }
    auto& memory = scratch_[piece];
    if (!memory) {
      memory = std::make_shared_for_overwrite<std::byte[]>(at.bytes);  // NOLINT(modernize-avoid-c-arrays)
    }
    return {memory.get(), at.bytes};
  }
  auto found = results_.find(piece);
  if (found == results_.end()) {
    const auto offset = take(at.bytes);
    if (!offset) {
      return {};
    }
    found = results_.emplace(piece, *offset).first;
  }
  return regions_->at(found->second, at.bytes);
}

bool ShmJob::adopt(std::uint32_t piece, std::span<const std::byte> bytes,
                   const std::shared_ptr<const void>& owner) {
  const auto offset = locals_ > 1 && !stays_here(piece) ? regions_->offset_of(bytes) : std::nullopt;
  if (!offset) {
    return false;
  }
  // Where adopt() throws, results_ may name a buffer that is not in the table. Its release has no effect, and
  // the group fails before another call can adopt the buffer.
  const auto result = results_.try_emplace(piece, *offset).first;
  regions_->adopt(*offset, owner);
  if (const std::uint64_t replaced = std::exchange(result->second, *offset); replaced != *offset) {
    regions_->release(replaced);
  }
  starved_since_.reset();  // the piece has memory
  return true;
}

std::shared_ptr<const void> ShmJob::keep(std::uint32_t piece) {
  if (const auto lone = scratch_.find(piece); lone != scratch_.end()) {
    return lone->second;
  }
  const auto found = results_.find(piece);
  if (found == results_.end()) {
    return nullptr;
  }
  const std::uint64_t offset = found->second;
  regions_->hold(offset, 1);
  return {&nothing, [regions = regions_, offset](const void*) { regions->release(offset); }};
}

void ShmJob::discard(std::uint32_t piece) {
  scratch_.erase(piece);
  if (const auto found = results_.find(piece); found != results_.end()) {
    regions_->release(found->second);
    results_.erase(found);
  }
}

void ShmJob::deliver(std::uint32_t piece) {
  const Piece& at = piece_at(piece);
  if (locals_ > 1 && !stays_here(piece)) {
    std::vector<int> takers;
    const auto found = results_.find(piece);
    const std::uint64_t offset = found->second;
    for (int other = 0; other < static_cast<int>(locals_); ++other) {
      if (other != local_ && gets(other, piece)) {
        takers.push_back(other);
      }
    }
    regions_->hold(offset, static_cast<std::uint32_t>(takers.size()));
    takers_[piece] = takers;
    for (const int other : takers) {
      FrameHeader header;
      header.type = FrameType::kOffer;
      header.piece = piece;
      header.offset = offset;
      header.bytes = at.bytes;
      send_(other, header);
    }
    results_.erase(found);
    copy_out(regions_->at(offset, at.bytes), output_of(piece),
             [this, piece, offset, is_taken = takers.empty()] {
               regions_->release(offset);
               delivered(piece, is_taken);
             });
    return;
  }
  delivered(piece, true);
}

void ShmJob::delivered(std::uint32_t piece, bool is_taken) {
  events_.delivered(piece);
  if (is_taken) {
    events_.taken(piece);
  }
}

bool ShmJob::on_offer(int sender, const FrameHeader& header) {
  const Piece& at = piece_at(header.piece);
  const auto memory = peek_(sender, header.offset, header.bytes);
  if (header.bytes != at.bytes || memory.data() == nullptr || !gets(local_, header.piece)) {
    return false;
  }
  FrameHeader reply;
  reply.type = FrameType::kTaken;
  reply.piece = header.piece;
  reply.offset = header.offset;
  reply.bytes = header.bytes;
  copy_out(memory, output_of(header.piece), [this, sender, reply] {
    send_(sender, reply);
    events_.delivered(reply.piece);
  });
  return true;
}

bool ShmJob::on_taken(int sender, std::uint32_t piece) {
  const auto found = takers_.find(piece);
  if (found == takers_.end() || std::erase(found->second, sender) == 0) {
    return false;
  }
  if (found->second.empty()) {
    takers_.erase(found);
    events_.taken(piece);
  }
  return true;
}

bool ShmJob::on_frame(int local_sender, const FrameHeader& header) {
  if (header.piece >= spec_.plan->pieces.size()) {
    return false;
  }
  switch (header.type) {
    case FrameType::kContribute:
      return on_contribution(local_sender, header);
    case FrameType::kOffer:
      return on_offer(local_sender, header);
    case FrameType::kConsumed:  // the region itself is released by the engine, which outlives this job
      offered_ -= std::min(offered_, std::max<std::uint64_t>(header.bytes, 1));
      if (lent_.erase(header.piece) > 0) {
        events_.handed_over(header.piece);
      }
      pump();
      return true;
    case FrameType::kTaken:
      return on_taken(local_sender, header.piece);
    default:
      return false;
  }
}

std::vector<int> ShmJob::missing(std::uint32_t piece) const {
  std::vector<int> absent;
  const auto found = values_.find(piece);
  for (int other = 0; other < static_cast<int>(locals_); ++other) {
    const bool here = other == local_ || (found != values_.end() &&
                                          found->second.of[static_cast<std::size_t>(other)] != nullptr);
    if (!here) {
      absent.push_back(other);
    }
  }
  return absent;
}

std::vector<int> ShmJob::takers(std::uint32_t piece) const {
  const auto found = takers_.find(piece);
  return found == takers_.end() ? std::vector<int>() : found->second;
}

}  // namespace smdp
