// The seam between the engine and the network between hosts.
//
// A transport moves messages between ranks of different hosts. It promises delivery once or a lost() call,
// and no order: two messages to one rank may overtake each other, and completions come in any order. TCP
// stands behind it now (stream_transport.h), a fabric that delays, reorders and cuts for tests
// (fault_transport.h), libfabric later; for the latter memory is registered before it is sent from or
// received into, which TCP ignores.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "net/stream.h"

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
  // Says goodbye on every connection; lost() follows for each peer that does the same.
  virtual void finish() = 0;
  // Called about every 20 ms: heartbeats.
  virtual void tick() {}

  // Memory that messages will use, until release_memory(). A hint with TCP.
  virtual void register_memory(std::span<std::byte> memory) { (void)memory; }
  virtual void release_memory(std::span<std::byte> memory) { (void)memory; }
};

}  // namespace smdp
