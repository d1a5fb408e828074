#include "net/transport/liveness.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

namespace smdp {
namespace {

constexpr std::chrono::milliseconds kDrainTime{100};  // for frames on the other connections to arrive

}  // namespace

// A process that was itself paused has sent nothing that a peer could acknowledge: it skips this check and
// restarts the count. The same holds at the start, when a link may have been idle for long.
Heartbeat::Look Heartbeat::next(TimePoint now) {
  if (now < next_look_) {
    return Look::kNotDue;
  }
  const bool attentive = now - next_look_ < seconds(period_s_ / 2);
  next_look_ = now + quarter();
  return attentive ? Look::kAttentive : Look::kNotAttentive;
}

// Bulk data serves as its own ping: a connection for it on which nothing is in flight owes no
// acknowledgement.
LinkLiveness::Verdict LinkLiveness::look(int fd, bool is_small, TimePoint now, bool attentive,
                                         const Heartbeat& heartbeat) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  (void)::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size);  // all zero on other sockets than TCP
  const TimePoint spoke = now - std::chrono::milliseconds(info.tcpi_last_ack_recv);
  // Probes: the peer's window was full. A paused process takes no bulk data. Its kernel acknowledges
  // retransmissions and probes, which become rare, and it ignores a probe that comes soon after another.
  const bool is_answered = !is_small && info.tcpi_last_ack_recv <= info.tcpi_last_data_sent;
  const bool owes_answer = (info.tcpi_unacked > 0 && !is_answered) || info.tcpi_probes > (is_small ? 0 : 2);
  heard_ = attentive && (owes_answer || is_small) ? std::max(heard_, spoke) : now;
  if (owes_answer && now - heard_ > heartbeat.period()) {
    const auto silent_s = std::chrono::duration_cast<std::chrono::seconds>(now - heard_).count();
    return {
        Status(Code::kPeerLost, "its host or the link acknowledged nothing for " + std::to_string(silent_s) +
                                    " s" + (is_small ? "" : " on a connection for bulk data")),
        false};
  }
  return {std::nullopt, is_small && now - spoke >= heartbeat.quarter()};
}

std::optional<PeerLiveness::Loss> PeerLiveness::connection_ended(bool orderly, bool is_last, Status why) {
  if (lost_) {
    return std::nullopt;
  }
  if (!orderly && !torn_) {
    torn_ = why;
    lost_at_ = Clock::now() + kDrainTime;
  }
  return is_last ? lose(!torn_, torn_.value_or(std::move(why))) : std::nullopt;
}

std::optional<PeerLiveness::Loss> PeerLiveness::look(TimePoint now) {
  return !lost_ && torn_ && now >= lost_at_ ? lose(false, *torn_) : std::nullopt;
}

std::optional<PeerLiveness::Loss> PeerLiveness::silent(Status why) { return lose(false, std::move(why)); }

std::optional<PeerLiveness::Loss> PeerLiveness::lose(bool orderly, Status why) {
  lost_ = true;
  return Loss{orderly, std::move(why)};
}

}  // namespace smdp
