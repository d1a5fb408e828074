#include "net/fabric/ofi_transport.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

#include "net/fabric/rails.h"

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
      stream_side_(*this) {
  for (auto& port : fabric.rails) {
    rails_.push_back(std::make_unique<Rail>(*this, rails_.size(), std::move(port)));
    wakes_ = wakes_ && rails_.back()->wake_fd >= 0;
  }
  for (auto& [peer, links] : fabric.peers) {
    Peer& made = peers_[peer];
    made.rank = peer;
    for (FabricConnections::Link& link : links) {
      made.links.emplace_back().remote = std::move(link);
    }
  }
  loop_.add_poller(this);
  for (const auto& rail : rails_) {
    if (wakes_) {
      // By edges: a provider may leave it readable.
      loop_.watch(rail->wake_fd, EPOLLIN | EPOLLET, [this](std::uint32_t) { is_due_ = true; });
    }
  }
}

OfiTransport::Rail::Rail(OfiTransport& transport, std::size_t number, std::unique_ptr<FabricPort> opened)
    : owner(transport),
      index(number),
      sending(opened->tickets()),
      wake_fd(opened->endpoint().wake_fd()),
      port(std::move(opened)) {}

OfiTransport::~OfiTransport() {
  // A peer that was lost without a goodbye may live, and its frames may still arrive.
  const auto may_send = [](const auto& one) { return !one.second.has_left; };
  const bool may_arrive = std::ranges::any_of(peers_, may_send);
  for (const auto& rail : rails_) {
    if (may_arrive) {
      rail->port->endpoint().expect_unfinished_frames();
    }
    if (wakes_) {
      loop_.forget(rail->wake_fd);
    }
  }
  std::array<FabricPort*, kMostRails> ports{};
  std::ranges::transform(rails_, ports.begin(), [](const auto& rail) { return rail->port.get(); });
  FabricPort::drain(std::span(ports).first(rails_.size()));
}

void OfiTransport::start(Events& events) {
  events_ = &events;
  stream_->start(stream_side_);
}

void OfiTransport::register_memory(std::span<std::byte> memory) {
  if (memory.empty()) {
    return;
  }
  for (const auto& rail : rails_) {
    const auto region = rail->port->endpoint().register_memory(memory);
    if (!region.ok()) {
      log_(LogLevel::kWarning,
           region.status().message() +
               ": every frame is copied before it is sent (a smaller SMDP_ARENA_MIB, or a "
               "larger limit of locked memory, avoids that)");
      return;
    }
    rail->arena_descriptor = region->descriptor;
  }
  arena_ = memory;
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
  if (goes_first(message.header.call, bytes) || bytes > rails_.front()->port->payload_bytes()) {
    stream_->post(peer_rank, std::move(message));
    return;
  }
  message.header.sender = static_cast<std::uint32_t>(rank_);
  message.header.payload = bytes;
  peer->queue.push_back({std::move(message), {}});
  ++queued_;
  pump(*peer);
}

void OfiTransport::pump(Peer& peer) {
  while (!peer.queue.empty() && !broken_ && send_next(peer)) {
  }
}

std::uint64_t OfiTransport::Peer::sent() const {
  return std::accumulate(links.begin(), links.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const Link& link) { return sum + link.sent; });
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

// A slower rail completes its frames later, and so gets fewer of them.
bool OfiTransport::send_next(Peer& peer) {
  std::uint32_t refused = 0;  // bits of the rails that cannot send now
  static_assert(kMostRails <= 32);
  for (;;) {
    const Link* best = nullptr;
    std::size_t index = 0;
    for (std::size_t i = 0; i < peer.links.size(); ++i) {
      const std::size_t candidate = (peer.next + i) % peer.links.size();
      const Link& link = peer.links[candidate];
      if (link.has_credit() && (refused >> candidate & 1U) == 0 &&
          (best == nullptr || link.on_their_way() < best->on_their_way())) {
        best = &link;
        index = candidate;
      }
    }
    if (best == nullptr) {
      return false;
    }
    switch (send_over(*rails_[index], peer)) {
      case Outcome::kSent:
        peer.next = (index + 1) % peer.links.size();
        return true;
      case Outcome::kRefused:
        refused |= 1U << index;
        break;
      case Outcome::kFailed:
        return false;
    }
  }
}

