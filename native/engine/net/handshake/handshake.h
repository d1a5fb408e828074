// The state of one connection that a Handshaker makes (handshaker.cc), and the steps of its hello
// (handshake.cc).
#pragma once

#include "net/handshake/handshaker.h"

namespace smdp {

// One connection that is being made. The connecting side passes kConnecting, kAnswer, kWelcomed; the
// accepting side kHello, kProof. `in` collects `wanted` bytes before the function of the state reads them.
struct Handshaker::Handshake {
  enum class State : std::uint8_t {
    kWaiting,
    kConnecting,
    kAnswer,
    kWelcomed,
    kHello,
    kProof,
    kRefusing,
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
  TimePoint deadline = TimePoint::max();
  std::chrono::nanoseconds listen_until{0};  // accepting side: by Handshaker::listening_time_
  TimePoint retry_at{};
  // Connecting side only.
  std::vector<Address> addresses;
  std::size_t next = 0;
  bool retries = false;
  bool was_closed = false;  // by a peer that may be busy: worth another round of the addresses
  std::string why = "no answer";
  std::string refusal;        // the last one
  TimePoint doubted_until{};  // set by the first refusal without proof
};

}  // namespace smdp
