// The interface between the engine and the network between hosts.
//
// A transport moves messages between ranks of different hosts. It delivers each message once or calls lost(),
// in no order: two messages to one rank may overtake each other, and completions come in any order.
// Implementations: TCP (stream_transport.h), TCP beside a fabric (net/fabric/ofi_transport.h), a simulated
// network, and a fabric for tests that delays, reorders and cuts (native/tests/support/fault_transport.h). A
// fabric sends from registered memory; TCP ignores that.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "net/transport/stream.h"

namespace smdp {

class Transport {
 public:
  // Called on the loop.
  class Events {
   public:
    virtual ~Events() = default;
    // Where the payload of a message from `peer` goes; nullopt when the message breaks the protocol (the peer
    // is then lost).
    virtual std::optional<Landing> place(int peer, const FrameHeader& header) = 0;
    virtual void arrived(int peer, const FrameHeader& header, Landing landing) = 0;
    // `orderly`: the peer said goodbye first. Called once per peer.
    virtual void lost(int peer, bool orderly, Status why) = 0;
    // Nothing more is read for a group of which reads() was true.
    virtual void released(std::uint64_t group) { (void)group; }
  };

  virtual ~Transport() = default;

  // All on the loop. A message to a lost peer is dropped.
  virtual void start(Events& events) = 0;
  virtual void post(int peer, Message message) = 0;
  // As Stream::cancel(), on every connection. Registered memory may still be read: reads().
  virtual void cancel(std::uint64_t group, std::uint64_t operation) = 0;
  // Whether a frame of a cancelled operation of the group is still read from registered memory.
  [[nodiscard]] virtual bool reads(std::uint64_t group) const {
    (void)group;
    return false;
  }
  // Sends a goodbye on every connection; lost() follows for each peer that does the same.
  virtual void finish() = 0;
  // Called about every 20 ms: heartbeats.
  virtual void tick() {}

  // Shared memory from which messages will be sent, as long as the transport lives.
  virtual void register_memory(std::span<std::byte> memory) { (void)memory; }
};

}  // namespace smdp
