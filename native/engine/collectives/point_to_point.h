// Point-to-point messages of a group: send and recv, and the collectives that are made of them.
//
// A call has parts; each is one message to or from one rank. Messages of one sender under one tag are
// received in the order in which they were sent. The messages of a collective are identified by the number of
// the call instead, which is the same on every rank.
//
// A message of at most kEagerBytes is sent at once and waits at its receiver. A larger one is announced
// first; the receiver answers with kReady when one of its own parts matches, and the bytes are written where
// they belong: between hosts as kSend, in any order; within a host through regions of the sender's arena
// (kOffer, kTaken), in order. A small one is announced too where many of its tag may still wait at the
// receiver: a kReady says that those before it do not.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "collectives/call.h"
#include "collectives/operation.h"
#include "net/transport/transport.h"
#include "shm/region_table.h"

namespace smdp {

// Where a part of a call is.
struct PartState {
  enum class At : std::uint8_t { kSending, kWanted, kArriving, kDone };

  At at = At::kDone;
  int peer = 0;  // of a receive from any rank: the sender, once its message is known
  std::uint32_t sequence = 0;
};

// A call under way.
struct Exchange {
  std::uint64_t number = 0;
  Call call;
  std::optional<std::uint32_t> sequence;  // of a collective: instead of the order of messages
  TimePoint deadline{};
  TimePoint warn_at{};
  std::optional<TimePoint> reported_at;  // when this rank reported that the deadline passed
  OperationTrace trace;
  std::vector<PartState> parts;  // in the order of call.parts
  std::size_t parts_left = 0;
};

class PointToPoint {
 public:
  // What it needs from its group; all on the loop.
  class Host {
   public:
    virtual ~Host() = default;
    virtual void post(int group_rank, Message message) = 0;
    [[nodiscard]] virtual bool shares_host(int group_rank) const = 0;
    virtual RegionTable& regions() = 0;
    virtual std::span<const std::byte> peek(int group_rank, std::uint64_t offset, std::uint64_t bytes) = 0;
    // The two ends of a message differ. Calls clear() before it returns, as overrun() does.
    virtual void disagree(const Exchange& exchange, int with, const std::string& how) = 0;
    // The messages of that rank that this rank does not receive leave no room for more.
    virtual void overrun(int by) = 0;
    // The last part is complete.
    virtual void exchanged(const Exchange& exchange) = 0;
  };

  static constexpr std::uint64_t kEagerBytes = 16U << 10U;

  // This rank within the group, and the group's size.
  PointToPoint(Host& host, int rank, int size) : host_(host), rank_(rank), size_(size) {}

  void begin(Exchange exchange);
  // Frames of calls made of messages. nullopt and false: the frame breaks the protocol.
  std::optional<Landing> place(int from, const FrameHeader& header);
  bool arrived(int from, const FrameHeader& header, Landing landing);
  // Sends what there is room for.
  void pump();
  // Drops all calls and messages.
  void clear();

  // The calls that are not complete.
  [[nodiscard]] const std::map<std::uint64_t, Exchange>& exchanges() const { return exchanges_; }
  std::map<std::uint64_t, Exchange>& exchanges() { return exchanges_; }
  [[nodiscard]] Operation::Wait waiting_for(const Exchange& exchange) const;
  // The ranks that have not made the matching call, as far as this rank knows.
  [[nodiscard]] std::vector<int> unanswered_by(const Exchange& exchange,
                                               const std::function<bool(int)>& has_closed) const;
  // Of messages that arrived and that no call receives yet.
  [[nodiscard]] std::uint64_t unreceived_bytes() const { return unreceived_bytes_; }
  // Call numbers under which transports may still use memory.
  [[nodiscard]] std::vector<std::uint64_t> in_transit() const;

 private:
  using Key = std::tuple<int, std::uint32_t, std::uint32_t>;  // the other rank, tag, number of the message