const FabricPort::Staged* OfiTransport::copy_of(const Rail& rail, Waiting& next) const {
  next.staged.resize(rails_.size());
  FabricPort::Staged& staged = next.staged[rail.index];
  if (!staged.bytes) {
    staged = rail.port->stage(next.message.payload).value_or(FabricPort::Staged{});
  }
  return staged.bytes ? &staged : nullptr;
}

OfiTransport::Outcome OfiTransport::send_over(Rail& rail, Peer& peer) {
  FabricPort& port = *rail.port;
  if (port.in_flight() == port.tickets()) {
    return Outcome::kRefused;
  }
  Link& link = peer.links[rail.index];
  Waiting& next = peer.queue.front();
  const Message& message = next.message;
  std::span<const std::byte> payload = message.payload;
  FabricPort::Staged staged{nullptr, rail.arena_descriptor};
  const bool in_arena = is_in_arena(payload);
  const bool is_owned = message.keep != nullptr && !port.endpoint().demands_descriptors();
  if (!in_arena && is_owned) {
    staged.descriptor = nullptr;
  } else if (!in_arena) {
    const FabricPort::Staged* const copy = copy_of(rail, next);
    if (copy == nullptr) {
      return Outcome::kRefused;
    }
    staged = *copy;
    payload = {staged.bytes.get(), payload.size()};
  }
  std::vector<std::uint32_t>& slots = link.remote.slots;
  if (port.writes()) {
    link.remote.target.slot = slots.back();  // there is one for each frame of the window
  }
  const auto ticket = port.send(link.remote.target, message.header, payload, staged.descriptor);
  if (!ticket.ok()) {
    break_off(peer, {Code::kPeerLost, ticket.status().message()});
    return Outcome::kFailed;
  }
  if (!*ticket) {
    is_due_ = true;
    return Outcome::kRefused;
  }
  rail.sending[**ticket] = {&peer, std::move(next.message), std::move(staged.bytes), in_arena, false};
  if (port.writes()) {
    slots.pop_back();
  }
  peer.queue.pop_front();
  --queued_;
  ++link.sent;
  return Outcome::kSent;
}

void OfiTransport::on_sent(Rail& rail, std::size_t ticket, const Status& why) {
  Sending done = std::exchange(rail.sending[ticket], {});
  ++done.peer->links[rail.index].completed;
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
    queued_ -= std::erase_if(peer.queue, [&](const Waiting& one) { return belongs(one.message.header); });
    std::erase_if(peer.undelivered, [&](const Message& one) { return belongs(one.header); });
  }
  for (const auto& rail : rails_) {
    for (Sending& one : rail->sending) {
      if (one.peer != nullptr && !one.is_cancelled && belongs(one.message.header)) {
        if (one.reads_arena) {
          ++still_read_[group];  // first: where memory runs out, cancel() is called again
        }
        one.is_cancelled = true;
        one.message.sent = nullptr;
      }
    }
  }
  stream_->cancel(group, operation);
}

void OfiTransport::finish() {
  for (auto& [rank, peer] : peers_) {
    FrameHeader end;
    end.type = FrameType::kFabricEnd;
    end.offset = peer.sent() + peer.queue.size();
    stream_->post(rank, {end, {}, nullptr, nullptr});
  }
  stream_->finish();
  finishing_ = true;
}

// --- Receiving ---

// With a descriptor, a look at the queue costs several system calls, and is due only when something happened.
bool OfiTransport::poll() {
  if (broken_ || (wakes_ && !is_due_)) {
    return false;
  }
  bool worked = false;
  try {
    is_due_ = false;  // first: the events of a rail may set it
    for (const auto& rail : rails_) {
      const Result<bool> completed = rail->port->poll(*rail);
      if (!completed.ok()) {
        fail(completed.status());
        return true;
      }
      worked = *completed || worked;
    }
  } catch (...) {
    is_due_ = true;  // the rails behind were not asked
    throw;
  }
  if (worked) {
    busy_at_ = Clock::now();
    is_due_ = true;
  }
  if (queued_ > 0) {
    pump_all();
  }
  if (losses_ > 0) {
    report_due(Clock::now());
  }
  return worked;
}

