// The hello, step by step, on both sides: docs/reference/wire-format.md.
#include "net/handshake/handshake.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>

namespace smdp {
namespace {

// Answers of the accepting side: one byte, the length of the text as u16, the text.
constexpr std::byte kAccept{1};
constexpr std::byte kRefuse{2};
constexpr std::byte kWelcome{3};
constexpr std::size_t kAnswerHead = 3;
constexpr std::size_t kMaxReason = 512;

Bytes answer(std::byte tag, std::span<const std::byte> body) {
  return Writer()
      .put(static_cast<std::uint8_t>(tag))
      .put(static_cast<std::uint16_t>(body.size()))
      .raw(body)
      .take();
}

std::string reason_of(std::span<const std::byte> refusal) {
  const std::string why = plain_text(refusal);
  return why.empty() ? "it refused and gave no reason" : why;
}

}  // namespace

void Handshaker::next_address(Handshake& handshake, const std::string& why) {
  handshake.why = why;
  handshake.fd.reset();
  handshake.state = Handshake::State::kWaiting;
  handshake.deadline = TimePoint::max();
  ++handshake.next;
}

void Handshaker::refuse(Handshake& handshake, const std::string& why, bool proved) {
  const auto reason = as_bytes_of(why).first(std::min(why.size(), kMaxReason));
  Writer body;
  if (handshake.state == Handshake::State::kProof) {
    body.raw(prove_refusal(token_, handshake.their_hello, handshake.our_hello, reason));
  }
  handshake.out = answer(kRefuse, body.raw(reason).take());
  handshake.state = Handshake::State::kRefusing;
  const Link claimed{static_cast<int>(handshake.theirs.rank & 0x7fffffffU),
                     static_cast<int>(handshake.theirs.rail & 0xffU)};
  if (const auto found = expected_.find(claimed); found != expected_.end()) {
    const bool is_first = std::exchange(found->second, why).empty();
    if (proved) {
      proved_.insert(claimed);
    } else if (is_first && warn_) {
      warn_("a client that says it is rank " + std::to_string(claimed.first) + " was refused: " + why);
    }
  }
}

// On the connecting side. A refusal without proof ends nothing at first: this rank connects again.
void Handshaker::on_refusal(Handshake& handshake, const std::string& why, bool proved) {
  const TimePoint now = Clock::now();
  next_address(handshake, why);
  if (handshake.refusal.empty() && !proved) {
    handshake.doubted_until = now + seconds(refusal_grace_s_);
    if (warn_ && now < handshake.doubted_until) {
      warn_("the process that answered as rank " + std::to_string(handshake.link.first) +
            " refused without proof that it has the SMDP_JOB_TOKEN; this rank connects again: " + why);
    }
  }
  handshake.refusal = why;
  if (proved || now >= handshake.doubted_until) {
    accept_refusal(handshake);
  }
}

void Handshaker::accept_refusal(const Handshake& handshake) {
  failed_[handshake.link] = handshake.refusal;
  fatal_ = {Code::kRefused, handshake.refusal};
}

void Handshaker::on_hello(Handshake& handshake) {
  if (handshake.wanted == kMagicBytes) {
    if (!begins_hello(handshake.in)) {
      handshake.state = Handshake::State::kOver;  // another program: no answer
      return;
    }
    handshake.wanted = kHelloBytes;
    return;
  }
  std::ranges::copy(handshake.in, handshake.their_hello.begin());
  const auto hello = decode_hello(handshake.their_hello);
  if (!hello) {
    handshake.state = Handshake::State::kOver;
    return;
  }
  handshake.theirs = *hello;
  const Link claimed{static_cast<int>(hello->rank & 0x7fffffffU), static_cast<int>(hello->rail & 0xffU)};
  if (hello->protocol != self_.protocol) {
    refuse(handshake,
           "protocol version differs: rank " + std::to_string(self_.rank) + " (build " + self_.build +
               ") speaks " + std::to_string(self_.protocol) + ", rank " + std::to_string(hello->rank) +
               " (build " + hello->build + ") speaks " + std::to_string(hello->protocol),
           false);
    return;
  }
  // A rank that is connected already may connect again: its wait for the answer timed out.
  const bool is_known = expected_.contains(claimed) || connections_.contains(claimed);
  if (hello->purpose != self_.purpose || hello->target != self_.rank || !is_known) {
    const std::string reason = hello->target == self_.rank
                                   ? "is not waiting for rank " + std::to_string(hello->rank)
                                   : "is not rank " + std::to_string(hello->target);
    refuse(handshake, "this is rank " + std::to_string(self_.rank) + ", which " + reason + " here", false);
    return;
  }
  handshake.link = claimed;
  Hello ours = self_;
  ours.rail = hello->rail;
  ours.target = hello->rank;
  ours.nonce = random128();
  handshake.our_hello = encode(ours);
  const Digest proof = prove_accept(token_, handshake.their_hello, handshake.our_hello);
  handshake.out = answer(kAccept, Writer().raw(handshake.our_hello).raw(proof).take());
  handshake.in.clear();
  handshake.wanted = sizeof(Digest);
  handshake.state = Handshake::State::kProof;
}

void Handshaker::on_proof(Handshake& handshake) {
  if (!equal_digests(handshake.in, prove_connect(token_, handshake.their_hello, handshake.our_hello))) {
    refuse(handshake,
           "wrong token: rank " + std::to_string(handshake.theirs.rank) +
               " does not have the SMDP_JOB_TOKEN of rank " + std::to_string(self_.rank),
           false);
    return;
  }
  if (const std::string why = difference(self_, handshake.theirs); !why.empty()) {
    refuse(handshake, why, true);
    return;
  }
  expected_.erase(handshake.link);
  const Bytes welcome = answer(kWelcome, {});
  if (send_all(handshake.fd.get(), welcome, Clock::now() + std::chrono::seconds(1)).ok()) {
    connections_[handshake.link] = std::move(handshake.fd);
  } else {
    expected_[handshake.link] = "it closed the connection";
  }
  handshake.state = Handshake::State::kOver;
}

// An answer is collected in two steps: its head, then the text whose length the head gives.
void Handshaker::on_answer(Handshake& handshake) {
  Reader reader(handshake.in);
  const auto tag = static_cast<std::byte>(reader.get<std::uint8_t>());
  const std::size_t length = reader.get<std::uint16_t>();
  const bool is_of_welcome = handshake.state == Handshake::State::kWelcomed;
  if (length > kMaxReason + (is_of_welcome ? sizeof(Digest) : 0)) {
    next_address(handshake, "something that is not this engine answered");
    return;
  }
  if (handshake.in.size() < kAnswerHead + length) {
    handshake.wanted = kAnswerHead + length;
    return;
  }
  const auto body = reader.raw(length);
  if (tag == kRefuse) {
    const auto proof = body.first(is_of_welcome ? std::min(length, sizeof(Digest)) : 0);
    const auto reason = body.subspan(proof.size());
    const bool proved = is_of_welcome && equal_digests(proof, prove_refusal(token_, handshake.our_hello,
                                                                            handshake.their_hello, reason));
    const std::string why = reason_of(reason);
    if (why.starts_with("this is rank")) {
      next_address(handshake, why);
    } else {
      on_refusal(handshake, why, proved);
    }
    return;
  }
  if (is_of_welcome) {
    if (tag == kWelcome) {
      connections_[handshake.link] = std::move(handshake.fd);
      handshake.state = Handshake::State::kOver;
    } else {
      next_address(handshake, "the answer broke the protocol");
    }
    return;
  }
  if (tag != kAccept || length != kHelloBytes + sizeof(Digest)) {
    next_address(handshake, "something that is not this engine answered");
    return;
  }
  std::ranges::copy(body.first(kHelloBytes), handshake.their_hello.begin());
  const auto theirs = decode_hello(handshake.their_hello);
  const bool proved =
      theirs && equal_digests(body.subspan(kHelloBytes),
                              prove_accept(token_, handshake.our_hello, handshake.their_hello));
  // This rank sends its proof in any case: the other side then reports which rank has the wrong token.
  const Digest proof = prove_connect(token_, handshake.our_hello, handshake.their_hello);
  handshake.out.assign(proof.begin(), proof.end());
  handshake.in.clear();
  handshake.wanted = kAnswerHead;
  handshake.state = Handshake::State::kWelcomed;
  handshake.deadline = TimePoint::max();  // once it has the proof, the other side may count the link as made
  if (!proved) {
    (void)send_all(handshake.fd.get(), handshake.out, Clock::now() + std::chrono::seconds(1));
    const std::string why = "wrong token: rank " + std::to_string(handshake.link.first) +
                            " does not have the SMDP_JOB_TOKEN of rank " + std::to_string(self_.rank);
    on_refusal(handshake, why, false);
  }
}

void Handshaker::on_input(Handshake& handshake) {
  switch (handshake.state) {
    case Handshake::State::kHello:
      on_hello(handshake);
      return;
    case Handshake::State::kProof:
      on_proof(handshake);
      return;
    case Handshake::State::kAnswer:
    case Handshake::State::kWelcomed:
      on_answer(handshake);
      return;
    default:
      handshake.state = Handshake::State::kOver;
  }
}

void Handshaker::read_bytes(Handshake& handshake) {
  while (handshake.fd.valid() && handshake.wanted > handshake.in.size()) {
    std::array<std::byte, 1024> chunk{};
    const std::size_t most = std::min(chunk.size(), handshake.wanted - handshake.in.size());
    const ssize_t got = ::recv(handshake.fd.get(), chunk.data(), most, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
      return;
    }
    if (got <= 0) {
      if (handshake.addresses.empty()) {
        handshake.state = Handshake::State::kOver;
      } else {
        handshake.was_closed = true;
        next_address(handshake, "it closed the connection");
      }
      return;
    }
    handshake.in.insert(handshake.in.end(), chunk.begin(), chunk.begin() + got);
    if (handshake.in.size() == handshake.wanted) {
      on_input(handshake);
      if (handshake.state == Handshake::State::kOver || handshake.state == Handshake::State::kWaiting) {
        return;
      }
    }
  }
}

void Handshaker::step(Handshake& handshake, short events) {
  using State = Handshake::State;
  if (handshake.state == State::kConnecting && events != 0) {
    if (const int error = connect_error(handshake.fd.get()); error != 0) {
      next_address(
          handshake,
          system_error("connecting to " + handshake.addresses[handshake.next].text(), error).message());
      return;
    }
    Hello ours = self_;
    ours.target = static_cast<std::uint32_t>(handshake.link.first);
    ours.rail = static_cast<std::uint32_t>(handshake.link.second);
    ours.nonce = random128();
    handshake.our_hello = encode(ours);
    handshake.out.assign(handshake.our_hello.begin(), handshake.our_hello.end());
    handshake.wanted = kAnswerHead;
    handshake.state = State::kAnswer;
    handshake.deadline = answer_by(handshake);
  }
  if ((events & (POLLIN | POLLHUP | POLLERR)) != 0 && handshake.state != State::kRefusing) {
    read_bytes(handshake);
  }
  if (!handshake.out.empty() && handshake.fd.valid()) {
    const ssize_t sent =
        ::send(handshake.fd.get(), handshake.out.data(), handshake.out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      handshake.out.erase(handshake.out.begin(), handshake.out.begin() + sent);
    } else if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
      handshake.out.clear();  // the other side is gone, and poll() would report that in a busy loop
    }
  }
  if (handshake.state == State::kRefusing && handshake.out.empty()) {
    if (handshake.fd.valid()) {
      ::shutdown(handshake.fd.get(), SHUT_WR);
    }
    handshake.state = State::kOver;
  }
}

}  // namespace smdp
