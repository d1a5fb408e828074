#include "others.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "world.h"

namespace smdp::fuzzing {
namespace {

// The head of an answer (docs/reference/wire-format.md): tag, length as u16.
constexpr std::uint8_t kAccept = 1;
constexpr std::uint8_t kRefuse = 2;
constexpr std::uint8_t kWelcome = 3;
constexpr std::size_t kAnswerHead = 3;
constexpr std::size_t kMostBlob = 64U << 20U;

// A command is one byte: its number, which connection, and whether all pending bytes are sent at once.
enum Command : unsigned {
  kCall,
  kTake,
  kRaw,
  kHello,
  kProve,
  kAcceptHello,
  kRefuseHello,
  kWelcomeHello,
  kBlock,
  kSpoil,
  kPiece,
  kLeave,
  kHalfClose,
  kTime,
  kStopListening,
  kAnyAnswer,
};

void append(Bytes& bytes, std::span<const std::byte> more) {
  bytes.insert(bytes.end(), more.begin(), more.end());
}

// Closes with a reset, so that no port stays reserved for a minute.
void close_at_once(int fd) {
  const linger none{1, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
}

}  // namespace

bool Others::turn() {
  for (Line& line : lines_) {
    hear(line);
  }
  if (input_.empty()) {
    bool sent = false;
    for (Line& line : lines_) {
      sent = sent || (line.fd.valid() && !line.pending.empty());
      send(line, line.pending.size());
      line.pending.clear();
    }
    return sent;
  }
  const unsigned command = input_.u8();
  Line& line = lines_[command >> 4U & 7U];
  act(command & 15U, line);
  if ((command & 0x80U) != 0) {
    send(line, line.pending.size());
  }
  return true;
}

void Others::act(unsigned command, Line& line) {
  switch (command) {
    case kCall:
      call(line);
      return;
    case kTake:
      accept(line);
      return;
    case kRaw:
      append(line.pending, input_.take(input_.u8()));
      return;
    case kHello:
      write_hello(line);
      return;
    case kProve:
      write_proof(line);
      return;
    case kAcceptHello:
      write_acceptance(line);
      return;
    case kRefuseHello:
      write_answer(line, kRefuse);
      return;
    case kWelcomeHello:
      append(line.pending, Writer().put(kWelcome).put(std::uint16_t{0}).take());
      welcomes_ += line.proved ? 1 : 0;
      return;
    case kBlock:
      write_block(line);
      return;
    case kSpoil:
      spoil(line);
      return;
    case kPiece:
      send(line, input_.u8());
      return;
    case kLeave:
      leave(line);
      return;
    case kHalfClose:
      ::shutdown(line.fd.get(), SHUT_WR);
      return;
    case kTime:
      pass_time();
      return;
    case kStopListening:
      listener_.reset();
      return;
    default:
      write_answer(line, input_.u8());
  }
}

void Others::call(Line& line) {
  if (engine_.host.empty()) {
    return;
  }
  if (Result<UniqueFd> fd = begin_connect(engine_); fd.ok()) {
    line = Line{};
    line.fd = std::move(*fd);
    line.called = true;
    close_at_once(line.fd.get());
  }
}

void Others::accept(Line& line) {
  UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (fd.valid()) {
    line = Line{};
    line.fd = std::move(fd);
    close_at_once(line.fd.get());
  }
}

// With two zeros: what the rank under test expects from the rank of this connection's number.
Hello Others::hello_of(Line& line) {
  const unsigned odd = input_.u8();
  const unsigned who = input_.u8();
  const auto number = static_cast<std::uint32_t>(&line - lines_.data());
  Hello hello = self_;
  hello.rank = line.called ? number + 1 : 0;
  hello.rank ^= who & 3U;
  hello.rail = who >> 2U & 3U;
  hello.target = self_.rank ^ (who >> 4U & 3U);
  hello.protocol = static_cast<std::uint16_t>(hello.protocol + (odd & 1U));
  hello.purpose = (odd & 2U) != 0 ? Purpose::kLocal : hello.purpose;
  hello.build += (odd & 4U) != 0 ? "-other" : "";
  hello.world_size += odd >> 3U & 1U;
  hello.generation += odd >> 4U & 1U;
  hello.session += odd >> 5U & 1U;
  hello.layout_hash += odd >> 6U & 1U;
  hello.nonce.fill(static_cast<std::byte>(who));
  return hello;
}

void Others::write_hello(Line& line) {
  line.ours = encode(hello_of(line));
  line.introduced = true;
  append(line.pending, line.ours);
}

// The hello of the rank under test, as far as it has arrived: behind the head of an answer, or at once.
EncodedHello Others::theirs(const Line& line) const {
  EncodedHello hello{};
  const std::size_t from = line.called ? kAnswerHead : 0;
  if (line.heard.size() >= from + kHelloBytes) {
    std::copy_n(line.heard.begin() + static_cast<std::ptrdiff_t>(from), kHelloBytes, hello.begin());
  }
  return hello;
}

void Others::write_proof(Line& line) {
  if (!line.introduced) {
    return;
  }
  append(line.pending, prove_connect(token_, line.ours, theirs(line)));
  line.proved = true;
  ++proofs_;
}

void Others::write_acceptance(Line& line) {
  line.theirs = theirs(line);
  line.ours = encode(hello_of(line));
  const EncodedHello& ours = line.ours;
  const Digest proof = prove_accept(token_, line.theirs, ours);
  append(line.pending, Writer()
                           .put(kAccept)
                           .put(static_cast<std::uint16_t>(ours.size() + proof.size()))
                           .raw(ours)
                           .raw(proof)
                           .take());
  line.proved = true;
  ++proofs_;
}

void Others::write_answer(Line& line, std::uint8_t tag) {
  const std::uint8_t size = input_.u8();
  Bytes text;
  if ((size & 0x80U) != 0) {
    append(text, as_bytes_of("this is rank "));
  }
  append(text, input_.take(size & 0x7fU));
  if (tag == kRefuse && line.proved && !line.called) {
    const Digest proof = prove_refusal(token_, line.theirs, line.ours, text);
    text.insert(text.begin(), proof.begin(), proof.end());
  }
  append(line.pending, Writer().put(tag).put(static_cast<std::uint16_t>(text.size())).raw(text).take());
}

// The envelope of a round of the rendezvous: 0 and the bytes, or a code and a text.
Bytes Others::envelope(unsigned kind) {
  const auto body = input_.take(input_.u8());
  switch (kind) {
    case 0:
      return Writer().put(std::uint8_t{0}).raw(body).take();
    case 1:
      return Writer().put(input_.u8()).put(static_cast<std::uint32_t>(body.size())).raw(body).take();
    default:
      return {body.begin(), body.end()};
  }
}

void Others::write_block(Line& line) {
  const unsigned kind = input_.u8();
  if ((kind & 3U) == 3) {  // a length without bytes
    const std::size_t length = input_.u16();
    const std::size_t said = length < 0x8000U ? length : kMostBlob + length - 0x7fffU;
    append(line.pending, Writer().put(static_cast<std::uint32_t>(said)).take());
    return;
  }
  const Bytes text = envelope(kind & 3U);
  append(line.pending, Writer().put(static_cast<std::uint32_t>(text.size())).raw(text).take());
}

void Others::spoil(Line& line) {
  const std::size_t at = input_.u8();
  const auto by = static_cast<std::byte>(input_.u8());
  if (!line.pending.empty()) {
    line.pending[at % line.pending.size()] ^= by;
  }
}

void Others::pass_time() {
  using std::chrono::milliseconds;
  constexpr std::array kTimes{milliseconds(1), milliseconds(60), milliseconds(600), milliseconds(11'000),
                              milliseconds(61'000)};
  World::current()->pass(kTimes[input_.u8() % kTimes.size()]);
}

void Others::send(Line& line, std::size_t most) {
  const std::size_t bytes = std::min(most, line.pending.size());
  if (bytes == 0 || !line.fd.valid()) {
    return;
  }
  const ssize_t sent = ::send(line.fd.get(), line.pending.data(), bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent > 0) {
    line.pending.erase(line.pending.begin(), line.pending.begin() + sent);
  }
}

void Others::hear(Line& line) {
  std::array<std::byte, 4096> chunk{};
  while (line.fd.valid()) {
    const ssize_t got = ::recv(line.fd.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (got <= 0) {
      return;
    }
    append(line.heard, std::span(chunk).first(static_cast<std::size_t>(got)));
  }
}

// Sends its pending bytes and closes before any answer can arrive.
void Others::leave(Line& line) {
  send(line, line.pending.size());
  line = Line{};
}

}  // namespace smdp::fuzzing