bool OfiTransport::fall_asleep() {
  if (broken_ || !wakes_) {
    return true;
  }
  is_due_ = is_due_ || std::ranges::any_of(rails_, [](const auto& rail) {
              return rail->port->has_waiting() || !rail->port->endpoint().may_wait();
            });
  return !is_due_;
}

bool OfiTransport::needs_polling(bool is_work) const {
  const auto sends = [](const auto& rail) { return rail->port->in_flight() > 0; };
  return !broken_ && !wakes_ &&
         (is_work || queued_ > 0 || losses_ > 0 || std::ranges::any_of(rails_, sends) ||
          Clock::now() - busy_at_ < kSettleTime);
}

void OfiTransport::on_received(Rail& rail, std::uint32_t from, const std::optional<FrameHeader>& header,
                               std::span<std::byte> payload, std::size_t buffer) {
  Peer* const peer = find(from);
  if (peer == nullptr || peer->lost || (header && header->type == FrameType::kPing)) {
    rail.port->give_back(buffer, -1);  // a ping: of the ranks' probe, when the job opened
    return;
  }
  ++peer->received;
  if (!header) {
    rail.port->give_back(buffer, -1);
    break_off(*peer, breach());
    return;
  }
  take(rail, *peer, *header, payload, buffer);
}

void OfiTransport::take(Rail& rail, Peer& peer, const FrameHeader& header, std::span<std::byte> payload,
                        std::size_t buffer) {
  std::optional<Landing> landing;
  try {
    landing = events_->place(peer.rank, header);
  } catch (...) {
    rail.port->give_back(buffer, peer.rank);
    throw;  // the loop ends every running call
  }
  if (!landing) {
    rail.port->give_back(buffer, -1);
    break_off(peer, breach());
    return;
  }
  // No copy where the operation has no memory for the payload yet, or the ranks of the host can read the
  // buffer.
  const bool may_stay = landing->owned || (landing->may_stay && rail.port->shared_bytes() > 0);
  FabricPort::Lent lent = may_stay ? rail.port->lend(buffer) : FabricPort::Lent{};
  if (lent.owner) {
    landing = Landing::lent(payload.data(), std::move(lent.owner));
    on_taken(rail, peer.rank, lent.successor);
  } else {
    if (!payload.empty()) {
      std::memcpy(landing->data, payload.data(), payload.size());
    }
    rail.port->give_back(buffer, peer.rank);
  }
  events_->arrived(peer.rank, header, std::move(*landing));
}

// A buffer takes the peer's next frame. The peer hears of it when it has half of its credit left.
void OfiTransport::on_taken(Rail& rail, int from, std::size_t buffer) {
  Peer& peer = peers_.at(from);
  Link& link = peer.links[rail.index];
  if (rail.port->writes()) {
    link.to_report.push_back(static_cast<std::uint32_t>(buffer));
  }
  ++link.taken;
  if (peer.lost || link.taken - link.reported < std::max<std::uint64_t>(1, rail.port->window() / 2)) {
    return;
  }
  auto slots = std::make_shared<const std::vector<std::uint32_t>>(link.to_report);
  FrameHeader credit;
  credit.type = FrameType::kFabricCredit;
  credit.piece = static_cast<std::uint32_t>(rail.index);
  credit.offset = link.taken;
  const auto payload = std::as_bytes(std::span(*slots));
  credit.payload = payload.size();
  stream_->post(from, {credit, payload, std::move(slots), nullptr});
  // Last: where there is no memory for the frame, the next credit names these slots too.
  link.to_report.clear();
  link.reported = link.taken;
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
  if (header.piece >= peer.links.size()) {
    return false;
  }
  Link& link = peer.links[header.piece];
  const bool writes = rails_[header.piece]->port->writes();
  const std::uint64_t frames = header.offset - link.credited;
  if (header.offset < link.credited || header.offset > link.sent ||
      header.payload != (writes ? frames * sizeof(std::uint32_t) : 0)) {
    return false;
  }
  Reader slots({landing.data, header.payload});
  for (std::uint64_t i = 0; writes && i < frames; ++i) {
    const auto slot = slots.get<std::uint32_t>();
    if (slot >= link.remote.target.slots.count) {
      return false;
    }
    link.remote.slots.push_back(slot);
  }
  link.credited = header.offset;
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
  for (Waiting& one : peer.queue) {
    if (one.message.sent) {
      peer.undelivered.push_back(std::move(one.message));
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
