// Makes the connections of a rank before the loop runs: connects to some peers, accepts from others, and runs
// the handshake in which both sides of each connection prove that they belong to the job (hello.h). One
// poll() serves all connections, so neither a slow rank nor an unauthenticated client that sends nothing
// delays the others.
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
#include "net/handshake/hello.h"
#include "net/socket.h"

namespace smdp {

class Handshaker {
 public:
  using Link = std::pair<int, int>;  // rank, rail

  // `self`: the hello of this rank; rail, target and nonce are filled in for each connection.
  Handshaker(Hello self, std::vector<std::byte> token, TimePoint deadline);
  ~Handshaker();

  // Connects to `rank`, trying the addresses in turn. With `retries`, repeats that until the deadline,
  // because the peer may not listen yet.
  void connect(int rank, int rail, std::vector<Address> addresses, bool retries);
  // Called for new addresses of a connection with `retries` when all its addresses failed, at most twice a
  // second. An empty list changes nothing. An error ends run().
  void set_lookup(std::function<Result<std::vector<Address>>()> lookup) { lookup_ = std::move(lookup); }
  // TCP congestion control of the outgoing connections; empty: the system's.
  void set_congestion(std::string name) { congestion_ = std::move(name); }
  // Accepts (rank, rail) on `listener`, whose owner keeps it open.
  void accept_on(int listener);
  void expect(int rank, int rail);
  // Watches an existing connection to `peer`: when the peer closes it, run() ends with kPeerLost. With
  // `speaks`, run() also ends when the peer sends something.
  void watch(int fd, std::string peer, bool speaks);
  // Called when data arrives on a watched connection without `speaks`, until it returns a status. If that is
  // an error, run() ends with it and ended_by_peer() is true.
  using ReadError = std::function<std::optional<Status>(int fd)>;
  void set_error_reader(ReadError read) { read_error_ = std::move(read); }
  // A refusal without proof may come from a process outside the job, and so may a refused client. For this
  // many seconds, run() connects again to a peer that refuses, and, once all other ranks are there, waits for
  // the real rank of a refused client. Default: until the deadline.
  void set_refusal_grace(double value_s) { refusal_grace_s_ = std::min(value_s, 1e6); }
  // Called twice a second while run() waits.
  void set_reminder(std::function<void()> remind) { remind_ = std::move(remind); }
  // Called for the first refusal without proof of each peer.
  void set_warning(std::function<void(const std::string&)> warn) { warn_ = std::move(warn); }

  // Runs until every connection is made, or fails and names the missing peers and the reasons. An
  // authenticated peer that differs (build, world size, generation, layout) ends it at once with kRefused.
  Status run();

  // After run(): its error comes from another rank.
  [[nodiscard]] bool ended_by_peer() const { return ended_by_peer_; }
  // After run(): the connections, including those made before a failure.
  std::map<Link, UniqueFd>& connections() { return connections_; }
  // The peers that could not be reached or that refused this rank, with the reason.
  [[nodiscard]] const std::map<Link, std::string>& missing() const { return failed_; }

 private:
  struct Handshake;
  struct Watched {
    int fd = -1;
    std::string peer;
    bool speaks = false;
    bool has_sent = false;  // and read_error_ has seen it
  };

  void begin(Handshake& handshake);
  void restart(Handshake& handshake);
  [[nodiscard]] TimePoint answer_by(const Handshake& handshake) const;
  void next_address(Handshake& handshake, const std::string& why);
  void step(Handshake& handshake, short events);
  void read_bytes(Handshake& handshake);
  void on_input(Handshake& handshake);
  void on_hello(Handshake& handshake);
  void on_answer(Handshake& handshake);
  void on_proof(Handshake& handshake);
  void refuse(Handshake& handshake, const std::string& why, bool proved);
  void on_refusal(Handshake& handshake, const std::string& why, bool proved);
  void accept_refusal(const Handshake& handshake);
  void accept_all(int listener);
  bool drop_oldest_client();
  [[nodiscard]] std::size_t unauthenticated_clients() const;
  void on_watched(Watched& watched, short events);
  void end_overdue(std::size_t handshakes, TimePoint now);
  [[nodiscard]] bool complete() const;
  [[nodiscard]] Status verdict() const;

  Hello self_;
  std::vector<std::byte> token_;
  TimePoint deadline_;
  std::size_t most_unauthenticated_;
  double refusal_grace_s_ = 1e6;
  std::function<void()> remind_;
  std::function<void(const std::string&)> warn_;
  TimePoint reminded_ = Clock::now();
  std::function<Result<std::vector<Address>>()> lookup_;
  std::string congestion_;
  TimePoint looked_up_ = Clock::now();
  std::vector<int> listeners_;
  std::vector<Watched> watched_;
  ReadError read_error_ = [](int) { return Status(); };
  bool ended_by_peer_ = false;
  std::chrono::nanoseconds listening_time_{0};  // for which this rank has served its clients
  std::map<Link, std::string> expected_;  // not connected yet: why a client that claimed to be it was refused
  std::vector<std::unique_ptr<Handshake>> handshakes_;
  std::set<Link> proved_;  // refused although they proved the token, because they differ
  std::map<Link, UniqueFd> connections_;
  std::map<Link, std::string> failed_;
  Status fatal_;
};

}  // namespace smdp
