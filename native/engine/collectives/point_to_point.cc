#include "collectives/point_to_point.h"

#include <algorithm>
#include <cstring>

namespace smdp {
namespace {

// The tag of the collectives' messages; the tags of callers are smaller.
constexpr std::uint32_t kCollectiveTag = 1U << 31U;

constexpr std::uint64_t kChunkBytes = 256U << 10U;
// The bytes posted to one rank and not sent: enough to keep the network busy, few enough that small frames of
// other calls are not delayed.
constexpr std::uint64_t kMostPosted = 1U << 20U;
constexpr std::uint64_t kMostUnreceived = 1U << 30U;
// The share of that for the small messages of all ranks under one tag.
constexpr std::uint64_t kSmallShare = 4;
constexpr std::uint64_t kLeastSmall = 1U << 20U;  // bytes for those of one rank

std::uint32_t tag_of(const Exchange& exchange) {
  return exchange.sequence ? kCollectiveTag : exchange.call.tag;
}

void copy(std::span<const std::byte> from, std::byte* to) {
  if (!from.empty()) {
    std::memcpy(to, from.data(), from.size());
  }
}

}  // namespace

FrameHeader PointToPoint::header_of(const Exchange& exchange, const Key& key, std::uint64_t bytes) const {
  FrameHeader header;
  header.type = FrameType::kSend;
  header.call.collective = exchange.call.what.collective;
  header.call.count = bytes;
  header.call.root = std::get<1>(key);
  header.piece = std::get<2>(key);
  header.operation = exchange.number;
  header.bytes = bytes;
  return header;
}

void PointToPoint::begin(Exchange begun) {
  const std::uint64_t number = begun.number;
  begun.parts_left =
      begun.call.parts.size() + 1;  // and one more, so that no part completes the call in the loop below
  begun.parts.resize(begun.call.parts.size());
  Exchange& exchange = exchanges_.emplace(number, std::move(begun)).first->second;
  for (std::size_t part = 0; part < exchange.parts.size(); ++part) {
    exchange.call.parts[part].receive ? receive(exchange, part) : send(exchange, part);
    if (!exchanges_.contains(number)) {
      return;  // the two ends of a message differ
    }
  }
  one_done(exchanges_.find(number));
  pump();
}

void PointToPoint::part_done(std::uint64_t number, std::size_t part) {
  const auto found = exchanges_.find(number);
  if (found != exchanges_.end()) {
    found->second.parts[part].at = PartState::At::kDone;
    one_done(found);
  }
}

void PointToPoint::one_done(std::map<std::uint64_t, Exchange>::iterator exchange) {
  if (--exchange->second.parts_left == 0) {
    const std::uint64_t number = exchange->first;
    host_.exchanged(exchange->second);  // first: if this throws, the call is still open
    exchanges_.erase(number);
  }
}

// --- Sending ---

void PointToPoint::send(Exchange& exchange, std::size_t place) {
  const Part& part = exchange.call.parts[place];
  const std::uint32_t tag = tag_of(exchange);
  Sent& sent = sent_[{part.peer, tag}];
  const std::uint32_t sequence = exchange.sequence ? *exchange.sequence : sent.next++;
  const Key key{part.peer, tag, sequence};
  Outgoing& message = outgoing_[key];
  exchange.parts[place] = {PartState::At::kSending, part.peer, sequence};
  message.exchange = exchange.number;
  message.part = place;
  message.memory = part.memory;
  message.before = sent.bytes;
  message.left = part.memory.size();
  FrameHeader header = header_of(exchange, key, part.memory.size());
  const std::uint64_t room =
      std::max(kLeastSmall, kMostUnreceived / kSmallShare / static_cast<std::uint64_t>(size_));
  const bool has_room = part.memory.empty() || sent.bytes - sent.received < room;
  if (part.memory.size() <= kEagerBytes && has_room && send_eagerly(key, message, header)) {
    sent.bytes += part.memory.size() + sizeof(Arrival) + kEntry;
    return;
  }
  header.type = FrameType::kAnnounce;
  host_.post(part.peer, {header, {}, nullptr, nullptr});
}

// False: there is no memory for it now.
bool PointToPoint::send_eagerly(const Key& key, Outgoing& message, const FrameHeader& header) {
  if (message.memory.empty()) {
    const std::uint64_t exchange = message.exchange;
    const std::size_t part = message.part;
    outgoing_.erase(key);
    FrameHeader announcement = header;
    announcement.type = FrameType::kAnnounce;
    host_.post(std::get<0>(key), {announcement, {}, nullptr, nullptr});
    part_done(exchange, part);
    return true;
  }
  return post_next(key, message);
}

// Posts the next bytes of a message; false: there is no room for them now. Otherwise the message may be
// complete when this returns.
bool PointToPoint::post_next(const Key& key, Outgoing& message) {
  const std::uint64_t bytes = std::min(kChunkBytes, message.memory.size() - message.next);
  FrameHeader header = header_of(exchanges_.at(message.exchange), key, message.memory.size());
  const auto payload = message.memory.subspan(message.next, bytes);
  header.offset = message.next;
  header.bytes = bytes;
  const int peer = std::get<0>(key);
  const bool local = host_.shares_host(peer);
  if (local) {
    const auto region = host_.regions().take(bytes);
    if (!region) {
      return false;
    }
    header.type = FrameType::kOffer;
    header.offset = *region;
    copy(payload, host_.regions().at(*region, bytes).data());
  }
  message.ready = true;
  message.next += bytes;
  posted_[peer] += bytes;
  if (local) {
    host_.post(peer, {header, {}, nullptr, nullptr});
  } else {
    // Dropped by cancel() before this object is destroyed.
    host_.post(peer, {header, payload, nullptr, [this, key, bytes] { on_sent(key, bytes); }});
  }
  return true;
}

bool PointToPoint::on_sent(const Key& key, std::uint64_t bytes) {
  const auto found = outgoing_.find(key);
  if (found == outgoing_.end()) {
    return true;
  }
  Outgoing& message = found->second;
  if (message.memory.size() - message.left + bytes > message.next) {
    return false;
  }
  posted_[std::get<0>(key)] -= bytes;
  message.left -= bytes;
  if (message.left == 0) {
    const std::uint64_t exchange = message.exchange;
    const std::size_t part = message.part;
    outgoing_.erase(found);
    part_done(exchange, part);
  }
  pump();
  return true;
}

// Serves the receivers in turn, so that one that does not read delays no other. Messages without room are
// retried when something is sent, and on the next tick.
void PointToPoint::pump() {
  if (std::exchange(pumping_, true)) {
    return;  // called from inside the loop below, which continues
  }
  for (bool posted = true; std::exchange(posted, false);) {
    for (auto next = flowing_.begin(); next != flowing_.end();) {
      const int peer = next->first;
      posted = post_first(peer, next->second) || posted;
      next = flowing_.upper_bound(peer);
    }
  }
  pumping_ = false;
}

// The messages to one rank take turns.
bool PointToPoint::post_first(int peer, std::deque<Key>& flowing) {
  const Key key = flowing.front();
  Outgoing& message = outgoing_.at(key);
  const bool last = message.memory.size() - message.next <= kChunkBytes;
  if (posted_[peer] >= kMostPosted || !post_next(key, message)) {
    return false;
  }
  flowing.pop_front();
  if (!last) {
    flowing.push_back(key);
  } else if (flowing.empty()) {
    flowing_.erase(peer);
  }
  return true;
}

// --- Receiving ---

std::uint32_t PointToPoint::next_in(int from, std::uint32_t tag) const {
  const auto found = next_in_.find({from, tag});
  return found == next_in_.end() ? 0 : found->second;
}

PointToPoint::Slot PointToPoint::slot_of(const Receive& receive) {
  return {receive.from, receive.tag, receive.sequence.value_or(0)};
}

std::optional<PointToPoint::Receive> PointToPoint::take_receive(const Key& key) {
  const auto [from, tag, sequence] = key;
  const bool of_collective = tag == kCollectiveTag;
  if (!of_collective && sequence != next_in(from, tag)) {
    return std::nullopt;
  }
  auto slot = receives_.find({from, tag, of_collective ? sequence : 0});
  const auto any = of_collective ? receives_.end() : receives_.find({Part::kAnyRank, tag, 0});
  if (slot == receives_.end() ||
      (any != receives_.end() && any->second.front().order < slot->second.front().order)) {
    slot = any;
  }
  if (slot == receives_.end()) {
    return std::nullopt;
  }
  const Receive first = slot->second.front();
  slot->second.pop_front();
  if (slot->second.empty()) {
    receives_.erase(slot);
  }
  return first;
}

// The matching message that arrived first.
std::optional<PointToPoint::Key> PointToPoint::find_arrival(const Receive& receive) const {
  std::optional<Key> first;
  const bool any = receive.from == Part::kAnyRank;
  for (int from = any ? 0 : receive.from; from < (any ? size_ : receive.from + 1); ++from) {
    const Key key{from, receive.tag, receive.sequence.value_or(next_in(from, receive.tag))};
    const auto found = arrivals_.find(key);
    if (found != arrivals_.end() && (!first || found->second.order < arrivals_.at(*first).order)) {
      first = key;
    }
  }
  return first;
}

void PointToPoint::receive(Exchange& exchange, std::size_t place) {
  const Part& part = exchange.call.parts[place];
  Receive wanted;
  wanted.exchange = exchange.number;
  wanted.part = place;
  wanted.memory = part.memory;
  wanted.from = part.peer;
  wanted.tag = tag_of(exchange);
  wanted.sequence = exchange.sequence;
  wanted.order = received_++;
  wanted.source = part.source;
  exchange.parts[place] = {PartState::At::kWanted, part.peer, wanted.sequence.value_or(0)};
  if (const auto key = find_arrival(wanted)) {
    accept(wanted, *key);
  } else {
    receives_[slot_of(wanted)].push_back(wanted);
  }
}

// Stores a message or its announcement, and gives it, and later messages that waited for it, to matching
// receives.
bool PointToPoint::store(const Key& key, Arrival arrival) {
  arrival.order = arrived_++;
  unreceived_bytes_ += arrival.bytes();
  if (!arrivals_.emplace(key, std::move(arrival)).second) {
    return false;
  }
  const auto [from, tag, sequence] = key;
  for (Key next = key; arrivals_.contains(next); std::get<2>(next) = next_in(from, tag)) {
    const auto wanted = take_receive(next);
    if (!wanted || !accept(*wanted, next) || wanted->sequence) {
      break;
    }
  }
  if (unreceived_bytes_ > kMostUnreceived) {
    host_.overrun(from);
  }
  return true;
}

bool PointToPoint::accept(const Receive& wanted, const Key& key) {
  const auto [from, tag, sequence] = key;
  Arrival message = std::move(arrivals_.extract(key).mapped());
  unreceived_bytes_ -= message.bytes();
  if (!wanted.sequence) {
    next_in_[{from, tag}] = sequence + 1;
  }
  Exchange& exchange = exchanges_.at(wanted.exchange);
  const Collective theirs = message.header.call.collective;
  const std::uint64_t bytes = message.header.call.count;
  if (wanted.sequence && theirs != exchange.call.what.collective) {
    host_.disagree(exchange, from, "called " + std::string(name_of(theirs)));
    return false;
  }
  if (bytes != wanted.memory.size()) {
    host_.disagree(exchange, from,
                   "sends " + std::to_string(bytes) + " bytes where " + std::to_string(wanted.memory.size()) +
                       " are to be received");
    return false;
  }
  if (wanted.source != nullptr) {
    *wanted.source = from;
  }
  if (message.landing.data != nullptr || bytes == 0) {
    copy({message.landing.data, bytes}, wanted.memory.data());
    part_done(wanted.exchange, wanted.part);
    return true;
  }
  exchange.parts[wanted.part] = {PartState::At::kArriving, from, sequence};
  Incoming& incoming = incoming_[key];
  incoming.exchange = wanted.exchange;
  incoming.part = wanted.part;
  incoming.memory = wanted.memory;
  incoming.left = bytes;
  incoming.begun.assign((bytes + kChunkBytes - 1) / kChunkBytes, false);
  incoming.operation = message.header.operation;
  FrameHeader ready = header_of(exchange, key, bytes);
  ready.type = FrameType::kReady;
  host_.post(from, {ready, {}, nullptr, nullptr});
  return true;
}

std::optional<Landing> PointToPoint::place(int from, const FrameHeader& header) {
  const auto found = incoming_.find({from, header.call.root, header.piece});
  if (found == incoming_.end()) {
    return header.payload <= kEagerBytes ? std::optional(Landing::fresh(header.payload)) : std::nullopt;
  }
  Incoming& message = found->second;
  const std::uint64_t size = message.memory.size();
  const std::uint64_t chunk = header.offset / kChunkBytes;
  const bool fits = header.type == FrameType::kSend && header.offset % kChunkBytes == 0 &&
                    header.offset < size && header.payload == std::min(kChunkBytes, size - header.offset);
  if (!fits || message.begun[chunk]) {
    return std::nullopt;  // each chunk arrives once
  }
  message.begun[chunk] = true;
  return Landing::into(message.memory.data() + header.offset);
}

bool PointToPoint::arrived(int from, const FrameHeader& header, Landing landing) {
  const Key key{from, header.call.root, header.piece};
  switch (header.type) {
    case FrameType::kAnnounce:
      return !incoming_.contains(key) && store(key, {header, {}, 0});
    case FrameType::kSend:
      return take_network(key, header, std::move(landing));
    case FrameType::kOffer:
      return take_local(key, header);
    case FrameType::kTaken:
      return host_.shares_host(from) && on_sent(key, header.bytes);
    case FrameType::kReady: {
      const auto found = outgoing_.find(key);
      if (found == outgoing_.end() || found->second.ready) {
        return false;
      }
      found->second.ready = true;
      // It receives the messages of a tag in their order, so the earlier ones have left its memory.
      Sent& sent = sent_[{from, header.call.root}];
      sent.received = std::max(sent.received, found->second.before);
      flowing_[from].push_back(key);
      pump();
      return true;
    }
    default:
      return false;
  }
}

bool PointToPoint::take_network(const Key& key, const FrameHeader& header, Landing landing) {
  const auto found = incoming_.find(key);
  if (found == incoming_.end()) {
    const bool whole = header.payload == header.call.count && header.payload <= kEagerBytes;
    return whole && landing.data != nullptr && store(key, {header, std::move(landing), 0});
  }
  return !landing.owned && put(key, found->second, header.payload);
}

bool PointToPoint::take_local(const Key& key, const FrameHeader& header) {
  const int from = std::get<0>(key);
  const auto memory = host_.peek(from, header.offset, header.bytes);
  if (memory.data() == nullptr || !host_.shares_host(from)) {
    return false;
  }
  FrameHeader reply = header;
  reply.type = FrameType::kTaken;
  const auto found = incoming_.find(key);
  if (found == incoming_.end()) {
    if (header.bytes != header.call.count || header.bytes > kEagerBytes) {
      return false;
    }
    Landing landing = Landing::fresh(memory.size());
    copy(memory, landing.data);
    host_.post(from, {reply, {}, nullptr, nullptr});
    return store(key, {header, std::move(landing), 0});
  }
  Incoming& message = found->second;
  if (memory.size() > message.memory.size() - message.next) {
    return false;
  }
  copy(memory, message.memory.data() + message.next);
  message.next += memory.size();
  host_.post(from, {reply, {}, nullptr, nullptr});
  return put(key, message, memory.size());
}

// `bytes` more bytes are in place.
bool PointToPoint::put(const Key& key, Incoming& message, std::uint64_t bytes) {
  if (bytes > message.left) {
    return false;
  }
  message.left -= bytes;
  if (message.left == 0) {
    const std::uint64_t exchange = message.exchange;
    const std::size_t part = message.part;
    incoming_.erase(key);
    part_done(exchange, part);
  }
  return true;
}

// --- Its end, and what it waits for ---

void PointToPoint::clear() {
  exchanges_.clear();
  outgoing_.clear();
  flowing_.clear();
  receives_.clear();
  incoming_.clear();
  arrivals_.clear();
  unreceived_bytes_ = 0;
  posted_.clear();
}

std::vector<std::uint64_t> PointToPoint::in_transit() const {
  std::vector<std::uint64_t> numbers;
  numbers.reserve(exchanges_.size() + incoming_.size());
  for (const auto& [number, exchange] : exchanges_) {
    numbers.push_back(number);
  }
  for (const auto& [key, message] : incoming_) {
    numbers.push_back(message.operation);
  }
  return numbers;
}

void PointToPoint::add_senders(const PartState& wanted, std::vector<int>& ranks) const {
  for (int from = 0; from < size_; ++from) {
    if (from == wanted.peer || (wanted.peer == Part::kAnyRank && from != rank_)) {
      ranks.push_back(from);
    }
  }
}

std::vector<int> PointToPoint::unanswered_by(const Exchange& exchange,
                                             const std::function<bool(int)>& has_closed) const {
  std::vector<int> ranks;
  for (const PartState& part : exchange.parts) {
    if (part.at == PartState::At::kWanted) {
      add_senders(part, ranks);
    }
  }
  for (const PartState& part : exchange.parts) {
    // Within a host the receiver copies the message, ready or not. A transport delivers without the
    // receiver's call, but not to a closed engine.
    if (part.at == PartState::At::kSending &&
        (!outgoing_.at({part.peer, tag_of(exchange), part.sequence}).ready || host_.shares_host(part.peer) ||
         has_closed(part.peer))) {
      ranks.push_back(part.peer);
    }
  }
  return ranks;
}

Operation::Wait PointToPoint::waiting_for(const Exchange& exchange) const {
  std::vector<int> senders;
  std::vector<int> receivers;
  for (const PartState& part : exchange.parts) {
    if (part.at == PartState::At::kWanted) {
      add_senders(part, senders);
    }
  }
  for (const PartState& part : exchange.parts) {
    if (part.at == PartState::At::kArriving) {
      senders.push_back(part.peer);
    } else if (part.at == PartState::At::kSending) {
      receivers.push_back(part.peer);
    }
  }
  if (!senders.empty()) {
    return {"waiting for a message", senders};
  }
  return {receivers.empty() ? "ending" : "waiting for the receiver", receivers};
}

}  // namespace smdp
