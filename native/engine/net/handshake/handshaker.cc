#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "net/handshake/handshake.h"

namespace smdp {
namespace {

constexpr double kConnect = 10;  // seconds
// From the connection to the welcome: where hundreds of ranks start on few cores, answers are slow.
constexpr double kHandshake = 60;
// A client proves itself within this much of this rank's listening time. One turn of run() adds at most
// kTurn: where hundreds of ranks start on few cores, a client is not blamed for the time in which it, or this
// rank, got no processor.
constexpr auto kClientTime = std::chrono::seconds(2);
constexpr auto kTurn = std::chrono::milliseconds(50);
constexpr auto kLookUp = std::chrono::milliseconds(500);
// Connections of unauthenticated clients, beside those of the expected ranks.
constexpr std::size_t kMostUnauthenticated = 256;
constexpr std::size_t kUnauthenticatedShare = 8;  // of this process's descriptors

std::size_t most_unauthenticated() {
  rlimit limit{};
  const bool known = ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return known ? std::min<std::size_t>(kMostUnauthenticated, limit.rlim_cur / kUnauthenticatedShare)
               : kMostUnauthenticated;
}

}  // namespace

Handshaker::Handshaker(Hello self, std::vector<std::byte> token, TimePoint deadline)
    : self_(std::move(self)),
      token_(std::move(token)),
      deadline_(deadline),
      most_unauthenticated_(most_unauthenticated()) {
  self_.protocol = self_.protocol == 0 ? std::uint16_t{1} : self_.protocol;
}

Handshaker::~Handshaker() = default;

void Handshaker::connect(int rank, int rail, std::vector<Address> addresses, bool retries) {
  if (addresses.empty()) {
    failed_[{rank, rail}] = "it gave no address";
    return;
  }
  auto handshake = std::make_unique<Handshake>();
  handshake->link = {rank, rail};
  handshake->addresses = std::move(addresses);
  handshake->retries = retries;
  handshakes_.push_back(std::move(handshake));
}

void Handshaker::accept_on(int listener) { listeners_.push_back(listener); }

void Handshaker::expect(int rank, int rail) { expected_[{rank, rail}] = ""; }

void Handshaker::begin(Handshake& handshake) {
  if (handshake.next >= handshake.addresses.size()) {
    if (!handshake.retries && handshake.refusal.empty() && !std::exchange(handshake.was_closed, false)) {
      handshake.state = Handshake::State::kOver;
      failed_[handshake.link] = handshake.why;
      return;
    }
    restart(handshake);
    return;
  }
  Result<UniqueFd> fd = begin_connect(handshake.addresses[handshake.next], congestion_);
  while (!fd.ok() && fd.status().code() == Code::kExhausted && drop_oldest_client()) {
    fd = begin_connect(handshake.addresses[handshake.next], congestion_);
  }
  if (!fd.ok()) {
    if (fd.status().code() == Code::kExhausted) {
      fatal_ = fd.status();
    }
    next_address(handshake, fd.status().message());
    return;
  }
  handshake.fd = std::move(*fd);
  handshake.in.clear();
  handshake.out.clear();
  handshake.state = Handshake::State::kConnecting;
  handshake.deadline = Clock::now() + seconds(kConnect);
}

// A peer that times out loses a link that the other side may count as made. So only a connection that can be
// started again has a deadline.
TimePoint Handshaker::answer_by(const Handshake& handshake) const {
  const bool is_last = !handshake.retries && handshake.next + 1 >= handshake.addresses.size();
  return is_last ? TimePoint::max() : Clock::now() + seconds(kHandshake);
}

void Handshaker::restart(Handshake& handshake) {
  const TimePoint now = Clock::now();
  handshake.next = 0;
  handshake.retry_at = now + (handshake.refusal.empty() ? std::chrono::milliseconds(50) : kLookUp);
  if (!lookup_ || now - looked_up_ < kLookUp) {
    return;
  }
  looked_up_ = now;
  Result<std::vector<Address>> found = lookup_();
  if (!found.ok()) {
    fatal_ = found.status();
  } else if (!found->empty()) {
    handshake.addresses = std::move(*found);
  }
}

// Closes the oldest connection of an unauthenticated client. False: all clients may be ranks. A rank that is
// closed by this connects again.
bool Handshaker::drop_oldest_client() {
  if (unauthenticated_clients() <= expected_.size()) {
    return false;
  }
  const auto found = std::ranges::find_if(handshakes_, [](const auto& handshake) {
    return handshake->addresses.empty() && handshake->fd.valid();
  });
  (*found)->fd.reset();
  (*found)->out.clear();
  (*found)->state = Handshake::State::kOver;
  return true;
}

std::size_t Handshaker::unauthenticated_clients() const {
  return static_cast<std::size_t>(std::ranges::count_if(handshakes_, [](const auto& handshake) {
    return handshake->addresses.empty() && handshake->fd.valid();
  }));
}

void Handshaker::accept_all(int listener) {
  for (;;) {
    UniqueFd fd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid()) {
      Status failed = system_error("accepting a connection", errno);
      if (failed.code() == Code::kExhausted && drop_oldest_client()) {
        continue;
      }
      if (failed.code() == Code::kExhausted) {
        fatal_ = std::move(failed);  // the client stays in the queue, so accepting again would be a busy loop
      }
      return;
    }
    if (unauthenticated_clients() >= most_unauthenticated_ + expected_.size()) {
      drop_oldest_client();
    }
    auto handshake = std::make_unique<Handshake>();
    handshake->fd = std::move(fd);
    handshake->state = Handshake::State::kHello;
    handshake->wanted = kMagicBytes;
    handshake->listen_until = listening_time_ + kClientTime;
    handshakes_.push_back(std::move(handshake));
  }
}

