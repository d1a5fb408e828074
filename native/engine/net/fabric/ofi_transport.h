// Transport over TCP and a fabric of libfabric: bulk frames use the fabric, all others one TCP connection to
// each rank, which also shows within a moment when its process or host has died.
//
// Rails. A rank may use several devices of its host, each with an endpoint and a port of its own. A frame
// goes over the rail with the fewest frames on their way to the peer, so a slower rail gets fewer of them. A
// rail reaches the rail of the same number of the other ranks.
//
// Sending. A fabric reads the memory of a frame until the frame is complete, and cannot be stopped. So
// it only gets memory that stays: the rank's shared memory, which a failed group keeps until reads() is
// false, or a registered copy of the caller's memory. A frame waits here while its peer has no credit: each
// rank lets a peer have a few frames on their way to each rail (FabricPort::window), one for each receive
// buffer that it keeps for that peer, and sends credits as it takes them. So many senders cannot exhaust one
// receiver. Where frames are written, a credit names the slots that the peer may write to.
//
// Receiving. A frame is copied into the memory of its operation, or its buffer is lent to the operation. The
// buffers are in the rank's shared memory, so the ranks of the host read the final bytes of a piece in a lent
// buffer.
//
// The end. The frames of a rank may still be on their way when its TCP connection ends. A goodbye therefore
// follows the number of frames (kFabricEnd), and the peer counts as gone once they have arrived. A frame to a
// peer that has left counts as sent, whatever the fabric says of it: the peer has completed its calls, and
// its endpoint may close before it confirms the last frames.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "net/fabric/port.h"
#include "net/loop.h"
#include "net/transport/stream_transport.h"

namespace smdp {

// The open ports of a rank, and the ranks that they reach.
struct FabricConnections {
  // To one rank, over one rail.
  struct Link {
    FabricPort::Target target;
    std::uint64_t window = 0;          // frames that the rank lets this one have on their way to it
    std::vector<std::uint32_t> slots;  // its slots for this rank, if frames are written
  };
  std::vector<std::unique_ptr<FabricPort>> rails;
  std::map<int, std::vector<Link>> peers;  // by rank; each has a link over every rail
};

class OfiTransport final : public Transport, public Loop::Poller {
 public:
  // `stream`: one connection to each rank of `fabric`.
  OfiTransport(Loop& loop, int rank, double heartbeat_s, std::unique_ptr<Transport> stream,
               FabricConnections fabric, LogSink log);
  ~OfiTransport() override;

  void start(Events& events) override;
  void post(int peer, Message message) override;
  void cancel(std::uint64_t group, std::uint64_t operation) override;
  [[nodiscard]] bool reads(std::uint64_t group) const override { return still_read_.contains(group); }
  void finish() override;
  void tick() override;
  void register_memory(std::span<std::byte> memory) override;

  // Loop::Poller
  bool poll() override;
  bool fall_asleep() override;
  void wake_up() override {}
  [[nodiscard]] bool needs_polling(bool is_work) const override;

 private:
  // Frames of the TCP connections.
  class StreamSide final : public Transport::Events {
   public:
    explicit StreamSide(OfiTransport& owner) : owner_(owner) {}
    std::optional<Landing> place(int peer, const FrameHeader& header) override;
    void arrived(int peer, const FrameHeader& header, Landing landing) override;
    void lost(int peer, bool orderly, Status why) override;

   private:
    OfiTransport& owner_;
  };
  struct Loss {
    bool orderly = false;
    Status why;
    TimePoint by{};  // when it is reported although frames may be on their way
  };
  // Between this rank and a peer, over one rail.
  struct Link {
    FabricConnections::Link remote;        // its slots: those that are free
    std::uint64_t sent = 0;                // frames posted
    std::uint64_t credited = 0;            // of them taken by the peer
    std::uint64_t completed = 0;           // of them those whose memory is free again
    std::uint64_t taken = 0;               // of the received frames, those whose buffers were posted again
    std::uint64_t reported = 0;            // of the taken ones
    std::vector<std::uint32_t> to_report;  // the slots of the next frames, if frames are written

