#include "net/fabric/port.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <new>
#include <thread>
#include <utility>

#include "base/clock.h"

namespace smdp {
namespace {

constexpr std::size_t kSends = 64;
constexpr std::size_t kStages = 32;
constexpr std::size_t kMostLent = 32;
constexpr std::size_t kLeastOfEach = 4;  // buffers to lend and stages, on each of many rails
// Receive buffers of a rail: those of all peers' windows up to this number. In a job of more ranks a burst
// may find none, and the provider has the senders repeat it.
constexpr std::size_t kMostReceives = 256;
constexpr std::size_t kReceiveBytes = 128U << 20U;  // ... and up to this size on all rails, for large pieces
constexpr std::size_t kLeastWindow = 2;
constexpr std::size_t kSharedWindow =
    64;  // frames on their way to one rank over a rail while it has few peers

constexpr std::chrono::milliseconds kSendDrainTime{200};

constexpr std::size_t kPage = 4096;
constexpr std::size_t kPayloadAt = 128;  // in a receive buffer, so that payloads are aligned to cache lines
constexpr std::size_t kPrefixStride = 128;
// In the immediates of a frame that is two writes: bits of the slot and of the tag, and a bit for the
// payload.
constexpr std::uint32_t kSlotBits = 9;
constexpr std::uint32_t kSlotMask = (1U << kSlotBits) - 1;
constexpr std::uint32_t kIsPayload = 1U << 31U;
static_assert(FabricPort::kMostSlots <= kSlotMask);
// What has arrived of it in its slot.
constexpr std::uint8_t kPrefixPart = 1;
constexpr std::uint8_t kPayloadPart = 2;
static_assert(FabricPort::kMostSlots == kMostReceives + kMostLent);
static_assert(FabricPort::kPrefixBytes <= kPayloadAt && FabricPort::kPrefixBytes <= kPrefixStride);

std::size_t pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

Result<Mapping> map(std::size_t bytes) {
  // Shared: at a fork, private pages that a device writes to could become the child's.
  void* const address =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    return system_error("mapping memory for the fabric", errno);
  }
  return Mapping(address, bytes);
}

std::size_t most_lent(const FabricPort::Wanted& wanted) {
  return std::max(kMostLent / wanted.rails, kLeastOfEach);
}

// Receive buffers for the frames of all peers, at most.
std::size_t most_receives(const FabricPort::Wanted& wanted) {
  const std::size_t affordable =
      std::max(kReceiveBytes / wanted.rails / pages(kPayloadAt + wanted.payload_bytes), 2 * kLeastWindow);
  return std::min(kMostReceives, affordable);
}

std::size_t window_of(const FabricPort::Wanted& wanted) {
  const std::size_t shared = std::min(kSharedWindow, most_receives(wanted));
  return std::clamp(shared / wanted.peers, kLeastWindow, FabricPort::kMostWindow);
}

FabricEndpoint::Wanted endpoint_of(const FabricPort::Wanted& wanted) {
  FabricEndpoint::Wanted endpoint;
  endpoint.provider = wanted.provider;
  endpoint.source = wanted.source;
  endpoint.device = wanted.device;
  endpoint.message_bytes = FabricPort::kPrefixBytes + wanted.payload_bytes;
  endpoint.sends = 2 * kSends;  // a frame may be two writes
  endpoint.receives = std::min(wanted.peers * window_of(wanted), most_receives(wanted)) + most_lent(wanted);
  endpoint.peers = wanted.peers;
  endpoint.writes = !wanted.writers.empty();
  return endpoint;
}

}  // namespace

Result<std::vector<std::string>> FabricPort::devices(const FabricLibrary& library, const Wanted& wanted) {
  return FabricEndpoint::devices(library, endpoint_of(wanted));
}

Result<std::unique_ptr<FabricPort>> FabricPort::open(const FabricLibrary& library, const Wanted& wanted) {
  auto opened = FabricEndpoint::open(library, endpoint_of(wanted));
  if (!opened.ok()) {
    return opened.status();
  }
  if ((*opened)->receives() < most_lent(wanted) + kLeastWindow || (*opened)->sends() == 0 ||
      (*opened)->parts() < 2) {
    return Status(Code::kUnsupported,
                  (*opened)->provider() + " has too few receives, sends or vectors for the engine");
  }
  std::unique_ptr<FabricPort> port(new FabricPort(std::move(*opened), wanted, window_of(wanted)));
  if (Status status = port->prepare(wanted.shared); !status.ok()) {
    return status;
  }
  return port;
}

