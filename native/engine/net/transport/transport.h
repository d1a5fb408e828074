// The interface between the engine and the network between hosts.
//
// A transport moves messages between ranks of different hosts. It delivers each message once or calls lost(),
// in no order: two messages to one rank may overtake each other, and completions come in any order.
// Implementations: TCP (stream_transport.h), a simulated network, and a fabric for tests that delays,
// reorders and cuts (native/tests/support/fault_transport.h). A fabric with remote memory access needs memory
// registered before use; TCP ignores that.
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
  };

  virtual ~Transport() = default;

  // All on the loop. A message to a lost peer is dropped.
  virtual void start(Events& events) = 0;
  virtual void post(int peer, Message message) = 0;
  // As Stream::cancel(), on every connection.
  virtual void cancel(std::uint64_t group, std::uint64_t operation) = 0;
  // Sends a goodbye on every connection; lost() follows for each peer that does the same.
  virtual void finish() = 0;
  // Called about every 20 ms: heartbeats.
  virtual void tick() {}

  // Memory that messages will use, as long as the transport lives.
  virtual void register_memory(std::span<std::byte> memory) { (void)memory; }
};

}  // namespace smdp
