// The others of a rank's hello, as an input scripts them: ranks that know the token, ranks that do not,
// strangers.
//
// Each command of the script is one turn (world.h). Most only write into a connection's pending bytes; what
// is pending goes out whole or in the pieces that the script says. The text of the commands is below.
#pragma once

#include <array>
#include <functional>
#include <string>

#include "base/fd.h"
#include "input.h"
#include "net/hello.h"
#include "net/socket.h"

namespace smdp::fuzzing {

class Others {
 public:
  // `self`: the rank under test. Both outlive this object.
  Others(Input& input, const Hello& self, std::span<const std::byte> token)
      : input_(input), self_(self), token_(token) {}

  // Where the rank under test can be called, once it is known, and where it calls.
  void call_at(Address address) { engine_ = std::move(address); }
  void answer_on(UniqueFd listener) { listener_ = std::move(listener); }
  // A connection that was made before; the script knows it as its last.
  void hold(UniqueFd connection) { lines_.back().fd = std::move(connection); }

  // One command; false when the script is at its end and everything is sent.
  bool turn();

  // Proofs with the right token that went out, and welcomes after such.
  [[nodiscard]] int proofs() const { return proofs_; }
  [[nodiscard]] int welcomes() const { return welcomes_; }

 private:
  static constexpr std::size_t kLines = 8;

  // One connection, from either side.
  struct Line {
    UniqueFd fd;
    bool called = false;  // by us
    Bytes pending;
    Bytes heard;
    EncodedHello ours{};
    EncodedHello theirs{};    // of who was accepted
    bool introduced = false;  // `ours` was written
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