FabricPort::FabricPort(std::unique_ptr<FabricEndpoint> endpoint, const Wanted& wanted, std::uint64_t window)
    : tag_(wanted.tag),
      payload_bytes_(wanted.payload_bytes),
      window_(window),
      stride_(pages(kPayloadAt + wanted.payload_bytes)),
      receives_(endpoint->receives()),
      most_lent_(std::min(most_lent(wanted), endpoint->receives() - kLeastWindow)),
      most_staged_(std::max(kStages / wanted.rails, kLeastOfEach)),
      buffers_(endpoint->receives()),
      sends_(std::min(endpoint->sends(), kSends)),
      endpoint_(std::move(endpoint)) {
  for (std::size_t i = sends_.size(); i-- > 0;) {
    sends_[i].frame.index = sends_[i].payload.index = i;
    free_sends_.push_back(i);
  }
  waiting_.reserve(sends_.size());
  // Every writer needs slots of its own.
  const std::size_t needed = wanted.writers.size() * window_;
  writes_ = endpoint_->can_write() && needed + most_lent_ == receives_;
  if (!writes_) {
    return;
  }
  writers_.assign(receives_, -1);
  parts_.assign(receives_, 0);
  spares_.reserve(receives_);
  for (std::size_t slot = 0; slot < receives_; ++slot) {
    if (slot < needed) {
      writers_[slot] = wanted.writers[slot / window_];
    } else {
      spares_.push_back(slot);
    }
  }
}

FabricPort::~FabricPort() {
  if (!is_drained_) {
    drain(std::array{this});
  }
}

// A provider closes more reliably, and sooner, when no send is in progress.
void FabricPort::drain(std::span<FabricPort* const> ports) {
  const TimePoint by = Clock::now() + kSendDrainTime;
  const auto settle_all = [&] {
    return std::ranges::count_if(ports, [](FabricPort* port) { return !port->settle(); }) == 0;
  };
  while (!settle_all() && Clock::now() < by) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  std::ranges::for_each(ports, [](FabricPort* port) { port->is_drained_ = true; });
}

// False: sends are in progress.
bool FabricPort::settle() {
  write_prefixes(nullptr);
  while (in_flight() > 0 && !is_drained_) {
    if (next_ == completed_) {
      next_ = 0;
      completed_ = endpoint_->read(completions_);
      if (completed_ == 0) {
        return false;
      }
    }
    const FabricEndpoint::Completion& one = completions_[next_++];
    if (one.context == nullptr) {
      is_drained_ = is_drained_ || !one.immediate;  // the endpoint has failed
      continue;
    }
    const auto& operation = *reinterpret_cast<const Operation*>(one.context);
    if (!operation.receives) {
      end_part(operation.index, 0, nullptr);
    }
  }
  return true;
}

Status FabricPort::prepare(std::span<std::byte> shared) {
  const std::size_t received_bytes = receives_ * stride_;
  Result<Mapping> received = shared.size() < received_bytes ? map(received_bytes) : Mapping();
  const std::size_t prefixes = pages(sends_.size() * kPrefixStride);
  Result<Mapping> sending = map(prefixes + most_staged_ * pages(payload_bytes_));
  if (!received.ok() || !sending.ok()) {
    return received.ok() ? sending.status() : received.status();
  }
  memory_->own = std::move(*received);
  memory_->slab = shared.size() < received_bytes ? memory_->own.bytes() : shared.first(received_bytes);
  memory_->returned.reserve(receives_);
  send_slab_ = std::move(*sending);
  const auto receiving = endpoint_->register_memory(memory_->slab, writes_);
  const auto sent = endpoint_->register_memory(send_slab_.bytes());
  if (!receiving.ok() || !sent.ok()) {
    return receiving.ok() ? sent.status() : receiving.status();
  }
  receive_descriptor_ = receiving->descriptor;
  send_descriptor_ = sent->descriptor;
  own_slots_ = {receiving->base, receiving->key, static_cast<std::uint32_t>(receives_)};
  to_post_.reserve(receives_);
  for (std::size_t i = most_staged_; i-- > 0;) {
    free_stages_->push_back(prefixes + i * pages(payload_bytes_));
  }
  return writes_ ? Status() : post_all();
}