    [[nodiscard]] bool has_credit() const { return sent - credited < remote.window; }
    [[nodiscard]] std::uint64_t on_their_way() const { return sent - completed; }
  };
  struct Waiting {
    Message message;
    // Of the payload, by rail, where a rail refused the frame after the copy was made. Empty: no rail did.
    std::vector<FabricPort::Staged> staged;
  };
  struct Peer {
    int rank = 0;
    std::vector<Link> links;  // by rail
    std::size_t next = 0;     // the link that is tried first
    std::deque<Waiting> queue;
    std::uint64_t received = 0;
    std::optional<std::uint64_t> sent_in_all;  // by the peer
    std::optional<Loss> loss;                  // not reported yet
    bool lost = false;
    bool has_left = false;             // lost after a goodbye; all that it sent has arrived
    std::vector<Message> undelivered;  // not sent, or not confirmed by the fabric

    [[nodiscard]] std::uint64_t sent() const;
    [[nodiscard]] bool has_all_arrived() const { return sent_in_all && received >= *sent_in_all; }
  };
  // A frame that the fabric sends.
  struct Sending {
    Peer* peer = nullptr;  // null: none
    Message message;
    std::shared_ptr<const std::byte> copy;
    bool reads_arena = false;
    bool is_cancelled = false;
  };
  // A port, and the frames that it receives.
  struct Rail final : FabricPort::Events {
    Rail(OfiTransport& transport, std::size_t number, std::unique_ptr<FabricPort> opened);
    void received(std::uint32_t from, const std::optional<FrameHeader>& header, std::span<std::byte> payload,
                  std::size_t buffer) override {
      owner.on_received(*this, from, header, payload, buffer);
    }
    void sent(std::size_t ticket, const Status& why) override { owner.on_sent(*this, ticket, why); }
    void reposted(int from, std::size_t buffer) override { owner.on_taken(*this, from, buffer); }

    OfiTransport& owner;
    std::size_t index;
    std::vector<Sending> sending;      // by ticket
    void* arena_descriptor = nullptr;  // of arena_
    int wake_fd;                       // -1: none
    std::unique_ptr<FabricPort> port;  // destroyed before `sending`, whose memory it uses
  };

  [[nodiscard]] Peer* find(std::uint64_t rank);
  void pump(Peer& peer);
  void pump_all();
  // False: to be tried again.
  bool send_next(Peer& peer);
  enum class Outcome : std::uint8_t { kSent, kRefused, kFailed };  // refused: for now, by this rail
  Outcome send_over(Rail& rail, Peer& peer);
  // Null: no memory for a copy is free.
  [[nodiscard]] const FabricPort::Staged* copy_of(const Rail& rail, Waiting& next) const;
  [[nodiscard]] bool is_in_arena(std::span<const std::byte> payload) const;
  void on_sent(Rail& rail, std::size_t ticket, const Status& why);
  void on_received(Rail& rail, std::uint32_t from, const std::optional<FrameHeader>& header,
                   std::span<std::byte> payload, std::size_t buffer);
  bool on_fabric_frame(Peer& peer, const FrameHeader& header, const Landing& landing);
  bool on_credit(Peer& peer, const FrameHeader& header, const Landing& landing);
  void take(Rail& rail, Peer& peer, const FrameHeader& header, std::span<std::byte> payload,
            std::size_t buffer);
  void on_taken(Rail& rail, int from, std::size_t buffer);
  void break_off(Peer& peer, Status why);
  void on_stream_lost(Peer& peer, bool orderly, Status why);
  void report(Peer& peer);
  void report_due(TimePoint now);
  void fail(const Status& why);

  Loop& loop_;
  int rank_;
  double heartbeat_s_;
  std::unique_ptr<Transport> stream_;
  LogSink log_;
  Events* events_ = nullptr;
  StreamSide stream_side_;
  std::map<int, Peer> peers_;
  std::span<const std::byte> arena_;  // registered on every rail; empty: on none
  std::map<std::uint64_t, std::size_t>
      still_read_;          // by group: cancelled frames that are read from the arena
  std::size_t queued_ = 0;  // frames of all peers
  std::size_t losses_ = 0;  // to report
  bool finishing_ = false;
  bool broken_ = false;
  TimePoint busy_at_{};  // when a port last had a completion
  std::vector<std::unique_ptr<Rail>> rails_;
  bool wakes_ = true;   // every port has a descriptor
  bool is_due_ = true;  // a port has something to do, if they have descriptors
};

}  // namespace smdp
