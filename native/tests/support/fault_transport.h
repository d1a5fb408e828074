// A transport for tests: ranks in one process, and every fault that a network may have.
//
// It passes messages from loop to loop, delays and releases them in random order, and drops, damages or cuts
// them on request. It implements the interface of the real transport, so the engine above it is unchanged.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <vector>

#include "base/executor.h"
#include "net/transport/transport.h"

namespace smdp {

struct FaultPlan {
  std::uint32_t seed = 1;
  double hold = 0;  // share of messages that are delayed, so that later ones overtake them
};

// The network that the transports of one test share. Outlives them. Any thread.
class FaultFabric {
 public:
  explicit FaultFabric(FaultPlan plan = {}) : plan_(plan), random_(plan.seed) {}

  std::unique_ptr<Transport> attach(Executor& executor, int rank);
  // From now on, drops everything that `rank` sends (a paused process, a dead switch).
  void silence(int rank);
  // From now on, drops everything that `from` sends to `to`, but not the other direction (half a link).
  void drop(int from, int to);
  // From now on, `rank` reads one message per tick.
  void slow_down(int rank);
  // From now on, messages from `from` to `to` wait for release().
  void hold(int from, int to);
  void release();
  // Every other rank loses `rank` (a crash), and `rank` loses the others.
  void cut(int rank);
  // The next message from `rank` arrives with another size in its header.
  void damage_next(int rank);
  // The longest chain of messages so far, each sent after its sender had received the one before.
  [[nodiscard]] int longest_chain();
  // The most bytes of host sums that `rank` had in flight at a time without the piece's result.
  [[nodiscard]] std::uint64_t most_unanswered(int rank);

 private:
  class Endpoint;
  struct Parcel {
    int from = 0;
    int to = 0;
    FrameHeader header;
    std::shared_ptr<std::vector<std::byte>> payload;
    int step = 1;  // in its chain
  };
  struct Account {
    std::uint64_t unanswered = 0;
    std::uint64_t most = 0;
  };

  void carry(Parcel parcel);
  void keep_account(const Parcel& parcel);
  void let_go(int ticking);
  void hand_over(const Parcel& parcel);

  FaultPlan plan_;
  std::mutex mutex_;  // guards the members below
  std::mt19937 random_;
  std::map<int, Endpoint*> endpoints_;
  std::set<int> silent_;
  std::set<std::pair<int, int>> dropping_;
  std::map<int, std::deque<Parcel>> unread_;  // by slow reader
  std::set<int> damaged_;
  std::vector<Parcel> held_;
  std::set<std::pair<int, int>> slow_links_;
  std::vector<Parcel> slow_;
  int longest_chain_ = 0;
  std::map<int, Account> accounts_;
};

}  // namespace smdp
