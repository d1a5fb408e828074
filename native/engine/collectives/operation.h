// One collective that runs on one rank: the state of its pieces between the step inside the host and the
// network.
//
//   operation.cc         start, completion, and the frames of the operation
//   reduction.cc         reducing pieces: the algorithm of all_reduce, reduce and reduce_scatter
//   publication.cc       publishing pieces: broadcast and all_gather, and results on their way to other hosts
//   operation_report.cc  what the operation waits for
//
// Each piece counts the events that this rank still waits for. The operation is complete when no piece waits
// and the kernel has taken every byte that this rank sends. No rank completes before every rank of the group
// has made the same call: either the result depends on all ranks, or the plan has a barrier piece.
//
// Copies and sums may run on other threads (offload.h). The code that follows them is in a function that is
// passed along, so that a step reads the same whether its bytes are moved at once or later.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "collectives/budget.h"
#include "collectives/call.h"
#include "layout/plan.h"
#include "net/transport/transport.h"
#include "record/marks.h"
#include "shm/local_reducer.h"
#include "shm/offload.h"

namespace smdp {

// What an operation needs from its group.
class OperationHost {
 public:
  virtual ~OperationHost() = default;
  virtual void send_network(int group_rank, Message message) = 0;
  virtual Executor& executor() = 0;
  // Runs a part of an operation that no frame and no tick starts.
  virtual void resume(const std::function<void()>& task) = 0;
  virtual std::unique_ptr<LocalJob> make_local_job(LocalSpec spec, std::uint64_t operation,
                                                   LocalJob::Events& events) = 0;
  // The operation is complete. Called once; the operation must outlive the call.
  virtual void finished(std::uint64_t operation) = 0;
  virtual BulkBudget& budget() = 0;
  // The oldest running operation may always send, however much of the budget the others use.
  [[nodiscard]] virtual bool is_oldest(std::uint64_t operation) const = 0;
};

// What traces record of an operation.
struct OperationTrace {
  std::uint64_t record = 0;  // of the flight recorder
  Marks marks;
};

// How the values of one call are summed.
struct Folding {
  ReduceFn fold = nullptr;         // sums the ranks' values within a host
  ReduceFn merge = nullptr;        // sums the hosts' sums, in their type between hosts
  std::uint32_t host_divisor = 1;  // for an average: the product of both divisors is the number of ranks
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
  // Frames of this operation. False: the frame does not belong to the plan, so the peer breaks the protocol.
  std::optional<Landing> place(int from, const FrameHeader& header);
  bool arrived(int from, const FrameHeader& header, Landing landing);
  bool local_frame(int from, const FrameHeader& header);
  // Retries steps that had no memory.
  void advance();
  // Stops using the call's memory. For an operation that ends before it is complete.
  void abandon() { offload_.cancel(); }

  [[nodiscard]] const Call& call() const { return call_; }
  [[nodiscard]] std::uint64_t number() const { return number_; }
  [[nodiscard]] TimePoint deadline() const { return deadline_; }
  // So few steps have happened that checking every millisecond is enough, and the end is not near.
  [[nodiscard]] bool is_leisurely(TimePoint now) const;
  // Since when it has found no shared memory for its next step.
  [[nodiscard]] std::optional<TimePoint> starved_since() const {
    return local_ ? local_->starved_since() : std::nullopt;
  }
  [[nodiscard]] const OperationTrace& trace() const { return trace_; }
  // Kept for the failure detector, which alone changes it.
  struct Watch {
    struct Report {
      TimePoint at;
      std::vector<int> ranks;
    };
    TimePoint warn_at;
    std::set<int> suspects;        // ranks that other ranks wait for in this operation
    std::set<int> reporters;       // ranks that reported whom they wait for
    std::optional<Report> report;  // the last report of this rank
  };
  [[nodiscard]] Watch& watch() { return watch_; }

  // What it waits for: a description of the phase, and the ranks of the group.
  struct Wait {
    std::string phase;
    std::vector<int> ranks;
  };
  [[nodiscard]] Wait waiting_for() const;

 private:
  struct InFlight {
    std::vector<const std::byte*> sums;  // by host
    std::vector<Landing> landings;
    std::shared_ptr<const void> keep;  // owner of this host's own sum, where it was narrowed
    std::size_t count = 0;
    std::size_t parts_left = 0;  // of the addition, once all sums are there
  };
  // Some elements of a piece: where they begin in each host's sum.
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
  void expect_frames();
  void expect_origin(std::uint32_t piece);
  void expect_sums(std::uint32_t piece);
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
  [[nodiscard]] Wait wait_of_flights() const;
  [[nodiscard]] std::vector<int> absent_sums(std::uint32_t piece) const;
  [[nodiscard]] int sender_of_result(std::uint32_t piece) const;
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
  bool on_host_sum(int from, int host, const FrameHeader& header, Landing landing);
  void add_sum(std::uint32_t piece, int host, const std::byte* data, Landing landing);
  // Whether the piece is sent between hosts in another type than the call's.
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
  bool on_sum_received(std::uint32_t piece);
  bool on_published(int from, int host, const FrameHeader& header, Landing landing);
  bool on_receipt(int from, int host, std::uint32_t piece);
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
  std::uint32_t round_ = 1;  // at least the pieces of one round that this agent sums
  const KernelSet& kernels_;
  Folding folding_;
  std::optional<DType> wire_dtype_;  // the type of sums between hosts, where they are narrowed
  Conversion conversion_;
  TimePoint deadline_;
  Watch watch_;
  OperationTrace trace_;
  Offload offload_;
  std::unique_ptr<LocalJob> local_;

  // By piece: what has happened to it.
  static constexpr std::uint8_t kSummed = 1;     // this agent has its host's sum
  static constexpr std::uint8_t kPublished = 2;  // its final bytes have arrived from another host
  std::vector<std::uint8_t> passed_;
  std::vector<std::uint32_t> waits_;  // by piece: events that this rank waits for
  std::uint64_t pieces_left_ = 0;
  std::uint64_t sums_seen_ = 0;  // host sums, computed here or received
  std::uint32_t in_flight_ = 0;  // reducing pieces between sum and settlement
  std::uint64_t in_flight_bytes_ = 0;
  std::uint32_t publishing_ = 0;          // own publishing pieces not yet credited
  std::map<int, std::uint32_t> sending_;  // by rank: messages whose payload is not sent
  std::deque<std::uint32_t> ready_;       // contributed, not yet summed
  std::deque<std::uint32_t> to_publish_;
  std::deque<std::uint32_t> to_combine_;  // all host sums are there, but no memory for the result
  std::deque<std::pair<std::uint32_t, Landing>> to_deliver_;
  std::unordered_map<std::uint32_t, InFlight> flights_;
  std::unordered_map<std::uint32_t, std::set<int>> credited_;  // by own publishing piece: hosts that have it
  TimePoint started_at_{};
  bool started_ = false;
  bool finished_ = false;
};

}  // namespace smdp
