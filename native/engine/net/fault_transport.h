// A transport for tests: ranks in one process, and everything a network may do to messages.
//
// Messages are handed from loop to loop, held back and let go in a random order, and swallowed, damaged or
// cut off on demand. It is beside the real transport in the same seam, so the whole engine above runs
// unchanged.
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
#include "net/transport.h"

namespace smdp {

struct FaultPlan {
  std::uint32_t seed = 1;
  double hold = 0;  // share of messages that are held back, to be overtaken by later ones
};

// The network that the transports of one test share. Outlives them. Any thread.
class FaultFabric {
 public:
  explicit FaultFabric(FaultPlan plan = {}) : plan_(plan), random_(plan.seed) {}

  std::unique_ptr<Transport> attach(Executor& executor, int rank);
  // From now on, all that `rank` sends disappears (a paused process, a dead switch).
  void silence(int rank);
  // From now on, what `from` sends to `to` disappears, and what comes back does not (half a link).
  void drop(int from, int to);
  // From now on, `rank` takes one message in a tick, however many wait for it.
  void slow_down(int rank);
  // From now on, what `from` sends to `to` waits for release().
  void hold(int from, int to);
  void release();
  // Every other rank is told that `rank` is lost (a crash), and `rank` that the others are.
  void cut(int rank);
  // The next message from `rank` arrives with another size in its header.
  void damage_next(int rank);
  // The longest chain of messages so far, each sent after its sender had received the one before.
  [[nodiscard]] int longest_chain();
  // The most bytes of host sums that `rank` had out at a time without the piece's result.
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
  std::mutex mutex_;  // guards all below
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
