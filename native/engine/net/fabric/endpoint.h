// One reliable-datagram endpoint of libfabric, with its completion queue and its registered memory. Each
// object of the library is closed with this one, the endpoint first, so no memory is in use afterwards.
//
// Belongs to one thread at a time: the library is asked for no locks of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "net/fabric/library.h"

namespace smdp {

class FabricEndpoint {
 public:
  struct Wanted {
    std::string provider;           // as the library names it; empty: any
    std::string source;             // the local address, for providers that have IP addresses; empty: any
    std::string device;             // one of devices(); empty: the first
    std::size_t message_bytes = 0;  // the most bytes of one message
    std::size_t sends = 0;          // in flight at a time
    std::size_t receives = 0;       // posted at a time
    std::size_t peers = 0;
    bool writes = false;  // where the provider has them: can_write()
  };

  // The devices, by their names in libfabric, of the provider that it would use for `wanted`; at least one.
  static Result<std::vector<std::string>> devices(const FabricLibrary& library, const Wanted& wanted);
  static Result<std::unique_ptr<FabricEndpoint>> open(const FabricLibrary& library, const Wanted& wanted);
  ~FabricEndpoint();
  FabricEndpoint(const FabricEndpoint&) = delete;
  FabricEndpoint& operator=(const FabricEndpoint&) = delete;

  // A peer may still send to this endpoint, or may have stopped within a frame to it. Where the provider
  // would end the process, its objects stay open.
  void expect_unfinished_frames() { may_be_unfinished_ = true; }

  [[nodiscard]] std::string provider() const { return info_->fabric_attr->prov_name; }
  // The device, for messages.
  [[nodiscard]] std::string device() const;
  // How often send() and receive() may be in progress: what was wanted, or what the provider has.
  [[nodiscard]] std::size_t sends() const;
  [[nodiscard]] std::size_t receives() const;
  // The vectors of memory that one message may consist of.
  [[nodiscard]] std::size_t parts() const { return info_->tx_attr->iov_limit; }
  // Whether every vector must be in registered memory.
  [[nodiscard]] bool demands_descriptors() const { return (info_->domain_attr->mr_mode & fi::kMrLocal) != 0; }

  // Whether peers can write into this endpoint's memory with an immediate.
  [[nodiscard]] bool can_write() const { return wanted_.writes && (info_->caps & fi::kRma) != 0; }
  // The vectors of memory that one write may consist of.
  [[nodiscard]] std::size_t write_parts() const;

  // What other endpoints of this provider need to send to this one.
  Result<Bytes> address();
  // The handle of a peer with that address.
  Result<std::uint64_t> insert(std::span<const std::byte> address);
  struct Region {
    void* descriptor = nullptr;
    // What a peer needs to write to it.
    std::uint64_t base = 0;
    std::uint64_t key = 0;
  };
  // Memory that stays registered as long as this object lives. `is_written`: by peers.
  Result<Region> register_memory(std::span<std::byte> memory, bool is_written = false);

  // 0, or a negative error; -EAGAIN: try again after read(). `context` comes back from read(), and its memory
  // belongs to the library until then.
  long send(std::uint64_t to, std::span<const iovec> parts, std::span<void*> descriptors,
            fi::Context* context);
  // One write of all parts; the peer reads `immediate` once all bytes have arrived. As send().
  long write(std::uint64_t to, std::span<const iovec> parts, std::span<void*> descriptors,
             const fi::RemotePart& remote, std::uint32_t immediate, fi::Context* context);
  long receive(std::span<std::byte> memory, void* descriptor, fi::Context* context);

  struct Completion {
    fi::Context* context = nullptr;  // null without `immediate`: the endpoint itself has failed
    std::size_t bytes = 0;
    int error = 0;                           // positive
    std::optional<std::uint64_t> immediate;  // a peer has written
  };
  // The immediate of a peer's write that has failed.
  static constexpr std::uint64_t kNoSlot = ~std::uint64_t{0};
  // A descriptor that becomes readable when read() has something to do; -1: the provider has none, so read()
  // is called again and again.
  [[nodiscard]] int wake_fd() const { return wake_fd_; }
  // Before waiting for wake_fd(). False: read() has something to do now.
  [[nodiscard]] bool may_wait();
  // Makes progress, and returns how many operations are complete.
  std::size_t read(std::span<Completion> completions);

  [[nodiscard]] Status error(const std::string& what, long returned) const {
    return library_.error(what, returned);
  }

 private:
  FabricEndpoint(const FabricLibrary& library, const Wanted& wanted) : library_(library), wanted_(wanted) {}
  Status find();
  int ask(fi::Info& hints);
  Status create();
  int open_queue();
  [[nodiscard]] bool emulates_writes();
  [[nodiscard]] bool suits(const fi::Info& info) const;
  [[nodiscard]] std::vector<const fi::Info*> candidates(const fi::Info* first) const;
  Completion read_error();

  FabricLibrary library_;
  Wanted wanted_;
  bool may_be_unfinished_ = false;
  bool has_within_hosts_ = false;     // libfabric offered a provider that suits only processes of one host
  bool has_between_hosts_ = false;    // ... and one that does not
  std::vector<std::string> devices_;  // of the provider
  fi::Info* info_ = nullptr;
  fi::Fabric* fabric_ = nullptr;
  fi::Domain* domain_ = nullptr;
  fi::Cq* queue_ = nullptr;
  int wake_fd_ = -1;  // of queue_
  fi::Av* addresses_ = nullptr;
  fi::Ep* endpoint_ = nullptr;
  std::vector<fi::Mr*> regions_;
};

}  // namespace smdp
