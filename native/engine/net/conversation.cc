// The hello, step by step, on both sides: docs/wire_format.md.
#include "net/conversation.h"

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
constexpr std::size_t kMaxSentence = 512;

Bytes answer(std::byte tag, std::span<const std::byte> body) {
  return Writer()
      .put(static_cast<std::uint8_t>(tag))
      .put(static_cast<std::uint16_t>(body.size()))
      .raw(body)
      .take();
}

std::string sentence_of(std::span<const std::byte> refusal) {
  const std::string why = plain_text(refusal);
  return why.empty() ? "it refused and gave no reason" : why;
}

}  // namespace

void Greeter::next_address(Conversation& talk, const std::string& why) {
  talk.why = why;
  talk.fd.reset();
  talk.state = Conversation::State::kWaiting;
  talk.ends = TimePoint::max();
  ++talk.next;
}

void Greeter::refuse(Conversation& talk, const std::string& why, bool proved) {
  const auto sentence = as_bytes_of(why).first(std::min(why.size(), kMaxSentence));
  Writer body;
  if (talk.state == Conversation::State::kProof) {
    body.raw(prove_refusal(token_, talk.their_hello, talk.our_hello, sentence));
  }
  talk.out = answer(kRefuse, body.raw(sentence).take());
  talk.state = Conversation::State::kLastWords;
  const Link claimed{static_cast<int>(talk.theirs.rank & 0x7fffffffU),
                     static_cast<int>(talk.theirs.rail & 0xffU)};
  if (const auto found = expected_.find(claimed); found != expected_.end()) {
    const bool is_first = std::exchange(found->second, why).empty();
    if (proved) {
      proved_.insert(claimed);
    } else if (is_first && warn_) {
      warn_("a caller that says it is rank " + std::to_string(claimed.first) + " was refused: " + why);
    }
  }
}

// Of the side that called. One without a proof ends nothing while it is in doubt: this rank calls again.
void Greeter::hear_refusal(Conversation& talk, const std::string& why, bool proved) {
  const TimePoint now = Clock::now();
  next_address(talk, why);
  if (talk.refusal.empty() && !proved) {
    talk.doubted_until = now + seconds(refusal_grace_s_);
    if (warn_ && now < talk.doubted_until) {
      warn_("the process that answered as rank " + std::to_string(talk.link.first) +
            " refused without proof that it has the SMDP_JOB_TOKEN; this rank calls again: " + why);
    }
  }
  talk.refusal = why;
  if (proved || now >= talk.doubted_until) {
    believe_refusal(talk);
  }
}

void Greeter::believe_refusal(const Conversation& talk) {
  failed_[talk.link] = talk.refusal;
  fatal_ = {Code::kRefused, talk.refusal};
}

void Greeter::on_hello(Conversation& talk) {
  if (talk.wanted == kMagicBytes) {
    if (!begins_hello(talk.in)) {
      talk.state = Conversation::State::kOver;  // some other program: no answer
      return;
    }
    talk.wanted = kHelloBytes;
    return;
  }
  std::ranges::copy(talk.in, talk.their_hello.begin());
  const auto hello = decode_hello(talk.their_hello);
  if (!hello) {
    talk.state = Conversation::State::kOver;
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
  // One that is here already may come again: it gave up waiting for an answer that was on its way.
  const bool is_known = expected_.contains(claimed) || made_.contains(claimed);
  if (hello->purpose != self_.purpose || hello->target != self_.rank || !is_known) {
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
  const bool is_of_welcome = talk.state == Conversation::State::kWelcomed;
  if (length > kMaxSentence + (is_of_welcome ? sizeof(Digest) : 0)) {
    next_address(talk, "something that is not this engine answered");
    return;
  }
  if (talk.in.size() < kAnswerHead + length) {
    talk.wanted = kAnswerHead + length;
    return;
  }
  const auto body = reader.raw(length);
  if (tag == kRefuse) {
    const auto proof = body.first(is_of_welcome ? std::min(length, sizeof(Digest)) : 0);
    const auto sentence = body.subspan(proof.size());
    const bool proved = is_of_welcome && equal_digests(proof, prove_refusal(token_, talk.our_hello,
                                                                            talk.their_hello, sentence));
    const std::string why = sentence_of(sentence);
    if (why.starts_with("this is rank")) {
      next_address(talk, why);
    } else {
      hear_refusal(talk, why, proved);
    }
    return;
  }
  if (is_of_welcome) {
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
  talk.ends = TimePoint::max();  // from its proof on the other side may count the link as made
  if (!proved) {
    (void)send_all(talk.fd.get(), talk.out, Clock::now() + std::chrono::seconds(1));
    const std::string why = "wrong token: rank " + std::to_string(talk.link.first) +
                            " does not have the SMDP_JOB_TOKEN of rank " + std::to_string(self_.rank);
    hear_refusal(talk, why, false);
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
        talk.was_closed = true;
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
    talk.ends = answer_by(talk);
  }
  if ((events & (POLLIN | POLLHUP | POLLERR)) != 0 && talk.state != State::kLastWords) {
    read_bytes(talk);
  }
  if (!talk.out.empty() && talk.fd.valid()) {
    const ssize_t sent = ::send(talk.fd.get(), talk.out.data(), talk.out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      talk.out.erase(talk.out.begin(), talk.out.begin() + sent);
    } else if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
      talk.out.clear();  // nobody is there to read it, and poll() would report that again and again
    }
  }
  if (talk.state == State::kLastWords && talk.out.empty()) {
    if (talk.fd.valid()) {
      ::shutdown(talk.fd.get(), SHUT_WR);
    }
    talk.state = State::kOver;
  }
}

}  // namespace smdp