Status FabricPort::post_all() {
  for (std::size_t i = 0; i < receives_; ++i) {
    buffers_[i].receives = true;
    buffers_[i].index = i;
    if (const long got = post(i); got == -EAGAIN) {
      to_post_.push_back({i, -1, false});
    } else if (got != 0) {
      return endpoint_->error("posting a receive buffer failed", got);
    }
  }
  return {};
}

Status FabricPort::use_messages() {
  if (!std::exchange(writes_, false)) {
    return {};
  }
  return post_all();
}

// --- Sending ---

std::optional<FabricPort::Staged> FabricPort::stage(std::span<const std::byte> payload) {
  if (free_stages_->empty()) {
    return std::nullopt;
  }
  const std::size_t offset = free_stages_->back();
  free_stages_->pop_back();  // first: where there is no memory for the owner, it returns the stage
  std::byte* const memory = send_slab_.bytes().data() + offset;
  const std::shared_ptr<const std::byte> owner(
      memory, [stages = free_stages_, offset](const std::byte*) { stages->push_back(offset); });
  std::ranges::copy(payload, memory);
  return Staged{owner, send_descriptor_};
}

Result<std::optional<std::size_t>> FabricPort::send(const Target& to, const FrameHeader& header,
                                                    std::span<const std::byte> payload, void* descriptor) {
  if (free_sends_.empty()) {
    return std::optional<std::size_t>();
  }
  const std::size_t ticket = free_sends_.back();
  Send& send = sends_[ticket];
  const auto prefix = send_slab_.bytes().subspan(ticket * kPrefixStride, kPrefixBytes);
  std::ranges::copy(tag_, prefix.begin());
  encode(header, prefix.subspan<sizeof(Tag), kFrameBytes>());
  const std::array<iovec, 2> parts = {
      iovec{prefix.data(), prefix.size()},
      iovec{const_cast<std::byte*>(payload.data()), payload.size()}};  // NOLINT: it is only read
  std::array<void*, 2> descriptors = {send_descriptor_, descriptor};
  const std::size_t used = payload.empty() ? 1 : 2;
  const auto sent_parts = std::span(parts).first(used);
  const auto sent_descriptors = std::span(descriptors).first(used);
  const std::uint64_t remote = to.slots.base + to.slot * stride_ + kPayloadAt;
  if (!writes_) {
    return begin(ticket, endpoint_->send(to.place, sent_parts, sent_descriptors, &send.frame.context));
  }
  if (!writes_in_two()) {
    return begin(ticket,
                 endpoint_->write(to.place, sent_parts, sent_descriptors,
                                  {remote - kPrefixBytes, kPrefixBytes + payload.size(), to.slots.key},
                                  to.slot, &send.frame.context));
  }
  send.prefix_to = to;
  if (payload.empty()) {
    return begin(ticket, write_prefix(ticket));
  }
  const long got = endpoint_->write(to.place, sent_parts.last(1), sent_descriptors.last(1),
                                    {remote, payload.size(), to.slots.key}, immediate(to.slot, true),
                                    &send.payload.context);
  const auto begun = begin(ticket, got);
  if (begun.ok() && *begun) {
    ++send.in_progress;
    if (write_prefix(ticket) != 0) {
      waiting_.push_back(ticket);  // reserved: does not allocate. poll() reports an error
    }
  }
  return begun;
}

std::uint32_t FabricPort::immediate(std::uint32_t slot, bool is_payload) const {
  const std::uint32_t proof = (Reader(tag_).get<std::uint32_t>() << kSlotBits) & ~kIsPayload;
  return slot | proof | (is_payload ? kIsPayload : 0);
}