bool Handshaker::complete() const {
  return expected_.empty() &&
         std::ranges::all_of(handshakes_, [](const auto& handshake) { return handshake->addresses.empty(); });
}

Status Handshaker::verdict() const {
  if (!fatal_.ok()) {
    return fatal_;
  }
  std::string text;
  bool refused = false;
  const auto add = [&](int rank, const std::string& why) {
    text += (text.empty() ? "" : "; ") + std::string("rank ") + std::to_string(rank) +
            (why.empty() ? " did not arrive" : ": " + why);
    refused = refused || !why.empty();
  };
  for (const auto& [link, why] : expected_) {
    add(link.first, why);
  }
  for (const auto& [link, why] : failed_) {
    add(link.first, why);
  }
  for (const auto& handshake : handshakes_) {
    if (!handshake->addresses.empty()) {
      const bool changed = !handshake->refusal.empty() && handshake->why != handshake->refusal;
      add(handshake->link.first,
          handshake->why + (changed ? " (before that: " + handshake->refusal + ")" : ""));
    }
  }
  return text.empty() ? Status() : Status(refused ? Code::kRefused : Code::kTimeout, text);
}

void Handshaker::watch(int fd, std::string peer, bool speaks) {
  watched_.push_back({fd, std::move(peer), speaks});
}

void Handshaker::on_watched(Watched& watched, short events) {
  if (fatal_.ok() && !watched.speaks && (events & POLLIN) != 0) {
    const std::optional<Status> status = read_error_(watched.fd);
    watched.has_sent = status.has_value();
    fatal_ = status.value_or(Status());
    ended_by_peer_ = !fatal_.ok();
  }
  if (fatal_.ok() && (events & (POLLRDHUP | POLLHUP | POLLERR)) != 0) {
    fatal_ = {Code::kPeerLost, watched.peer + " left the rendezvous: the connection was closed"};
  } else if (fatal_.ok() && watched.speaks && events != 0) {
    fatal_ = {Code::kPeerLost, watched.peer + " ended the rendezvous"};
  }
}

