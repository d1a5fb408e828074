// Frames over one connected stream socket (TCP between hosts, Unix within a host), on the loop.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <span>

#include "base/fd.h"
#include "base/status.h"
#include "net/frame.h"
#include "net/loop.h"

namespace smdp {

// Where an arriving payload is written: the memory of an operation, or a buffer of its own when no operation
// takes it yet.
struct Landing {
  // Frees a buffer, or returns it to the transport that lent it.
  struct Release {
    std::shared_ptr<const void> lender;
    void operator()(std::byte* buffer) const {
      if (lender == nullptr) {
        std::default_delete<std::byte[]>()(buffer);  // NOLINT(modernize-avoid-c-arrays)
      }
    }
  };
  using Owned = std::unique_ptr<std::byte[], Release>;  // NOLINT(modernize-avoid-c-arrays)

  std::byte* data = nullptr;
  Owned owned;
  // Set by place(): where the ranks of this host can read the memory in which the transport has received the
  // payload, it may stay there. The landing is then a lent() one.
  bool may_stay = false;

  static Landing into(std::byte* memory) { return {memory, nullptr}; }
  static Landing fresh(std::size_t bytes) {
    Landing landing;
    landing.owned =
        Owned(std::make_unique_for_overwrite<std::byte[]>(bytes == 0 ? 1 : bytes).release());  // NOLINT
    landing.data = landing.owned.get();
    return landing;
  }
  static Landing lent(std::byte* buffer, std::shared_ptr<const void> lender) {
    return {buffer, Owned(buffer, Release{std::move(lender)})};
  }
};

struct Message {
  FrameHeader header;
  std::span<const std::byte> payload;
  std::shared_ptr<const void> keep;  // owner of the payload, if it is not the operation's own memory
  // The kernel has all of it; the payload may change. Not called after cancel(). Only with a payload.
  std::function<void()> sent;
};

class Stream {
 public:
  // Called on the loop; lost() never from inside post(). After lost() nothing else is called. Streams live
  // until the loop ends.
  class Events {
   public:
    virtual ~Events() = default;
    // nullopt: the frame breaks the protocol, and the stream is closed.
    virtual std::optional<Landing> place(const FrameHeader& header) = 0;
    virtual void arrived(const FrameHeader& header, Landing landing) = 0;
    virtual void lost(Status why) = 0;
  };

  Stream(Loop& loop, UniqueFd fd, Events& events);
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream();

  void start();
  void post(Message message);
  // Stops using the memory of this operation: drops frames that have not begun, finishes a frame that is
  // partly sent from a copy, and finishes one that is partly received into a buffer of its own.
  void cancel(std::uint64_t group, std::uint64_t operation);
  // Closes the sending side once everything is sent.
  void finish();
  [[nodiscard]] bool idle() const { return out_.empty(); }
  [[nodiscard]] std::uint64_t queued_bytes() const { return queued_bytes_; }
  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  struct Out {
    std::array<std::byte, kFrameBytes> header;
    Message message;
    std::size_t sent = 0;  // of header and payload together
  };

  void ready(std::uint32_t events);
  void write_some();
  bool read_some();
  void wait_for_much();
  // Takes frames from `data`; false: a frame broke the protocol.
  bool consume(std::span<const std::byte> data);
  bool begin_payload();
  void end_payload();
  void fail(Status why);
  void stop_sending(Status why);
  void want_writable(bool wanted);

  Loop& loop_;
  UniqueFd fd_;
  Events& events_;
  std::deque<Out> out_;
  std::uint64_t queued_bytes_ = 0;
  bool writable_wanted_ = false;
  bool finishing_ = false;
  bool failed_ = false;
  bool send_failed_ = false;  // frames that arrived before are still read

  std::array<std::byte, kFrameBytes> head_{};
  std::size_t head_bytes_ = 0;
  FrameHeader current_;
  Landing landing_;
  std::size_t landed_ = 0;
  bool in_payload_ = false;
  int low_water_ = 1;  // bytes, SO_RCVLOWAT
};

}  // namespace smdp