// `posted`: what the endpoint returned for the first operation of a send.
Result<std::optional<std::size_t>> FabricPort::begin(std::size_t ticket, long posted) {
  if (posted == -EAGAIN) {
    return std::optional<std::size_t>();
  }
  if (posted != 0) {
    return endpoint_->error("sending over the fabric failed", posted);
  }
  free_sends_.pop_back();
  sends_[ticket].in_progress = 1;
  return std::optional(ticket);
}

long FabricPort::write_prefix(std::size_t ticket) {
  Send& send = sends_[ticket];
  const Target& to = send.prefix_to;
  const iovec part{send_slab_.bytes().data() + ticket * kPrefixStride, kPrefixBytes};
  const fi::RemotePart remote{to.slots.base + to.slot * stride_ + kPayloadAt - kPrefixBytes, kPrefixBytes,
                              to.slots.key};
  return endpoint_->write(to.place, {&part, 1}, {&send_descriptor_, 1}, remote, immediate(to.slot, false),
                          &send.frame.context);
}

// The payloads of these frames are on their way. A refusal may be about one peer only.
void FabricPort::write_prefixes(Events* events) {
  for (std::size_t i = 0; i < waiting_.size();) {
    const std::size_t ticket = waiting_[i];
    const long got = write_prefix(ticket);
    if (got == -EAGAIN) {
      ++i;
      continue;
    }
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
    if (got != 0) {
      end_part(ticket, static_cast<int>(-got), events);  // may send, which only appends
    }
  }
}

// Of a send, which ends with its last part. `events`: null, the end is not reported.
void FabricPort::end_part(std::size_t ticket, int error, Events* events) {
  Send& send = sends_[ticket];
  send.error = send.error == 0 ? error : send.error;
  if (--send.in_progress > 0) {
    return;
  }
  free_sends_.push_back(ticket);  // first: there may be no memory for the text
  const int failed = std::exchange(send.error, 0);
  if (events != nullptr) {
    events->sent(ticket,
                 failed == 0 ? Status() : endpoint_->error("the fabric could not deliver a frame", -failed));
  }
}

// --- Receiving ---

std::span<std::byte> FabricPort::receive_buffer(std::size_t index) const {
  return memory_->slab.subspan(index * stride_ + kPayloadAt - kPrefixBytes, kPrefixBytes + payload_bytes_);
}

long FabricPort::post(std::size_t buffer) {
  return endpoint_->receive(receive_buffer(buffer), receive_descriptor_, &buffers_[buffer].context);
}

// A slot holds the job's tag only between a write and its end: an immediate without a write is no frame.
void FabricPort::wipe(std::size_t buffer) {
  std::ranges::fill(receive_buffer(buffer).first<sizeof(Tag)>(), std::byte{0});
  parts_[buffer] = 0;
}

void FabricPort::give_back(std::size_t buffer, int from) {
  if (writes_) {
    wipe(buffer);
  }
  to_post_.push_back({buffer, from, false});
}

FabricPort::Loan::~Loan() {
  if (is_lent) {
    const std::lock_guard lock(memory->mutex);
    memory->returned.push_back(buffer);  // reserved: does not allocate
  }
}

FabricPort::Lent FabricPort::lend(std::size_t buffer) {
  if (lent_ >= most_lent_) {
    return {};
  }
  std::shared_ptr<Loan> owner;
  try {
    owner = std::make_shared<Loan>(memory_, buffer);
  } catch (const std::bad_alloc&) {
    return {};  // the frame is copied, and its buffer is given back for its sender
  }
  owner->is_lent = true;
  ++lent_;
  Lent lent{std::move(owner), buffer};
  if (writes_) {
    lent.successor = spares_.back();
    spares_.pop_back();
    std::swap(writers_[lent.successor], writers_[buffer]);
  }
  return lent;
}

bool FabricPort::take_returned() {
  const std::lock_guard lock(memory_->mutex);
  const bool any = !memory_->returned.empty();
  for (const std::size_t buffer : memory_->returned) {
    if (writes_) {
      wipe(buffer);
      spares_.push_back(buffer);
      --lent_;
    } else {
      to_post_.push_back({buffer, -1, true});
    }
  }
  memory_->returned.clear();
  return any;
}