  struct PartOf {
    std::uint64_t exchange = 0;
    std::size_t part = 0;  // its place in the exchange
    std::span<std::byte> memory;
  };
  struct Outgoing : PartOf {
    std::uint64_t next = 0;    // bytes posted
    std::uint64_t left = 0;    // bytes that are not sent
    bool ready = false;        // its receiver is
    std::uint64_t before = 0;  // Sent::bytes when it was announced
  };
  // To one rank under one tag.
  struct Sent {
    std::uint32_t next = 0;      // number of the next message
    std::uint64_t bytes = 0;     // that small messages take at the receiver until it receives them
    std::uint64_t received = 0;  // of these, those that it has received for sure
  };
  struct Receive : PartOf {
    int from = 0;  // or kAnyRank
    std::uint32_t tag = 0;
    std::optional<std::uint32_t> sequence;
    std::uint64_t order = 0;  // of the calls
    int* source = nullptr;
  };
  // The receives that a message may match: its sender or kAnyRank, tag, and number of a collective's message.
  using Slot = std::tuple<int, std::uint32_t, std::uint32_t>;
  struct Incoming : PartOf {
    std::uint64_t next = 0;       // bytes in place, within a host
    std::vector<bool> begun;      // by chunk, between hosts
    std::uint64_t left = 0;       // bytes to come
    std::uint64_t operation = 0;  // of the sender
  };
  static constexpr std::uint64_t kEntry = 64;  // bytes of the map, and of the heap
  struct Arrival {
    FrameHeader header;
    Landing landing;          // of an eager one
    std::uint64_t order = 0;  // of arrival

    // The memory it takes until it is received.
    [[nodiscard]] std::uint64_t bytes() const {
      return sizeof(*this) + kEntry + (landing.data != nullptr ? header.call.count : 0);
    }
  };

  void send(Exchange& exchange, std::size_t part);
  bool send_eagerly(const Key& to, Outgoing& message, const FrameHeader& header);
  bool post_next(const Key& to, Outgoing& message);
  // False: fewer bytes were posted.
  bool on_sent(const Key& to, std::uint64_t bytes);
  // False: there is no room for more bytes to this rank now.
  bool post_first(int peer, std::deque<Key>& flowing);
  void receive(Exchange& exchange, std::size_t part);
  void add_senders(const PartState& wanted, std::vector<int>& ranks) const;
  [[nodiscard]] std::optional<Key> find_arrival(const Receive& receive) const;
  static Slot slot_of(const Receive& receive);
  // The first receive that takes the message.
  std::optional<Receive> take_receive(const Key& key);
  bool store(const Key& key, Arrival arrival);
  // False: the two ends differ, and clear() was called.
  bool accept(const Receive& receive, const Key& key);
  bool take_network(const Key& key, const FrameHeader& header, Landing landing);
  bool take_local(const Key& key, const FrameHeader& header);
  bool put(const Key& key, Incoming& message, std::uint64_t bytes);
  void part_done(std::uint64_t exchange, std::size_t part);
  void one_done(std::map<std::uint64_t, Exchange>::iterator exchange);
  [[nodiscard]] std::uint32_t next_in(int from, std::uint32_t tag) const;
  FrameHeader header_of(const Exchange& exchange, const Key& key, std::uint64_t bytes) const;

  Host& host_;
  int rank_;
  int size_;
  std::map<std::uint64_t, Exchange> exchanges_;
  std::map<std::pair<int, std::uint32_t>, Sent> sent_;  // by rank and tag
  std::map<std::pair<int, std::uint32_t>, std::uint32_t> next_in_;
  std::map<Key, Outgoing> outgoing_;
  std::map<int, std::deque<Key>> flowing_;  // of them, those with bytes to post, by rank
  std::map<Slot, std::deque<Receive>> receives_;
  std::uint64_t received_ = 0;  // calls of receive()
  std::map<Key, Incoming> incoming_;
  std::map<Key, Arrival> arrivals_;
  std::uint64_t arrived_ = 0;
  std::uint64_t unreceived_bytes_ = 0;
  std::map<int, std::uint64_t> posted_;  // by rank: bytes posted that are not sent
  bool pumping_ = false;
};

}  // namespace smdp
