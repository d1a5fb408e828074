// Makes the connections of a rank before the loop runs: connects to some peers, accepts from others, and lets
// both sides of each prove that they belong to the job (hello.h). One poll() over all of them, so neither a
// slow rank nor a stranger who connects and says nothing holds up the rest.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "net/hello.h"
#include "net/socket.h"

namespace smdp {

class Greeter {
 public:
  using Link = std::pair<int, int>;  // rank, rail

  // `self`: what this rank says of itself; rank, rail, target and nonce are filled in for each connection.
  Greeter(Hello self, std::vector<std::byte> token, TimePoint deadline);
  ~Greeter();

  // Connects to `rank`, trying the addresses in turn. With `patient`, round after round until the deadline,
  // for a peer that may not listen yet.
  void connect(int rank, int rail, std::vector<Address> addresses, bool patient);
  // Asked for the addresses of a patient connection when all it has were tried in vain, at most twice a
  // second; none: they stay as they are. An error ends run().
  void set_lookup(std::function<Result<std::vector<Address>>()> lookup) { lookup_ = std::move(lookup); }
  // TCP's congestion control of the connections made from here; empty: the system's.
  void set_congestion(std::string name) { congestion_ = std::move(name); }
  // Accepts (rank, rail) on `listener`, whose owner keeps it open.
  void accept_on(int listener);
  void expect(int rank, int rail);
  // A connection beside those that are made: when its other side, `who`, closes it, run() ends with
  // kPeerLost. With `speaks` also when something came on it.
  void attend(int fd, std::string who, bool speaks);
  // What comes first on those that do not speak is shown to `hear` until it returns a status: if that is an
  // error, run() ends with it and it is told().
  using Hear = std::function<std::optional<Status>(int fd)>;
  void set_hearing(Hear hear) { hear_ = std::move(hear); }
  // A refusal whose sender does not prove that it belongs to the job may be a stranger's, and so may be a
  // caller that was refused. For so long, who refuses is called again, and, after all others are there, who
  // was refused is waited for. Default: until the deadline.
  void set_refusal_grace(double value_s) { refusal_grace_s_ = std::min(value_s, 1e6); }
  // Called twice a second while run() waits.
  void set_reminder(std::function<void()> remind) { remind_ = std::move(remind); }
  // Told of refusals without a proof: of each peer's first.
  void set_warning(std::function<void(const std::string&)> warn) { warn_ = std::move(warn); }

  // Runs until every connection is made, or fails naming what is missing and why. A proved peer that differs
  // (build, world size, generation, layout) ends it at once with kRefused.
  Status run();

  // After run(): its error is another rank's, in that rank's words.
  [[nodiscard]] bool told() const { return told_; }
  // After run(): the connections, also those made before a failure.
  std::map<Link, UniqueFd>& made() { return made_; }
  // The peers that could not be reached or refused us, with the reason.
  [[nodiscard]] const std::map<Link, std::string>& missing() const { return failed_; }

 private:
  struct Conversation;
  struct Attended {
    int fd = -1;
    std::string who;
    bool speaks = false;
    bool heard = false;
  };

  void begin(Conversation& talk);
  void begin_again(Conversation& talk);
  [[nodiscard]] TimePoint answer_by(const Conversation& talk) const;
  void next_address(Conversation& talk, const std::string& why);
  void step(Conversation& talk, short events);
  void read_bytes(Conversation& talk);
  void on_input(Conversation& talk);
  void on_hello(Conversation& talk);
  void on_answer(Conversation& talk);
  void on_proof(Conversation& talk);
  void on_welcome(Conversation& talk);
  void refuse(Conversation& talk, const std::string& why, bool proved);
  void hear_refusal(Conversation& talk, const std::string& why, bool proved);
  void believe_refusal(const Conversation& talk);
  void accept_all(int listener);
  bool hang_up_on_a_stranger();
  [[nodiscard]] std::size_t callers() const;
  void take(Attended& attended, short events);
  void end_overdue(std::size_t conversations, TimePoint now);
  [[nodiscard]] bool complete() const;
  [[nodiscard]] Status verdict() const;

  Hello self_;
  std::vector<std::byte> token_;
  TimePoint deadline_;
  std::size_t most_strangers_;
  double refusal_grace_s_ = 1e6;
  std::function<void()> remind_;
  std::function<void(const std::string&)> warn_;
  TimePoint reminded_ = Clock::now();
  std::function<Result<std::vector<Address>>()> lookup_;
  std::string congestion_;
  TimePoint looked_up_ = Clock::now();
  std::vector<int> listeners_;
  std::vector<Attended> attended_;
  Hear hear_ = [](int) { return Status(); };
  bool told_ = false;
  std::chrono::nanoseconds attention_{0};  // time in which this rank was there to hear its callers
  std::map<Link, std::string>
      expected_;  // not here yet; with the reason of a refusal, if one claimed to be it
  std::vector<std::unique_ptr<Conversation>> talks_;
  std::set<Link> proved_;  // refused although they proved the token: they differ
  std::map<Link, UniqueFd> made_;
  std::map<Link, std::string> failed_;
  Status fatal_;
};

}  // namespace smdp