// False: the endpoint refused a buffer for good.
bool FabricPort::repost(Events& events) {
  while (!to_post_.empty()) {
    const Repost next = to_post_.back();
    const long got = writes_ ? 0 : post(next.buffer);
    if (got == -EAGAIN) {
      return true;
    }
    if (got != 0) {
      return false;
    }
    to_post_.pop_back();
    lent_ -= next.was_lent ? 1 : 0;  // not before: the credits count on the buffer
    if (next.from >= 0) {
      events.reposted(next.from, next.buffer);
    }
  }
  return true;
}

void FabricPort::arrived(std::size_t buffer, std::size_t bytes, Events& events) {
  const auto memory = receive_buffer(buffer);
  if (bytes < kPrefixBytes || bytes > memory.size() ||
      !std::ranges::equal(memory.first<sizeof(Tag)>(), tag_)) {
    give_back(buffer, -1);  // of another job, or of none
    return;
  }
  const auto encoded = memory.subspan<sizeof(Tag), kFrameBytes>();
  std::optional<FrameHeader> header = decode(encoded);
  const auto payload = memory.subspan(kPrefixBytes, bytes - kPrefixBytes);
  if (header && header->payload != payload.size()) {
    header.reset();
  }
  events.received(sender_of(encoded), header, payload, buffer);
}

// A provider does not report how many bytes were written, so the header does.
void FabricPort::written(std::uint64_t number, Events& events) {
  const bool in_two = writes_in_two();
  const std::uint64_t slot = in_two ? number & kSlotMask : number;
  if (!writes_ || slot >= receives_ || writers_[slot] < 0) {
    return;  // of another job, or of none
  }
  if (in_two) {
    const bool is_payload = (number & kIsPayload) != 0;
    if (number != immediate(static_cast<std::uint32_t>(slot), is_payload)) {
      return;  // of another job
    }
    parts_[slot] |= is_payload ? kPayloadPart : kPrefixPart;
    if ((parts_[slot] & kPrefixPart) == 0) {
      return;
    }
  }
  const auto memory = receive_buffer(slot);
  if (!std::ranges::equal(memory.first<sizeof(Tag)>(), tag_)) {
    return;
  }
  const auto encoded = memory.subspan<sizeof(Tag), kFrameBytes>();
  std::optional<FrameHeader> header = decode(encoded);
  if (header && (header->payload > payload_bytes_ || std::cmp_not_equal(header->sender, writers_[slot]))) {
    header.reset();
  }
  if (in_two && header && header->payload > 0 && (parts_[slot] & kPayloadPart) == 0) {
    return;
  }
  const auto payload = memory.subspan(kPrefixBytes, header ? header->payload : 0);
  events.received(static_cast<std::uint32_t>(writers_[slot]), header, payload, slot);
}

Status FabricPort::complete(const FabricEndpoint::Completion& completion, Events& events) {
  if (completion.immediate) {
    written(*completion.immediate, events);
    return {};
  }
  if (completion.context == nullptr) {
    return endpoint_->error("the fabric's endpoint failed", -completion.error);
  }
  const auto& operation = *reinterpret_cast<const Operation*>(completion.context);
  if (!operation.receives) {
    end_part(operation.index, completion.error, &events);
  } else if (completion.error == 0) {
    arrived(operation.index, completion.bytes, events);
  } else if (completion.error == fi::kErrorTruncated) {
    give_back(operation.index, -1);  // too long for a frame of the job
  } else {
    return endpoint_->error("receiving from the fabric failed", -completion.error);
  }
  return {};
}

Result<bool> FabricPort::poll(Events& events) {
  bool any = take_returned();
  if (!repost(events)) {
    return Status(Code::kSystem, "the fabric takes no receive buffers any more");
  }
  if (next_ == completed_) {
    next_ = 0;
    completed_ = endpoint_->read(completions_);
  }
  any = any || next_ < completed_;
  write_prefixes(&events);
  while (next_ < completed_) {
    // Counted first: where an event throws, the next call continues behind it.
    if (Status status = complete(completions_[next_++], events); !status.ok()) {
      return status;
    }
  }
  if (!repost(events)) {
    return Status(Code::kSystem, "the fabric takes no receive buffers any more");
  }
  return any;
}

}  // namespace smdp
