// Frames over a fabric. A frame is the job's fabric tag (16 bytes), a frame header and the payload. The
// fabric has no handshake of its own, so the tag proves that the sender belongs to the job: without it, a
// frame is dropped. Prefix and payload are two vectors, so a payload in registered memory is not copied. The
// payload of a received frame stays in its buffer until give_back(), or, lent to an operation, until the
// operation, and the ranks of the host that it offers the buffer to, have used it. A frame is sent in one of
// two ways, the same between all ranks:
//
//   messages  the receiver posts its buffers ahead; each takes a frame of any sender
//   writes    each buffer is the slot of one sender at a time. The sender writes the frame into the
//             slot, with the slot's number as the immediate that the receiver reads. No other rank is
//             given the slot before its frame has been taken, so a write that is late, or whose sender
//             has died, does no harm. Where a provider writes only one vector at a time, payload and prefix
//             are two writes, which arrive in any order
//
// Belongs to one thread at a time; only a lent buffer may return from another.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "net/fabric/endpoint.h"
#include "net/frame.h"

namespace smdp {

class FabricPort {
 public:
  using Tag = std::array<std::byte, 16>;
  static constexpr std::size_t kPrefixBytes = sizeof(Tag) + kFrameBytes;
  // What window() and slots().count are at most.
  static constexpr std::size_t kMostWindow = 16;
  static constexpr std::size_t kMostSlots = 288;

  struct Wanted {
    std::string provider;
    std::string source;
    std::string device;             // one of devices(); empty: the first
    std::size_t rails = 1;          // ports of this rank, which share its memory for frames
    std::size_t peers = 1;          // ranks that may send to this one
    std::vector<int> writers;       // these ranks, if frames may be written
    std::size_t payload_bytes = 0;  // the most of one frame
    // For the receive buffers, if it is large enough: a shared mapping that the ranks of this host can read.
    // It outlives the port, and the users of lent buffers.
    std::span<std::byte> shared;
    Tag tag{};
  };

  // Called from poll().
  class Events {
   public:
    virtual ~Events() = default;
    // A message with the job's tag, that claims to come from the rank `from`. No header: it is no frame.
    // `buffer` is the callee's until give_back() or lend().
    virtual void received(std::uint32_t from, const std::optional<FrameHeader>& header,
                          std::span<std::byte> payload, std::size_t buffer) = 0;
    // The memory of the send `ticket` is free again. `why` is not ok when its frame may not have arrived.
    virtual void sent(std::size_t ticket, const Status& why) = 0;
    // A buffer that was given back for the rank `from` takes another frame.
    virtual void reposted(int from, std::size_t buffer) = 0;
  };

  // As FabricEndpoint::devices(), for a port as `wanted`.
  static Result<std::vector<std::string>> devices(const FabricLibrary& library, const Wanted& wanted);
  static Result<std::unique_ptr<FabricPort>> open(const FabricLibrary& library, const Wanted& wanted);
  ~FabricPort();
  FabricPort(const FabricPort&) = delete;
  FabricPort& operator=(const FabricPort&) = delete;

  [[nodiscard]] FabricEndpoint& endpoint() { return *endpoint_; }
  [[nodiscard]] std::size_t payload_bytes() const { return payload_bytes_; }
  // How much of Wanted::shared has receive buffers, from its beginning. 0: the port has memory of its own.
  [[nodiscard]] std::size_t shared_bytes() const {
    return memory_->own.bytes().empty() ? memory_->slab.size() : 0;
  }
  // The frames that one peer may have on their way here.
  [[nodiscard]] std::uint64_t window() const { return window_; }
  // Whether peers write. The slots of the writer number i are those from i * window() on.
  [[nodiscard]] bool writes() const { return writes_; }
  // From now on peers send messages.
  Status use_messages();

  // The memory of a port that peers write to.
  struct Slots {
    std::uint64_t base = 0;
    std::uint64_t key = 0;
    std::uint32_t count = 0;
  };
  [[nodiscard]] const Slots& slots() const { return own_slots_; }
  [[nodiscard]] std::uint64_t slot_bytes() const { return stride_; }
  // Of one of the two writes of a frame. It has bits of the tag, so a write of another job does not count as
  // a part of the next frame in the slot.
  [[nodiscard]] std::uint32_t immediate(std::uint32_t slot, bool is_payload) const;
  // Where a frame goes.
  struct Target {
    std::uint64_t place = 0;  // of the peer in the address table
    Slots slots;              // of the peer
    std::uint32_t slot = 0;   // the one to write to
  };

