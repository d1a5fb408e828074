#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "net/conversation.h"

namespace smdp {
namespace {

constexpr double kConnect = 10;  // seconds
// From there to the welcome: where hundreds of ranks start on few cores, each answer waits for its turn.
constexpr double kConversation = 60;
// A caller proves itself within so much of this rank's attention. A turn of run() counts with a waking's time
// at most: where hundreds of ranks start on few cores, none is at fault for the turns that it, or this rank,
// did not get.
constexpr auto kCaller = std::chrono::seconds(2);
constexpr auto kWaking = std::chrono::milliseconds(50);
constexpr auto kLookUp = std::chrono::milliseconds(500);
// Descriptors that callers may hold before they have proved themselves, beside the ranks that are expected.
constexpr std::size_t kMostStrangers = 256;
constexpr std::size_t kStrangersShare = 8;  // of all that this process may have

std::size_t most_strangers() {
  rlimit limit{};
  const bool known = ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return known ? std::min<std::size_t>(kMostStrangers, limit.rlim_cur / kStrangersShare) : kMostStrangers;
}

}  // namespace

Greeter::Greeter(Hello self, std::vector<std::byte> token, TimePoint deadline)
    : self_(std::move(self)),
      token_(std::move(token)),
      deadline_(deadline),
      most_strangers_(most_strangers()) {
  self_.protocol = self_.protocol == 0 ? std::uint16_t{1} : self_.protocol;
}

Greeter::~Greeter() = default;

void Greeter::connect(int rank, int rail, std::vector<Address> addresses, bool patient) {
  if (addresses.empty()) {
    failed_[{rank, rail}] = "it gave no address";
    return;
  }
  auto talk = std::make_unique<Conversation>();
  talk->link = {rank, rail};
  talk->addresses = std::move(addresses);
  talk->patient = patient;
  talks_.push_back(std::move(talk));
}

void Greeter::accept_on(int listener) { listeners_.push_back(listener); }

void Greeter::expect(int rank, int rail) { expected_[{rank, rail}] = ""; }

void Greeter::begin(Conversation& talk) {
  if (talk.next >= talk.addresses.size()) {
    if (!talk.patient && talk.refusal.empty() && !std::exchange(talk.was_closed, false)) {
      talk.state = Conversation::State::kOver;
      failed_[talk.link] = talk.why;
      return;
    }
    begin_again(talk);
    return;
  }
  Result<UniqueFd> fd = begin_connect(talk.addresses[talk.next], congestion_);
  while (!fd.ok() && fd.status().code() == Code::kExhausted && hang_up_on_a_stranger()) {
    fd = begin_connect(talk.addresses[talk.next], congestion_);
  }
  if (!fd.ok()) {
    if (fd.status().code() == Code::kExhausted) {
      fatal_ = fd.status();
    }
    next_address(talk, fd.status().message());
    return;
  }
  talk.fd = std::move(*fd);
  talk.in.clear();
  talk.out.clear();
  talk.state = Conversation::State::kConnecting;
  talk.ends = Clock::now() + seconds(kConnect);
}

// A peer that gives up loses a link that the other side may count as made. So only what can begin again does.
TimePoint Greeter::answer_by(const Conversation& talk) const {
  const bool is_last = !talk.patient && talk.next + 1 >= talk.addresses.size();
  return is_last ? TimePoint::max() : Clock::now() + seconds(kConversation);
}

void Greeter::begin_again(Conversation& talk) {
  const TimePoint now = Clock::now();
  talk.next = 0;
  talk.retry_at = now + (talk.refusal.empty() ? std::chrono::milliseconds(50) : kLookUp);
  if (!lookup_ || now - looked_up_ < kLookUp) {
    return;
  }
  looked_up_ = now;
  Result<std::vector<Address>> found = lookup_();
  if (!found.ok()) {
    fatal_ = found.status();
  } else if (!found->empty()) {
    talk.addresses = std::move(*found);
  }
}

// Of the callers that have proved nothing, the one that is here longest; false where all may be ranks. A rank
// that was it calls again.
bool Greeter::hang_up_on_a_stranger() {
  if (callers() <= expected_.size()) {
    return false;
  }
  const auto found = std::ranges::find_if(
      talks_, [](const auto& talk) { return talk->addresses.empty() && talk->fd.valid(); });
  (*found)->fd.reset();
  (*found)->out.clear();
  (*found)->state = Conversation::State::kOver;
  return true;
}

std::size_t Greeter::callers() const {
  return static_cast<std::size_t>(std::ranges::count_if(
      talks_, [](const auto& talk) { return talk->addresses.empty() && talk->fd.valid(); }));
}

void Greeter::accept_all(int listener) {
  for (;;) {
    UniqueFd fd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid()) {
      Status failed = system_error("answering a call", errno);
      if (failed.code() == Code::kExhausted && hang_up_on_a_stranger()) {
        continue;
      }
      if (failed.code() == Code::kExhausted) {
        fatal_ =
            std::move(failed);  // the caller stays in the queue: asking again would keep a processor busy
      }
      return;
    }
    if (callers() >= most_strangers_ + expected_.size()) {
      hang_up_on_a_stranger();
    }
    auto talk = std::make_unique<Conversation>();
    talk->fd = std::move(fd);
    talk->state = Conversation::State::kHello;
    talk->wanted = kMagicBytes;
    talk->heard_until = attention_ + kCaller;
    talks_.push_back(std::move(talk));
  }
}

