// One collective under way on one rank: the state of its pieces between the host's step and the network.
//
// A reducing piece, on its agent: contributed -> summed inside the host -> sent to the owner (or to every
// host) -> host sums added in the order of hosts -> published to the other agents -> delivered inside each
// host. A publishing piece: origin -> one agent per other host -> delivered inside each host -> credit back
// to the origin.
//
// Each piece counts the events this rank still waits for; the operation is complete when no piece waits and
// the kernel has taken every byte of ours. No rank completes before every rank of the group has made the same
// call: either the result depends on all, or the plan carries a barrier piece.
//
// Copies and sums may run on other threads (offload.h). What follows from them is in the function that is
// handed over with them, so that a step reads the same whether its bytes were moved at once or meanwhile.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "collectives/budget.h"
#include "collectives/call.h"
#include "collectives/offload.h"
#include "collectives/plan.h"
#include "net/transport.h"
#include "shm/local_reducer.h"
#include "trace/marks.h"

namespace smdp {

// What an operation needs from its group.
class OperationHost {
 public:
  virtual ~OperationHost() = default;
  virtual void send_network(int group_rank, Message message) = 0;
  virtual Executor& executor() = 0;
  // Runs what goes on in an operation without a frame that came.
  virtual void resume(const std::function<void()>& task) = 0;
  virtual std::unique_ptr<LocalJob> make_local_job(LocalSpec spec, std::uint64_t operation,
                                                   LocalJob::Events& events) = 0;
  // The operation is complete; called once, the operation must be destroyed later than during this call.
  virtual void finished(std::uint64_t operation) = 0;
  [[nodiscard]] virtual std::string describe_rank(int group_rank) const = 0;
  virtual BulkBudget& budget() = 0;
  // The oldest operation under way may always go on, whatever the others took of the budget.
  [[nodiscard]] virtual bool is_oldest(std::uint64_t operation) const = 0;
};

// What traces know of an operation.
struct OperationTrace {
  std::uint64_t record = 0;  // of the flight recorder
  Marks marks;
};

// How the values of one call are added up.
struct Folding {
  ReduceFn fold = nullptr;         // of the ranks' values within a host
  ReduceFn merge = nullptr;        // of the hosts' sums as they travel
  std::uint32_t host_divisor = 1;  // of an average: the two together are the number of ranks
  std::uint32_t divisor = 1;
};

class Operation final : public LocalJob::Events {
 public:
  Operation(OperationHost& host, std::uint64_t number, Call call, const GroupLayout& layout, int rank,
            const PlanOptions& options, const KernelSet& kernels, std::uint32_t window, TimePoint deadline,
            TimePoint warn_at, const OperationTrace& trace);

  ~Operation() override;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  void start();
  // Frames of this operation. False when a frame is none of the plan: the peer broke the protocol.
  std::optional<Landing> place(int from, const FrameHeader& header);
  bool arrived(int from, const FrameHeader& header, Landing landing);
  bool local_frame(int from, const FrameHeader& header);
  // Retries what waits for memory.
  void advance();
  // Nothing of the call's memory is touched any more. For an operation that ends before it is complete.
  void abandon() { offload_.cancel(); }

  [[nodiscard]] const Call& call() const { return call_; }
  [[nodiscard]] std::uint64_t number() const { return number_; }
  [[nodiscard]] TimePoint deadline() const { return deadline_; }
  [[nodiscard]] TimePoint warn_at() const { return warn_at_; }
  void warn_again_at(TimePoint when) { warn_at_ = when; }
  // So little has happened until now that to look every millisecond is soon enough, and it is not near its
  // end, where each look would count.
  [[nodiscard]] bool is_leisurely(TimePoint now) const;
  // Since when there has been no shared memory for what it has to do.
  [[nodiscard]] std::optional<TimePoint> starved_since() const {
    return local_ ? local_->starved_since() : std::nullopt;
  }
  [[nodiscard]] const OperationTrace& trace() const { return trace_; }
  // Ranks that somebody waits for, and ranks that said so: a rank in the first set and not in the second is
  // the one.
  std::set<int>& suspects() { return suspects_; }
  std::set<int>& witnesses() { return witnesses_; }
  // For whom this rank said last that it waits, and when.
  struct Told {
    TimePoint at;
    std::vector<int> ranks;
  };
  [[nodiscard]] const std::optional<Told>& told() const { return told_; }
  void tells(Told told) { told_ = std::move(told); }

  // What it waits for: the phase in words, and the ranks of the group.
  struct Wait {
    std::string phase;
    std::vector<int> ranks;
  };
  [[nodiscard]] Wait waiting_for() const;

 private:
  struct InFlight {
    std::vector<const std::byte*> sums;  // by host
    std::vector<Landing> landings;
    std::shared_ptr<const void> keep;  // of this host's own sum, where it was narrowed
    std::size_t count = 0;
    std::size_t parts_left = 0;  // of the addition, once all are there
  };
  // Elements of a piece, of which each host's sum begins at one of `sums`.
  struct Part {
    std::size_t first = 0;
    std::size_t count = 0;
    std::vector<const std::byte*> sums;
  };