  // A copy of a payload, in registered memory that is free again when the last owner drops it.
  struct Staged {
    std::shared_ptr<const std::byte> bytes;
    void* descriptor = nullptr;
  };
  // nullopt: no memory is free before a send completes.
  std::optional<Staged> stage(std::span<const std::byte> payload);
  // The ticket of the send; nullopt: try again after poll(). An error: the frame cannot be sent to this peer.
  Result<std::optional<std::size_t>> send(const Target& to, const FrameHeader& header,
                                          std::span<const std::byte> payload, void* descriptor);
  [[nodiscard]] std::size_t in_flight() const { return sends_.size() - free_sends_.size(); }
  [[nodiscard]] std::size_t tickets() const { return sends_.size(); }
  // Whether poll() has something to send.
  [[nodiscard]] bool has_waiting() const { return !waiting_.empty(); }

  void give_back(std::size_t buffer, int from);
  // Leaves the buffer with the owner of the returned object. Another buffer takes the sender's next frame.
  struct Lent {
    std::shared_ptr<const void> owner;  // null: too many are lent already
    std::size_t successor = 0;
  };
  Lent lend(std::size_t buffer);

  // Handles what has completed. True when something had. Not ok: the endpoint has failed.
  Result<bool> poll(Events& events);

  // Before ports are destroyed: waits a moment for their sends, all at once. Drops what arrives.
  static void drain(std::span<FabricPort* const> ports);

 private:
  struct Operation {
    fi::Context context{};  // first: the library returns its address
    bool receives = false;
    std::size_t index = 0;
  };
  struct Send {
    Operation frame;    // or its prefix
    Operation payload;  // where this is a write of its own
    std::size_t in_progress = 0;
    int error = 0;       // positive; of the first part that failed
    Target prefix_to{};  // where this is a write of its own
  };
  // Outlives the port as long as a buffer is lent.
  struct ReceiveMemory {
    std::span<std::byte> slab;
    Mapping own;  // empty: the slab is in Wanted::shared
    std::mutex mutex;
    std::vector<std::size_t> returned;  // guarded by mutex
  };
  // Returns the buffer once the last owner has dropped it.
  struct Loan {
    Loan(std::shared_ptr<ReceiveMemory> of, std::size_t number) : memory(std::move(of)), buffer(number) {}
    ~Loan();
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;

    std::shared_ptr<ReceiveMemory> memory;
    std::size_t buffer;
    bool is_lent = false;
  };
  struct Repost {
    std::size_t buffer = 0;
    int from = -1;  // -1: no peer waits for it
    bool was_lent = false;
  };

  FabricPort(std::unique_ptr<FabricEndpoint> endpoint, const Wanted& wanted, std::uint64_t window);
  Status prepare(std::span<std::byte> shared);
  Status post_all();
  // The whole frame in a receive buffer.
  [[nodiscard]] std::span<std::byte> receive_buffer(std::size_t index) const;
  void wipe(std::size_t buffer);
  bool take_returned();
  long post(std::size_t buffer);
  bool repost(Events& events);
  Status complete(const FabricEndpoint::Completion& completion, Events& events);
  [[nodiscard]] bool writes_in_two() const { return writes_ && endpoint_->write_parts() == 1; }
  Result<std::optional<std::size_t>> begin(std::size_t ticket, long posted);
  long write_prefix(std::size_t ticket);
  void write_prefixes(Events* events);
  void end_part(std::size_t ticket, int error, Events* events);
  bool settle();
  void arrived(std::size_t buffer, std::size_t bytes, Events& events);
  void written(std::uint64_t number, Events& events);

  Tag tag_;
  std::size_t payload_bytes_;
  std::uint64_t window_;
  std::size_t stride_;  // between receive buffers
  std::size_t receives_;
  bool writes_ = false;
  Slots own_slots_;
  std::vector<int> writers_;         // by slot: the rank that may write to it, -1: none
  std::vector<std::uint8_t> parts_;  // by slot: what has been written of a frame, if that takes two writes
  std::vector<std::size_t> spares_;  // slots of no rank, to replace lent ones
  std::size_t lent_ = 0;
  std::size_t most_lent_ = 0;
  std::size_t most_staged_ = 0;
  std::shared_ptr<ReceiveMemory> memory_ = std::make_shared<ReceiveMemory>();
  Mapping send_slab_;  // the prefixes of all sends, then the staged payloads
  void* receive_descriptor_ = nullptr;
  void* send_descriptor_ = nullptr;
  std::vector<Operation> buffers_;
  std::vector<Send> sends_;  // by ticket
  std::vector<std::size_t> free_sends_;
  std::vector<std::size_t> waiting_;  // tickets whose payload is on its way and whose prefix is not
  std::shared_ptr<std::vector<std::size_t>> free_stages_ = std::make_shared<std::vector<std::size_t>>();
  std::vector<Repost> to_post_;
  std::array<FabricEndpoint::Completion, 8> completions_{};
  std::size_t next_ = 0;       // of them to handle
  std::size_t completed_ = 0;  // of them there are
  bool is_drained_ = false;
  std::unique_ptr<FabricEndpoint> endpoint_;  // destroyed first: it uses the memory
};

}  // namespace smdp