bool Greeter::complete() const {
  return expected_.empty() &&
         std::ranges::all_of(talks_, [](const auto& talk) { return talk->addresses.empty(); });
}

Status Greeter::verdict() const {
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
  for (const auto& talk : talks_) {
    if (!talk->addresses.empty()) {
      const bool changed = !talk->refusal.empty() && talk->why != talk->refusal;
      add(talk->link.first, talk->why + (changed ? " (before that: " + talk->refusal + ")" : ""));
    }
  }
  return text.empty() ? Status() : Status(refused ? Code::kRefused : Code::kTimeout, text);
}

void Greeter::attend(int fd, std::string who, bool speaks) {
  attended_.push_back({fd, std::move(who), speaks});
}

void Greeter::take(Attended& attended, short events) {
  if (fatal_.ok() && !attended.speaks && (events & POLLIN) != 0) {
    const std::optional<Status> heard = hear_(attended.fd);
    attended.heard = heard.has_value();
    fatal_ = heard.value_or(Status());
    told_ = !fatal_.ok();
  }
  if (fatal_.ok() && (events & (POLLRDHUP | POLLHUP | POLLERR)) != 0) {
    fatal_ = {Code::kPeerLost, attended.who + " left the rendezvous: the connection was closed"};
  } else if (fatal_.ok() && attended.speaks && events != 0) {
    fatal_ = {Code::kPeerLost, attended.who + " ended the rendezvous"};
  }
}

void Greeter::end_overdue(std::size_t conversations, TimePoint now) {
  for (std::size_t i = 0; i < conversations; ++i) {
    Conversation& talk = *talks_[i];
    if (talk.addresses.empty() && attention_ >= talk.heard_until) {
      talk.state = Conversation::State::kOver;
    } else if (!talk.addresses.empty() && now >= talk.ends) {
      next_address(talk, "no answer from " + talk.addresses[talk.next].text());
    } else if (fatal_.ok() && talk.state == Conversation::State::kWaiting && !talk.refusal.empty() &&
               now >= talk.doubted_until) {
      believe_refusal(talk);
    }
  }
}

Status Greeter::run() {
  TimePoint grace_ends = TimePoint::max();
  TimePoint turned = Clock::now();
  while (!complete() && fatal_.ok()) {
    std::vector<pollfd> entries;
    entries.reserve(listeners_.size() + talks_.size());
    for (const int listener : listeners_) {
      entries.push_back({listener, POLLIN, 0});
    }
    for (const auto& talk : talks_) {
      if (talk->state == Conversation::State::kWaiting && Clock::now() >= talk->retry_at) {
        begin(*talk);
      }
      const bool writing = !talk->out.empty() || talk->state == Conversation::State::kConnecting;
      entries.push_back({talk->fd.get(), static_cast<short>(writing ? POLLIN | POLLOUT : POLLIN), 0});
    }
    for (const Attended& attended : attended_) {
      const int wanted = attended.heard ? POLLRDHUP : POLLIN | POLLRDHUP;
      entries.push_back({attended.fd, static_cast<short>(wanted), 0});
    }
    ::poll(entries.data(), entries.size(),
           milliseconds_until(std::min(deadline_, grace_ends), static_cast<int>(kWaking.count())));
    const std::size_t conversations = talks_.size();
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i < listeners_.size()) {
        if (entries[i].revents != 0) {
          accept_all(listeners_[i]);
        }
      } else if (i - listeners_.size() >= conversations) {
        take(attended_[i - listeners_.size() - conversations], entries[i].revents);
      } else if (entries[i].revents != 0) {
        step(*talks_[i - listeners_.size()], entries[i].revents);
      }
    }
    const TimePoint now = Clock::now();
    attention_ += std::min<std::chrono::nanoseconds>(now - std::exchange(turned, now), kWaking);
    end_overdue(conversations, now);
    if (remind_ && now - reminded_ >= kLookUp) {
      reminded_ = now;
      remind_();
    }
    std::erase_if(talks_, [](const auto& talk) { return talk->state == Conversation::State::kOver; });
    const bool only_refused = !expected_.empty() && std::ranges::all_of(expected_, [](const auto& entry) {
      return !entry.second.empty();
    });
    if (!only_refused) {
      grace_ends = TimePoint::max();
    } else if (grace_ends == TimePoint::max()) {
      // One that proved the token and differs will not come back different; who has another token may be a
      // stranger.
      const bool all_proved =
          std::ranges::all_of(expected_, [this](const auto& entry) { return proved_.contains(entry.first); });
      grace_ends = all_proved ? now : after(refusal_grace_s_);
    }
    if (now >= deadline_ || now >= grace_ends) {
      break;
    }
  }
  // Last words on their way out when a proved difference ended the wait.
  for (const auto& talk : talks_) {
    if (talk->state == Conversation::State::kLastWords) {
      (void)send_all(talk->fd.get(), talk->out, Clock::now() + std::chrono::milliseconds(200));
      ::shutdown(talk->fd.get(), SHUT_WR);
    }
  }
  return verdict();
}

}  // namespace smdp