  // LocalJob::Events
  void contributed(std::uint32_t piece) override;
  void summed(std::uint32_t piece, std::span<const std::byte> sum) override;
  void handed_over(std::uint32_t piece) override;
  void delivered(std::uint32_t piece) override;
  void taken(std::uint32_t piece) override;

  [[nodiscard]] const Marks& marks() const { return trace_.marks; }
  void expect_words();
  void expect_words_of_origin(std::uint32_t piece);
  void expect_words_of_sums(std::uint32_t piece);
  [[nodiscard]] std::size_t local_of(int rank) const {
    return static_cast<std::size_t>(layout_.local_of[static_cast<std::size_t>(rank)]);
  }
  [[nodiscard]] const Piece& at(std::uint32_t piece) const { return plan_.pieces[piece]; }
  [[nodiscard]] bool is_agent(std::uint32_t piece) const {
    return layout_.agent(my_host_, at(piece).lane) == rank_;
  }
  [[nodiscard]] bool has_passed(std::uint32_t piece, std::uint8_t what) const {
    return (passed_[piece] & what) != 0;
  }
  [[nodiscard]] std::vector<int> receivers_of(std::uint32_t piece) const;
  [[nodiscard]] bool adds_hosts(std::uint32_t piece) const;
  [[nodiscard]] bool gets_result(std::uint32_t piece) const;
  [[nodiscard]] std::uint32_t events_of(std::uint32_t piece) const;
  void account(std::uint32_t piece);
  void check_complete();
  bool sum_next();
  bool may_send(std::uint32_t piece);
  void settle(std::uint32_t piece);
  bool publish_next();
  InFlight& flight(std::uint32_t piece);
  void add_sum(std::uint32_t piece, int host, const std::byte* data, Landing landing);
  // What travels for a piece between hosts, where that is not the call's own type.
  [[nodiscard]] bool narrowed(std::uint32_t piece) const;
  [[nodiscard]] std::uint64_t wire_bytes(std::uint32_t piece) const;
  [[nodiscard]] std::size_t element_on_wire(std::uint32_t piece) const;
  void send_summed(std::uint32_t piece, std::span<const std::byte> sum,
                   const std::shared_ptr<const void>& keep);
  void send_sum(std::uint32_t piece, std::span<const std::byte> payload,
                const std::shared_ptr<const void>& keep);
  [[nodiscard]] std::vector<Part> parts_of(std::uint32_t piece,
                                           const std::vector<const std::byte*>& sums) const;
  void add_hosts_up(std::uint32_t piece, const Part& part, std::byte* merged, std::byte* result) const;
  void put_result(std::uint32_t piece, std::size_t count, const std::byte* from, std::byte* to) const;
  bool try_combine(std::uint32_t piece);
  void publish_combined(std::uint32_t piece, std::span<const std::byte> payload,
                        const std::shared_ptr<const void>& keep);
  bool settle_published(std::uint32_t piece, Landing landing);
  template <class Done>
  void put_landed(std::uint32_t piece, Landing landing, std::byte* to, Done done);
  void send(int to, FrameType type, std::uint32_t piece, std::span<const std::byte> payload,
            std::shared_ptr<const void> keep);

  OperationHost& host_;
  BulkBudget& budget_;  // the engine's, which outlives all groups
  std::uint64_t number_;
  Call call_;
  const GroupLayout& layout_;
  int rank_;
  int my_host_;
  int hosts_;
  Plan plan_;
  std::uint32_t window_;
  std::uint32_t round_ = 1;  // pieces of one round that this agent sums, or more
  const KernelSet& kernels_;
  Folding folding_;
  std::optional<DType> wire_dtype_;  // of the sums of this call between hosts, where they are narrowed
  Conversion conversion_;
  TimePoint deadline_;
  TimePoint warn_at_;
  OperationTrace trace_;
  Offload offload_;
  std::set<int> suspects_;
  std::set<int> witnesses_;
  std::optional<Told> told_;
  std::unique_ptr<LocalJob> local_;

  // By piece: what has happened to it.
  static constexpr std::uint8_t kSummed = 1;     // this agent made its host's sum
  static constexpr std::uint8_t kPublished = 2;  // its final bytes have come from another host
  std::vector<std::uint8_t> passed_;
  std::vector<std::uint32_t> waits_;  // by piece: events still to come
  std::uint64_t pieces_left_ = 0;
  std::uint64_t sums_seen_ = 0;  // of hosts, made here or received
  std::uint32_t in_flight_ = 0;  // reducing pieces between sum and settlement
  std::uint64_t in_flight_bytes_ = 0;
  std::uint32_t publishing_ = 0;          // own publishing pieces not yet credited
  std::map<int, std::uint32_t> sending_;  // by rank: messages whose payload is not sent
  std::deque<std::uint32_t> ready_;       // contributed, not yet summed
  std::deque<std::uint32_t> to_publish_;
  std::deque<std::uint32_t> to_combine_;  // all host sums there, no memory for the result
  std::deque<std::pair<std::uint32_t, Landing>> to_deliver_;
  std::unordered_map<std::uint32_t, InFlight> flights_;
  std::unordered_map<std::uint32_t, std::set<int>> credited_;  // by own publishing piece: hosts that have it
  TimePoint started_at_{};
  bool started_ = false;
  bool finished_ = false;
};

}  // namespace smdp
