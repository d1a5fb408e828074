// Decides that a rank, its host or the link to it is lost, for the transport over stream sockets.
//
// - No kernel answers: over TCP the small connection carries a ping when nothing arrives for a quarter of
//   SMDP_HEARTBEAT_S, and TCP_INFO gives the time at which the peer's kernel last acknowledged anything on
//   it, and on each other connection that has unacknowledged bytes. So a paused process counts as alive,
//   because its kernel answers, and the deadline of the operation applies; a lost host or link does not.
// - A process is gone: a connection ends without a goodbye.
#pragma once

#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "base/status.h"

namespace smdp {

// When the connections are looked at.
class Heartbeat {
 public:
  explicit Heartbeat(double period_s) : period_s_(period_s) {}

  // Whether a look is due; at one that is, whether silence counts.
  enum class Look : std::uint8_t { kNotDue, kNotAttentive, kAttentive };
  Look next(TimePoint now);

  [[nodiscard]] Clock::duration period() const { return seconds(period_s_); }
  [[nodiscard]] Clock::duration quarter() const { return seconds(period_s_ / 4); }

 private:
  double period_s_;
  TimePoint next_look_ = Clock::now();
};

// Whether the peer's kernel answers on one connection.
class LinkLiveness {
 public:
  struct Verdict {
    std::optional<Status> silent;  // the peer is lost, and why
    bool needs_ping = false;
  };
  // `is_small`: the connection for small frames, which carries the pings.
  Verdict look(int fd, bool is_small, TimePoint now, bool attentive, const Heartbeat& heartbeat);

 private:
  TimePoint heard_ =
      Clock::now();  // at the last look; for bulk data also when nothing was left to acknowledge
};

// Whether a peer is lost. A call that decides it returns the loss, once.
class PeerLiveness {
 public:
  struct Loss {
    bool orderly = false;  // the peer said goodbye on each connection
    Status why;
  };

  [[nodiscard]] bool lost() const { return lost_; }

  // A peer is gone with its last connection, and lost soon after the first one that ends without a goodbye:
  // frames on its other connections, which may report a failure, are read first.
  std::optional<Loss> connection_ended(bool orderly, bool is_last, Status why);
  std::optional<Loss> look(TimePoint now);
  std::optional<Loss> silent(Status why);

 private:
  std::optional<Loss> lose(bool orderly, Status why);

  bool lost_ = false;
  std::optional<Status> torn_;  // why a connection ended without a goodbye
  TimePoint lost_at_{};         // when the peer then counts as lost
};

}  // namespace smdp