void Handshaker::end_overdue(std::size_t handshakes, TimePoint now) {
  for (std::size_t i = 0; i < handshakes; ++i) {
    Handshake& handshake = *handshakes_[i];
    if (handshake.addresses.empty() && listening_time_ >= handshake.listen_until) {
      handshake.state = Handshake::State::kOver;
    } else if (!handshake.addresses.empty() && now >= handshake.deadline) {
      next_address(handshake, "no answer from " + handshake.addresses[handshake.next].text());
    } else if (fatal_.ok() && handshake.state == Handshake::State::kWaiting && !handshake.refusal.empty() &&
               now >= handshake.doubted_until) {
      accept_refusal(handshake);
    }
  }
}

Status Handshaker::run() {
  TimePoint grace_ends = TimePoint::max();
  TimePoint turned = Clock::now();
  while (!complete() && fatal_.ok()) {
    std::vector<pollfd> entries;
    entries.reserve(listeners_.size() + handshakes_.size());
    for (const int listener : listeners_) {
      entries.push_back({listener, POLLIN, 0});
    }
    for (const auto& handshake : handshakes_) {
      if (handshake->state == Handshake::State::kWaiting && Clock::now() >= handshake->retry_at) {
        begin(*handshake);
      }
      const bool writing = !handshake->out.empty() || handshake->state == Handshake::State::kConnecting;
      entries.push_back({handshake->fd.get(), static_cast<short>(writing ? POLLIN | POLLOUT : POLLIN), 0});
    }
    for (const Watched& watched : watched_) {
      const int wanted = watched.has_sent ? POLLRDHUP : POLLIN | POLLRDHUP;
      entries.push_back({watched.fd, static_cast<short>(wanted), 0});
    }
    ::poll(entries.data(), entries.size(),
           milliseconds_until(std::min(deadline_, grace_ends), static_cast<int>(kTurn.count())));
    const std::size_t handshakes = handshakes_.size();
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i < listeners_.size()) {
        if (entries[i].revents != 0) {
          accept_all(listeners_[i]);
        }
      } else if (i - listeners_.size() >= handshakes) {
        on_watched(watched_[i - listeners_.size() - handshakes], entries[i].revents);
      } else if (entries[i].revents != 0) {
        step(*handshakes_[i - listeners_.size()], entries[i].revents);
      }
    }
    const TimePoint now = Clock::now();
    listening_time_ += std::min<std::chrono::nanoseconds>(now - std::exchange(turned, now), kTurn);
    end_overdue(handshakes, now);
    if (remind_ && now - reminded_ >= kLookUp) {
      reminded_ = now;
      remind_();
    }
    std::erase_if(handshakes_,
                  [](const auto& handshake) { return handshake->state == Handshake::State::kOver; });
    const bool only_refused = !expected_.empty() && std::ranges::all_of(expected_, [](const auto& entry) {
      return !entry.second.empty();
    });
    if (!only_refused) {
      grace_ends = TimePoint::max();
    } else if (grace_ends == TimePoint::max()) {
      // A rank that proved the token and differs still differs when it retries; a client with another token
      // may be no rank of this job.
      const bool all_proved =
          std::ranges::all_of(expected_, [this](const auto& entry) { return proved_.contains(entry.first); });
      grace_ends = all_proved ? now : after(refusal_grace_s_);
    }
    if (now >= deadline_ || now >= grace_ends) {
      break;
    }
  }
  // Refusals that are not sent yet when an authenticated difference ended the wait.
  for (const auto& handshake : handshakes_) {
    if (handshake->state == Handshake::State::kRefusing) {
      (void)send_all(handshake->fd.get(), handshake->out, Clock::now() + std::chrono::milliseconds(200));
      ::shutdown(handshake->fd.get(), SHUT_WR);
    }
  }
  return verdict();
}

}  // namespace smdp
