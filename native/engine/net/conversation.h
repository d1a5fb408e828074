// The state of one connection that a Greeter is making (greeter.cc), and the steps of its hello
// (conversation.cc).
#pragma once

#include "net/greeter.h"

namespace smdp {

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
  std::chrono::nanoseconds heard_until{0};  // accepting side: by the greeter's attention
  TimePoint retry_at{};
  // Connecting side only.
  std::vector<Address> addresses;
  std::size_t next = 0;
  bool patient = false;
  bool was_closed = false;  // by one that may be busy: another round of the addresses is worth it
  std::string why = "no answer";
  std::string refusal;        // the last one
  TimePoint doubted_until{};  // set by the first one without a proof
};

}  // namespace smdp
