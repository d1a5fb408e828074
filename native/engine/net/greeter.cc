#include "net/greeter.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <limits>

namespace smdp {
namespace {

// Answers of the accepting side: one byte, the length of the text as u16, the text.
constexpr std::byte kAccept{1};
constexpr std::byte kRefuse{2};
constexpr std::byte kWelcome{3};
constexpr std::size_t kAnswerHead = 3;
constexpr std::size_t kMaxSentence = 512;
constexpr double kConversation = 10;  // seconds from connecting to the welcome
constexpr std::size_t kMostStrangers = 256;

Bytes answer(std::byte tag, std::span<const std::byte> body) {
  return Writer()
      .put(static_cast<std::uint8_t>(tag))
      .put(static_cast<std::uint16_t>(body.size()))
      .raw(body)
      .take();
}

}  // namespace

// One connection on its way. The connecting side goes kConnecting, kAnswer, kWelcomed; the accepting side
// kHello, kProof. `wanted` bytes are collected in `in` before the state's function looks at them.
struct Greeter::Conversation {
  enum class State : std::uint8_t {
    kWaiting,
    kConnecting,
    kAnswer,
    kWelcomed,
    kHello,
    kProof,
    kLastWords,
    kOver
  };

  State state = State::kWaiting;
  Link link{-1, 0};
  UniqueFd fd;
  Bytes in;
  std::size_t wanted = 0;
  Bytes out;
  Hello theirs;
  EncodedHello our_hello{};
  EncodedHello their_hello{};
  TimePoint ends = TimePoint::max();
  TimePoint retry_at{};
  // Connecting side only.
  std::vector<Address> addresses;
  std::size_t next = 0;
  bool patient = false;
  std::string why = "no answer";
};

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
    talk.next = 0;
    talk.retry_at = Clock::now() + std::chrono::milliseconds(50);
    return;
  }
  Result<UniqueFd> fd = begin_connect(talk.addresses[talk.next]);
  if (!fd.ok()) {
    next_address(talk, fd.status().message());
    return;
  }
  talk.fd = std::move(*fd);
  talk.in.clear();
  talk.out.clear();
  talk.state = Conversation::State::kConnecting;
  talk.ends = Clock::now() + seconds(kConversation);
}

void Greeter::next_address(Conversation& talk, const std::string& why) {
  talk.why = why;
  talk.fd.reset();
  talk.state = Conversation::State::kWaiting;
  talk.ends = TimePoint::max();
  ++talk.next;
}

void Greeter::refuse(Conversation& talk, const std::string& why, bool proved) {
  talk.out = answer(kRefuse, as_bytes_of(why.substr(0, kMaxSentence)));
  talk.state = Conversation::State::kLastWords;
  const Link claimed{static_cast<int>(talk.theirs.rank & 0x7fffffffU),
                     static_cast<int>(talk.theirs.rail & 0xffU)};
  if (const auto found = expected_.find(claimed); found != expected_.end()) {
    found->second = why;
    if (proved) {
      proved_.insert(claimed);
    }
  }
}

void Greeter::on_hello(Conversation& talk) {
  std::ranges::copy(talk.in, talk.their_hello.begin());
  const auto hello = decode_hello(talk.their_hello);
  if (!hello) {
    talk.state = Conversation::State::kOver;  // some other program: no answer
    return;
  }
  talk.theirs = *hello;
  const Link claimed{static_cast<int>(hello->rank & 0x7fffffffU), static_cast<int>(hello->rail & 0xffU)};
  if (hello->protocol != self_.protocol) {
    refuse(talk,
           "protocol version differs: rank " + std::to_string(self_.rank) + " (build " + self_.build +
               ") speaks " + std::to_string(self_.protocol) + ", rank " + std::to_string(hello->rank) +
               " (build " + hello->build + ") speaks " + std::to_string(hello->protocol),
           false);
    return;
  }
  if (hello->purpose != self_.purpose || hello->target != self_.rank || !expected_.contains(claimed)) {
    const std::string reason = hello->target == self_.rank
                                   ? "is not waiting for rank " + std::to_string(hello->rank)
                                   : "is not rank " + std::to_string(hello->target);
    refuse(talk, "this is rank " + std::to_string(self_.rank) + ", which " + reason + " here", false);
    return;
  }
  talk.link = claimed;
  Hello ours = self_;
  ours.rail = hello->rail;
  ours.target = hello->rank;
  ours.nonce = random128();
  talk.our_hello = encode(ours);
  const Digest proof = prove_accept(token_, talk.their_hello, talk.our_hello);
  talk.out = answer(kAccept, Writer().raw(talk.our_hello).raw(proof).take());
  talk.in.clear();
  talk.wanted = sizeof(Digest);
  talk.state = Conversation::State::kProof;
}

void Greeter::on_proof(Conversation& talk) {
  if (!equal_digests(talk.in, prove_connect(token_, talk.their_hello, talk.our_hello))) {
    refuse(talk,
           "wrong token: rank " + std::to_string(talk.theirs.rank) +
               " does not have the SMDP_JOB_TOKEN of rank " + std::to_string(self_.rank),
           false);
    return;
  }
  if (const std::string why = difference(self_, talk.theirs); !why.empty()) {
    refuse(talk, why, true);
    return;
  }
  expected_.erase(talk.link);
  const Bytes welcome = answer(kWelcome, {});
  if (send_all(talk.fd.get(), welcome, Clock::now() + std::chrono::seconds(1)).ok()) {
    made_[talk.link] = std::move(talk.fd);
  } else {
    expected_[talk.link] = "it closed the connection";
  }
  talk.state = Conversation::State::kOver;
}

