#include "net/fabric/ofi_transport.h"

#include <sys/epoll.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <utility>

namespace smdp {
namespace {

// For frames of a dead rank that are still on their way, and for TCP to say why a frame was not delivered.
constexpr std::chrono::milliseconds kDrainTime{100};
// The provider may have acknowledgements to send after its last completion.
constexpr std::chrono::milliseconds kSettleTime{5};

Status breach() { return {Code::kPeerLost, "a frame broke the protocol"}; }

}  // namespace

OfiTransport::OfiTransport(Loop& loop, int rank, double heartbeat_s, std::unique_ptr<Transport> stream,
                           FabricConnections fabric, LogSink log)
    : loop_(loop),
      rank_(rank),
      heartbeat_s_(heartbeat_s),
      stream_(std::move(stream)),
      log_(std::move(log)),
      stream_side_(*this),
      port_side_(*this),
      sending_(fabric.port->tickets()),
      port_(std::move(fabric.port)),
      wake_fd_(port_->endpoint().wake_fd()) {
  for (auto& [peer, remote] : fabric.peers) {
    Peer& made = peers_[peer];
    made.rank = peer;
    made.remote = std::move(remote);
  }
  loop_.add_poller(this);
  if (wake_fd_ >= 0) {
    // By edges: a provider may leave it readable.
    loop_.watch(wake_fd_, EPOLLIN | EPOLLET, [this](std::uint32_t) { is_due_ = true; });
  }
}

OfiTransport::~OfiTransport() {
  // A peer that was lost without a goodbye may live, and its frames may still arrive.
  const auto may_send = [](const auto& one) { return !one.second.has_left; };
  if (std::ranges::any_of(peers_, may_send)) {
    port_->endpoint().expect_unfinished_frames();
  }
  if (wake_fd_ >= 0) {
    loop_.forget(wake_fd_);
  }
}

void OfiTransport::start(Events& events) {
  events_ = &events;
  stream_->start(stream_side_);
}

void OfiTransport::register_memory(std::span<std::byte> memory) {
  if (memory.empty()) {
    return;
  }
  const auto region = port_->endpoint().register_memory(memory);
  if (region.ok()) {
    arena_ = memory;
    arena_descriptor_ = region->descriptor;
  } else {
    log_(LogLevel::kWarning, region.status().message() +
                                 ": every frame is copied before it is sent (a smaller SMDP_ARENA_MIB, or a "
                                 "larger limit of locked memory, avoids that)");
  }
}

OfiTransport::Peer* OfiTransport::find(std::uint64_t rank) {
  const auto found = rank > INT32_MAX ? peers_.end() : peers_.find(static_cast<int>(rank));
  return found == peers_.end() ? nullptr : &found->second;
}

// --- Sending ---

void OfiTransport::post(int peer_rank, Message message) {
  Peer* const peer = find(static_cast<std::uint64_t>(peer_rank));
  if (peer == nullptr || peer->lost || finishing_) {
    return;
  }
  const std::size_t bytes = message.payload.size();
  if (goes_first(message.header.call, bytes) || bytes > port_->payload_bytes()) {
    stream_->post(peer_rank, std::move(message));
    return;
  }
  message.header.sender = static_cast<std::uint32_t>(rank_);
  message.header.payload = bytes;
  peer->queue.push_back(std::move(message));
  ++queued_;
  pump(*peer);
}

void OfiTransport::pump(Peer& peer) {
  while (!peer.queue.empty() && !broken_ && peer.sent - peer.credited < peer.remote.window &&
         send_next(peer)) {
  }
}

void OfiTransport::pump_all() {
  for (auto& [rank, peer] : peers_) {
    pump(peer);
  }
}

bool OfiTransport::is_in_arena(std::span<const std::byte> payload) const {
  const std::less_equal<> not_after;
  return !arena_.empty() && not_after(arena_.data(), payload.data()) &&
         not_after(payload.data() + payload.size(), arena_.data() + arena_.size());
}

bool OfiTransport::send_next(Peer& peer) {
  const Message& next = peer.queue.front();
  std::span<const std::byte> payload = next.payload;
  FabricPort::Staged staged{nullptr, arena_descriptor_};
  const bool in_arena = is_in_arena(payload);
  const bool is_owned = next.keep != nullptr && !port_->endpoint().demands_descriptors();
  if (!in_arena && is_owned) {
    staged.descriptor = nullptr;
  } else if (!in_arena) {
    if (port_->in_flight() == port_->tickets()) {
      return false;
    }
    auto copy = port_->stage(payload);
    if (!copy) {
      return false;
    }
    staged = std::move(*copy);
    payload = {staged.bytes.get(), payload.size()};
  }
  std::vector<std::uint32_t>& slots = peer.remote.slots;
  if (port_->writes()) {
    peer.remote.target.slot = slots.back();  // there is one for each frame of the window
  }
  const auto ticket = port_->send(peer.remote.target, next.header, payload, staged.descriptor);
  if (!ticket.ok()) {
    break_off(peer, {Code::kPeerLost, ticket.status().message()});
    return false;
  }
  if (!*ticket) {
    is_due_ = true;
    return false;
  }
  sending_[**ticket] = {&peer, std::move(peer.queue.front()), std::move(staged.bytes), in_arena, false};
  if (port_->writes()) {
    slots.pop_back();
  }
  peer.queue.pop_front();
  --queued_;
  ++peer.sent;
  return true;
}

void OfiTransport::on_sent(std::size_t ticket, const Status& why) {
  Sending done = std::exchange(sending_[ticket], {});
  if (done.is_cancelled && done.reads_arena) {
    const auto group = still_read_.find(done.message.header.group);
    if (--group->second == 0) {
      const std::uint64_t released = group->first;
      still_read_.erase(group);
      events_->released(released);
    }
  }
  Peer& peer = *done.peer;
  const bool is_wanted = done.message.sent && !done.is_cancelled;
  if (is_wanted && (why.ok() || peer.has_left)) {
    done.message.sent();  // may post more
  } else if (is_wanted && !peer.lost) {
    peer.undelivered.push_back(std::move(done.message));
  }
  if (!why.ok()) {
    break_off(peer, {Code::kPeerLost, why.message()});
  }
}

void OfiTransport::cancel(std::uint64_t group, std::uint64_t operation) {
  const auto belongs = [&](const FrameHeader& header) {
    return header.group == group && header.operation == operation;
  };
  for (auto& [rank, peer] : peers_) {
    queued_ -= std::erase_if(peer.queue, [&](const Message& one) { return belongs(one.header); });
    std::erase_if(peer.undelivered, [&](const Message& one) { return belongs(one.header); });
  }
  for (Sending& one : sending_) {
    if (one.peer != nullptr && !one.is_cancelled && belongs(one.message.header)) {
      if (one.reads_arena) {
        ++still_read_[group];  // first: where memory runs out, cancel() is called again
      }
      one.is_cancelled = true;
      one.message.sent = nullptr;
    }
  }
  stream_->cancel(group, operation);
}

void OfiTransport::finish() {
  for (auto& [rank, peer] : peers_) {
    FrameHeader end;
    end.type = FrameType::kFabricEnd;
    end.offset = peer.sent + peer.queue.size();
    stream_->post(rank, {end, {}, nullptr, nullptr});
  }
  stream_->finish();
  finishing_ = true;
}

// --- Receiving ---

// With a descriptor, a look at the queue costs several system calls, and is due only when something happened.
bool OfiTransport::poll() {
  if (broken_ || !(is_due_ || wake_fd_ < 0)) {
    return false;
  }
  is_due_ = false;
  const Result<bool> worked = port_->poll(port_side_);
  if (!worked.ok()) {
    fail(worked.status());
    return true;
  }
  if (*worked) {
    busy_at_ = Clock::now();
    is_due_ = true;
  }
  if (queued_ > 0) {
    pump_all();
  }
  if (losses_ > 0) {
    report_due(Clock::now());
  }
  return *worked;
}

bool OfiTransport::fall_asleep() {
  if (broken_ || wake_fd_ < 0) {
    return true;
  }
  is_due_ = is_due_ || !port_->endpoint().may_wait();
  return !is_due_;
}

bool OfiTransport::needs_polling(bool is_work) const {
  return !broken_ && wake_fd_ < 0 &&
         (is_work || queued_ > 0 || losses_ > 0 || port_->in_flight() > 0 ||
          Clock::now() - busy_at_ < kSettleTime);
}

void OfiTransport::PortSide::received(std::uint32_t from, const std::optional<FrameHeader>& header,
                                      std::span<std::byte> payload, std::size_t buffer) {
  Peer* const peer = owner_.find(from);
  if (peer == nullptr || peer->lost || (header && header->type == FrameType::kPing)) {
    owner_.port_->give_back(buffer, -1);  // a ping: of the ranks' probe, when the job opened
    return;
  }
  ++peer->received;
  if (!header) {
    owner_.port_->give_back(buffer, -1);
    owner_.break_off(*peer, breach());
    return;
  }
  owner_.take(*peer, *header, payload, buffer);
}

void OfiTransport::take(Peer& peer, const FrameHeader& header, std::span<std::byte> payload,
                        std::size_t buffer) {
  std::optional<Landing> landing;
  try {
    landing = events_->place(peer.rank, header);
  } catch (...) {
    port_->give_back(buffer, peer.rank);
    throw;  // the loop ends every running call
  }
  if (!landing) {
    port_->give_back(buffer, -1);
    break_off(peer, breach());
    return;
  }
  // Memory that no operation has set aside may as well be the buffer itself.
  FabricPort::Lent lent = landing->owned ? port_->lend(buffer) : FabricPort::Lent{};
  if (lent.owner) {
    landing = Landing::lent(payload.data(), std::move(lent.owner));
    on_taken(peer.rank, lent.successor);
  } else {
    if (!payload.empty()) {
      std::memcpy(landing->data, payload.data(), payload.size());
    }
    port_->give_back(buffer, peer.rank);
  }
  events_->arrived(peer.rank, header, std::move(*landing));
}

// A buffer takes the peer's next frame. The peer hears of it when it has half of its credit left.
void OfiTransport::on_taken(int from, std::size_t buffer) {
  Peer& peer = peers_.at(from);
  ++peer.taken;
  if (port_->writes()) {
    peer.to_report.push_back(static_cast<std::uint32_t>(buffer));
  }
  if (peer.lost || peer.taken - peer.reported < std::max<std::uint64_t>(1, port_->window() / 2)) {
    return;
  }
  // First: where there is no memory for it, the next credit names these slots too.
  auto slots = std::make_shared<const std::vector<std::uint32_t>>(peer.to_report);
  peer.to_report.clear();
  peer.reported = peer.taken;
  FrameHeader credit;
  credit.type = FrameType::kFabricCredit;
  credit.offset = peer.taken;
  const auto payload = std::as_bytes(std::span(*slots));
  credit.payload = payload.size();
  stream_->post(from, {credit, payload, std::move(slots), nullptr});
}

std::optional<Landing> OfiTransport::StreamSide::place(int peer, const FrameHeader& header) {
  const bool is_ours = header.type == FrameType::kFabricCredit || header.type == FrameType::kFabricEnd;
  return is_ours ? Landing::fresh(header.payload) : owner_.events_->place(peer, header);
}

void OfiTransport::StreamSide::arrived(int from, const FrameHeader& header, Landing landing) {
  Peer& peer = owner_.peers_.at(from);
  if (peer.lost) {
    return;
  }
  if (header.type != FrameType::kFabricCredit && header.type != FrameType::kFabricEnd) {
    owner_.events_->arrived(from, header, std::move(landing));
  } else if (!owner_.on_fabric_frame(peer, header, landing)) {
    owner_.break_off(peer, breach());
  }
}

bool OfiTransport::on_fabric_frame(Peer& peer, const FrameHeader& header, const Landing& landing) {
  if (header.type == FrameType::kFabricCredit) {
    return on_credit(peer, header, landing);
  }
  peer.sent_in_all = header.offset;
  return header.offset >= peer.received;
}

bool OfiTransport::on_credit(Peer& peer, const FrameHeader& header, const Landing& landing) {
  const std::uint64_t frames = header.offset - peer.credited;
  if (header.offset < peer.credited || header.offset > peer.sent ||
      header.payload != (port_->writes() ? frames * sizeof(std::uint32_t) : 0)) {
    return false;
  }
  Reader slots({landing.data, header.payload});
  for (std::uint64_t i = 0; port_->writes() && i < frames; ++i) {
    const auto slot = slots.get<std::uint32_t>();
    if (slot >= peer.remote.target.slots.count) {
      return false;
    }
    peer.remote.slots.push_back(slot);
  }
  peer.credited = header.offset;
  pump(peer);
  return true;
}

// --- The end of a peer ---

void OfiTransport::StreamSide::lost(int from, bool orderly, Status why) {
  owner_.on_stream_lost(owner_.peers_.at(from), orderly, std::move(why));
}

void OfiTransport::on_stream_lost(Peer& peer, bool orderly, Status why) {
  if (peer.lost) {
    return;
  }
  losses_ += peer.loss ? 0 : 1;
  const TimePoint by = Clock::now() + (orderly ? seconds(heartbeat_s_) : Clock::duration(kDrainTime));
  // What TCP reports describes the peer better than a frame that was not delivered.
  peer.loss = Loss{orderly, std::move(why), by};
  report_due(Clock::now());
}

void OfiTransport::break_off(Peer& peer, Status why) {
  if (peer.lost || peer.loss) {
    return;
  }
  ++losses_;
  peer.loss = Loss{false, std::move(why), Clock::now() + kDrainTime};
}

void OfiTransport::report(Peer& peer) {
  // First what may run out of memory: a loss is reported once.
  Status missing(Code::kPeerLost, "its last frames did not arrive over the fabric");
  peer.undelivered.reserve(peer.undelivered.size() + peer.queue.size());
  Loss loss = std::move(*peer.loss);
  peer.loss.reset();
  --losses_;
  peer.lost = true;
  queued_ -= peer.queue.size();
  for (Message& message : peer.queue) {
    if (message.sent) {
      peer.undelivered.push_back(std::move(message));
    }
  }
  peer.queue.clear();
  peer.has_left = loss.orderly && peer.has_all_arrived();
  if (loss.orderly && !peer.has_left) {
    events_->lost(peer.rank, false, std::move(missing));
  } else {
    events_->lost(peer.rank, loss.orderly, std::move(loss.why));
  }
  // After lost(), which cancels the frames of the calls that fail.
  for (const Message& message : std::exchange(peer.undelivered, {})) {
    if (peer.has_left) {
      message.sent();
    }
  }
}

void OfiTransport::report_due(TimePoint now) {
  for (auto& [rank, peer] : peers_) {
    if (peer.loss && (now >= peer.loss->by || (peer.loss->orderly && peer.has_all_arrived()))) {
      report(peer);
    }
  }
}

void OfiTransport::fail(const Status& why) {
  broken_ = true;
  for (auto& [rank, peer] : peers_) {
    break_off(peer, {Code::kPeerLost, "the connection over the fabric failed: " + why.message()});
  }
}

void OfiTransport::tick() {
  stream_->tick();
  if (!needs_polling(false)) {
    is_due_ = true;
    poll();  // the provider makes no progress by itself
  }
  if (losses_ > 0) {
    report_due(Clock::now());
  }
}

}  // namespace smdp
