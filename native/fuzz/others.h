// The other processes in a rank's hello, which follow the script of an input: ranks with the token, ranks
// without it, and unauthenticated clients.
//
// Each command of the script is one turn (world.h). Most only append to a connection's pending bytes, which
// are sent whole or in the pieces that the script sets. The commands are described in others.cc.
#pragma once

#include <array>
#include <functional>
#include <string>

#include "base/fd.h"
#include "input.h"
#include "net/handshake/hello.h"
#include "net/socket.h"

namespace smdp::fuzzing {

class Others {
 public:
  // `self`: the rank under test. Both outlive this object.
  Others(Input& input, const Hello& self, std::span<const std::byte> token)
      : input_(input), self_(self), token_(token) {}

  // The address of the rank under test, once it is known, and the address that it connects to.
  void call_at(Address address) { engine_ = std::move(address); }
  void answer_on(UniqueFd listener) { listener_ = std::move(listener); }
  // An existing connection, which becomes the script's last one.
  void hold(UniqueFd connection) { lines_.back().fd = std::move(connection); }

  // Runs one command; false: the script has ended and everything is sent.
  bool turn();

  // Sent proofs with the right token, and welcomes after them.
  [[nodiscard]] int proofs() const { return proofs_; }
  [[nodiscard]] int welcomes() const { return welcomes_; }

 private:
  static constexpr std::size_t kLines = 8;

  // One connection, from either side.
  struct Line {
    UniqueFd fd;
    bool called = false;  // connected from this side
    Bytes pending;
    Bytes heard;
    EncodedHello ours{};
    EncodedHello theirs{};    // of the accepted rank
    bool introduced = false;  // `ours` was sent
    bool proved = false;
  };

  void act(unsigned command, Line& line);
  void call(Line& line);
  void accept(Line& line);
  void listen(Line& line);
  void write_hello(Line& line);
  void write_proof(Line& line);
  void write_acceptance(Line& line);
  void write_answer(Line& line, std::uint8_t tag);
  void write_block(Line& line);
  void spoil(Line& line);
  void pass_time();
  void send(Line& line, std::size_t most);
  static void hear(Line& line);
  void leave(Line& line);
  [[nodiscard]] Hello hello_of(Line& line);
  [[nodiscard]] EncodedHello theirs(const Line& line) const;
  [[nodiscard]] Bytes envelope(unsigned kind);

  Input& input_;
  const Hello& self_;
  std::span<const std::byte> token_;
  Address engine_;
  UniqueFd listener_;
  std::array<Line, kLines> lines_;
  int proofs_ = 0;
  int welcomes_ = 0;
};

}  // namespace smdp::fuzzing