// An answer is collected in two steps: its head, then the text whose length the head gives.
void Greeter::on_answer(Conversation& talk) {
  Reader reader(talk.in);
  const auto tag = static_cast<std::byte>(reader.get<std::uint8_t>());
  const std::size_t length = reader.get<std::uint16_t>();
  if (talk.in.size() < kAnswerHead + length) {
    talk.wanted = length <= kMaxSentence ? kAnswerHead + length : std::numeric_limits<std::size_t>::max();
    return;
  }
  const auto body = reader.raw(length);
  if (tag == kRefuse) {
    const std::string why(reinterpret_cast<const char*>(body.data()), body.size());
    const bool other_rank = why.starts_with("this is rank");
    next_address(talk, why);
    if (!other_rank) {
      failed_[talk.link] = why;
      fatal_ = {Code::kRefused, why};
    }
    return;
  }
  if (talk.state == Conversation::State::kWelcomed) {
    if (tag == kWelcome) {
      made_[talk.link] = std::move(talk.fd);
      talk.state = Conversation::State::kOver;
    } else {
      next_address(talk, "the answer broke the protocol");
    }
    return;
  }
  if (tag != kAccept || length != kHelloBytes + sizeof(Digest)) {
    next_address(talk, "something that is not this engine answered");
    return;
  }
  std::ranges::copy(body.first(kHelloBytes), talk.their_hello.begin());
  const auto theirs = decode_hello(talk.their_hello);
  const bool proved = theirs && equal_digests(body.subspan(kHelloBytes),
                                              prove_accept(token_, talk.our_hello, talk.their_hello));
  // Our proof is sent in any case: the other side then knows which rank has the wrong token, and says so.
  const Digest proof = prove_connect(token_, talk.our_hello, talk.their_hello);
  talk.out.assign(proof.begin(), proof.end());
  talk.in.clear();
  talk.wanted = kAnswerHead;
  talk.state = Conversation::State::kWelcomed;
  if (!proved) {
    (void)send_all(talk.fd.get(), talk.out, Clock::now() + std::chrono::seconds(1));
    const std::string why = "wrong token: rank " + std::to_string(talk.link.first) +
                            " does not have the SMDP_JOB_TOKEN of rank " + std::to_string(self_.rank);
    next_address(talk, why);
    failed_[talk.link] = why;
    fatal_ = {Code::kRefused, why};
  }
}

void Greeter::on_input(Conversation& talk) {
  switch (talk.state) {
    case Conversation::State::kHello:
      on_hello(talk);
      return;
    case Conversation::State::kProof:
      on_proof(talk);
      return;
    case Conversation::State::kAnswer:
    case Conversation::State::kWelcomed:
      on_answer(talk);
      return;
    default:
      talk.state = Conversation::State::kOver;
  }
}

void Greeter::read_bytes(Conversation& talk) {
  while (talk.fd.valid() && talk.wanted > talk.in.size()) {
    std::array<std::byte, 1024> chunk{};
    const std::size_t most = std::min(chunk.size(), talk.wanted - talk.in.size());
    const ssize_t got = ::recv(talk.fd.get(), chunk.data(), most, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
      return;
    }
    if (got <= 0) {
      if (talk.addresses.empty()) {
        talk.state = Conversation::State::kOver;
      } else {
        next_address(talk, "it closed the connection");
      }
      return;
    }
    talk.in.insert(talk.in.end(), chunk.begin(), chunk.begin() + got);
    if (talk.in.size() == talk.wanted) {
      on_input(talk);
      if (talk.state == Conversation::State::kOver || talk.state == Conversation::State::kWaiting) {
        return;
      }
    }
  }
}

void Greeter::step(Conversation& talk, short events) {
  using State = Conversation::State;
  if (talk.state == State::kConnecting && events != 0) {
    if (const int error = connect_error(talk.fd.get()); error != 0) {
      next_address(talk, system_error("connecting to " + talk.addresses[talk.next].text(), error).message());
      return;
    }
    Hello ours = self_;
    ours.target = static_cast<std::uint32_t>(talk.link.first);
    ours.rail = static_cast<std::uint32_t>(talk.link.second);
    ours.nonce = random128();
    talk.our_hello = encode(ours);
    talk.out.assign(talk.our_hello.begin(), talk.our_hello.end());
    talk.wanted = kAnswerHead;
    talk.state = State::kAnswer;
  }
  if ((events & (POLLIN | POLLHUP | POLLERR)) != 0 && talk.state != State::kLastWords) {
    read_bytes(talk);
  }
  if (!talk.out.empty() && talk.fd.valid()) {
    const ssize_t sent = ::send(talk.fd.get(), talk.out.data(), talk.out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      talk.out.erase(talk.out.begin(), talk.out.begin() + sent);
    }
  }
  if (talk.state == State::kLastWords && talk.out.empty()) {
    ::shutdown(talk.fd.get(), SHUT_WR);
    talk.state = State::kOver;
  }
}

void Greeter::accept_all(int listener) {
  for (;;) {
    UniqueFd fd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid() || talks_.size() > kMostStrangers + expected_.size() + made_.size()) {
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
