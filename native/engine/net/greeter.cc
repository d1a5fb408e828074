#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "net/conversation.h"

namespace smdp {
namespace {

constexpr double kConnect = 10;  // seconds
// From there to the welcome: where hundreds of ranks start on few cores, each answer waits for its turn.
constexpr double kConversation = 60;
constexpr auto kLookUp = std::chrono::milliseconds(500);
constexpr std::size_t kMostStrangers = 256;

}  // namespace

Greeter::Greeter(Hello self, std::vector<std::byte> token, TimePoint deadline)
    : self_(std::move(self)), token_(std::move(token)), deadline_(deadline) {
  self_.protocol = self_.protocol == 0 ? std::uint16_t{1} : self_.protocol;
}

Greeter::~Greeter() = default;

void Greeter::connect(int rank, int rail, std::vector<Address> addresses, bool patient) {
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
    if (!talk.patient) {
      talk.state = Conversation::State::kOver;
      failed_[talk.link] = talk.addresses.empty() ? "it gave no address" : talk.why;
      return;
    }
    begin_again(talk);
    return;
  }
  Result<UniqueFd> fd = begin_connect(talk.addresses[talk.next], congestion_);
  if (!fd.ok()) {
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
  talk.retry_at = now + std::chrono::milliseconds(50);
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

void Greeter::accept_all(int listener) {
  for (;;) {
    UniqueFd fd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    const auto callers =
        std::ranges::count_if(talks_, [](const auto& talk) { return talk->addresses.empty(); });
    if (!fd.valid() || static_cast<std::size_t>(callers) > kMostStrangers + expected_.size()) {
      return;
    }
    auto talk = std::make_unique<Conversation>();
    talk->fd = std::move(fd);
    talk->state = Conversation::State::kHello;
    talk->wanted = kHelloBytes;
    talk->ends = Clock::now() + seconds(kConversation);
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
      add(talk->link.first, talk->why);
    }
  }
  return text.empty() ? Status() : Status(refused ? Code::kRefused : Code::kTimeout, text);
}

Status Greeter::run() {
  TimePoint grace_ends = TimePoint::max();
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
    ::poll(entries.data(), entries.size(), milliseconds_until(std::min(deadline_, grace_ends), 50));
    const std::size_t conversations = talks_.size();
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i < listeners_.size()) {
        if (entries[i].revents != 0) {
          accept_all(listeners_[i]);
        }
      } else if (entries[i].revents != 0) {
        step(*talks_[i - listeners_.size()], entries[i].revents);
      }
    }
    const TimePoint now = Clock::now();
    for (std::size_t i = 0; i < conversations; ++i) {
      if (Conversation& talk = *talks_[i]; now >= talk.ends) {
        if (talk.addresses.empty()) {
          talk.state = Conversation::State::kOver;
        } else {
          next_address(talk, "no answer from " + talk.addresses[talk.next].text());
        }
      }
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
      grace_ends = all_proved ? now : after(std::min(refusal_grace_s_, 1e6));
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
