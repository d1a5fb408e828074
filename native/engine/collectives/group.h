// A set of ranks that call collectives together: numbers their operations, starts them in order, routes
// frames to them, and fails them all when one of the ranks is lost or made another call.
//
// Operations are numbered by the order of calls, or, for buffers named by (step, index, count), by those
// names: then ranks may submit the buffers of a step in different orders, and each rank starts them by index.
// A group is local state only. Making one sends nothing; destroying one tells the others which calls it will
// not complete any more.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/executor.h"
#include "base/log.h"
#include "collectives/layout.h"
#include "collectives/mail.h"
#include "collectives/operation.h"
#include "collectives/parked_frames.h"
#include "shm/region_table.h"
#include "trace/flight_recorder.h"
#include "trace/tracer.h"

namespace smdp {

// What a group needs from its engine; all on the loop.
class GroupServices {
 public:
  virtual ~GroupServices() = default;
  // To a rank of the job, over the network or to a rank of this host.
  virtual void send(int job_rank, Message message) = 0;
  virtual void cancel(std::uint64_t group, std::uint64_t operation) = 0;
  virtual void later(std::function<void()> task) = 0;
  virtual Executor& executor() = 0;
  virtual Arena& arena() = 0;
  // The group has failed: its regions go once these ranks of the job do not read them any more.
  virtual void retire(std::uint64_t group, std::shared_ptr<RegionTable> regions,
                      const std::vector<int>& readers) = 0;
  // Groups that have failed hold the arena, beside those that lack memory: none will be given back soon.
  [[nodiscard]] virtual bool is_held_by_failures() const = 0;
  virtual std::span<const std::byte> peek(int job_rank, std::uint64_t offset, std::uint64_t bytes) = 0;
  [[nodiscard]] virtual const Layout& layout() const = 0;
  virtual BulkBudget& budget() = 0;
  virtual void log(LogLevel level, const std::string& text) = 0;
  virtual FlightRecorder& flight() = 0;
  virtual Tracer* tracer() = 0;  // null: nobody asked for timelines or counters
  // A group failed on this rank; its records are complete.
  virtual void failed(const Status& why) = 0;
};

struct GroupSettings {
  PlanOptions plan;
  const KernelSet* kernels = nullptr;  // which outlives the group
  std::uint32_t window = 16;
  std::size_t buffers_in_flight = 4;  // on a few hosts; twice as many on more
  double timeout_s = 1800;
  double warn_s = 4.5;
};

class Group final : public OperationHost, private MailHost, public std::enable_shared_from_this<Group> {
 public:
  // `members`: ranks of the job, in order of rank in the group. `me` is one of them.
  Group(GroupServices& services, std::uint64_t id, std::string name, std::vector<int> members, int me,
        const GroupSettings& settings);

  void submit(Call call);
  // Frames from a rank of the job, already known to name this group.
  std::optional<Landing> place(int from, const FrameHeader& header);
  // False: the frame broke the protocol.
  bool arrived(int from, const FrameHeader& header, Landing landing);
  void tick(TimePoint now);
  // An operation lacks shared memory.
  [[nodiscard]] bool is_starved() const;
  [[nodiscard]] std::size_t regions_held() const { return regions_->count(); }
  // This rank's memory at `offset` was read by one that it had been offered to.
  void release(std::uint64_t offset) { regions_->release(offset); }
  // Fails every call. `tell`: on all ranks. `subject`: the call that `why` places already.
  void fail(const Status& why, bool tell, std::optional<std::uint64_t> subject = std::nullopt);
  // This rank destroys the group.
  void leave();
  void peer_lost(int job_rank, bool orderly, const Status& why);
  [[nodiscard]] const std::shared_ptr<const TracedGroup>& traced() const { return traced_; }
  // Writes into the flight records what each operation under way waits for.
  void note_waits();
  [[nodiscard]] bool busy() const { return in_collectives() || !mail_.under_way().empty(); }
  [[nodiscard]] Executor::Work work() const;
  [[nodiscard]] std::size_t open_calls() const {
    return active_.size() + queue_.size() + named_.size() + mail_.under_way().size();
  }
  [[nodiscard]] std::uint64_t parked_bytes() const { return parked_.bytes() + mail_.parked_bytes(); }

  // OperationHost
  void send_network(int group_rank, Message message) override;
  Executor& executor() override { return services_.executor(); }
  void resume(const std::function<void()>& task) override;
  std::unique_ptr<LocalJob> make_local_job(LocalSpec spec, std::uint64_t operation,
                                           LocalJob::Events& events) override;
  void finished(std::uint64_t operation) override;
  [[nodiscard]] std::string describe_rank(int group_rank) const override;
  BulkBudget& budget() override { return services_.budget(); }
  [[nodiscard]] bool is_oldest(std::uint64_t operation) const override;

 private:
  // The number spaces of an operation: by order of calls, by name, and of those made of messages.
  static constexpr std::uint64_t kNamed = 1ULL << 63U;
  static constexpr std::uint64_t kMail = 1ULL << 62U;
  static bool is_mail(std::uint64_t operation) { return operation >> 62U == 1; }
  // Ordered and named operations have no order among each other.
  static bool is_later(std::uint64_t one, std::uint64_t other) {
    return ((one ^ other) & kNamed) == 0 && one > other;
  }

  struct Waiting {
    std::uint64_t number = 0;
    Call call;
    TimePoint deadline;
    TimePoint submitted;
    std::uint64_t record = 0;  // of the flight recorder
  };

  // MailHost
  void post(int group_rank, Message message) override { send_network(group_rank, std::move(message)); }
  [[nodiscard]] bool shares_host(int group_rank) const override;
  RegionTable& regions() override { return *regions_; }
  std::span<const std::byte> peek(int group_rank, std::uint64_t offset, std::uint64_t bytes) override;
  void disagree(const Exchange& exchange, int with, const std::string& how) override;
  void overrun(int by) override;
  void exchanged(const Exchange& exchange) override;

  // Of a call that is made now; each of the three kinds has its own.
  std::uint64_t number_of(const Call& call);
  void submit_exchange(Waiting waiting);
  void tick_mail(TimePoint now);
  void tell_waits(TimePoint now);
  void hear_waits(int from, int awaited, TimePoint now);
  [[nodiscard]] std::vector<int> mail_culprits(const std::vector<int>& awaited, TimePoint now) const;
  void end_calls(const Status& why, bool tell, std::optional<std::uint64_t> subject);
  void end_active(const Status& why, std::optional<std::uint64_t> subject);
  void give_up_memory();
  bool check_memory(TimePoint now);
  void fail_mail(const Status& why, std::optional<std::uint64_t> subject);
  void check_who_left(const Exchange& exchange, TimePoint now);
  [[nodiscard]] std::string describe_wait(const Exchange& exchange) const;
  [[nodiscard]] bool in_collectives() const { return !active_.empty() || !queue_.empty() || !named_.empty(); }

  [[nodiscard]] std::optional<int> rank_of(int job_rank) const;
  // The group's ranks on this host, this one among them.
  [[nodiscard]] const std::vector<int>& of_this_host() const {
    return layout_.hosts[static_cast<std::size_t>(layout_.host_of[static_cast<std::size_t>(rank_)])];
  }
  void admit();
  void begin(Waiting waiting);
  void start(Waiting waiting);
  [[nodiscard]] OperationTrace trace_begin(const Waiting& waiting, TimePoint now);
  void trace_end(const OperationTrace& trace, const Status& status);
  void record_failures(const Status& why);
  void note_wait(FlightRecord& record, const Operation::Wait& wait) const;
  // A call that comes when the group has failed.
  void refuse(const Call& call);
  bool deliver_frame(int from, const FrameHeader& header, Landing landing);
  void reap();
  void share_budget();
  // Not begun here yet, as opposed to over.
  [[nodiscard]] bool is_ahead(std::uint64_t number) const;
  // The oldest call that is not complete here, or the number of the next; by order of calls or named.
  [[nodiscard]] std::uint64_t first_open(bool named) const;
  [[nodiscard]] bool has_open(bool named) const;
  [[nodiscard]] bool hear_suspicion(int from, const FrameHeader& header);
  void forget_hearsay(int from, std::uint64_t operation);
  void check_departures();
  void check_closed(TimePoint now);
  void mismatch(int from, const FrameHeader& header, const Descriptor& ours);
  void check_times(Operation& operation, TimePoint now);
  void tell_suspicions(Operation& operation, TimePoint now);
  void say_suspicions(Operation& operation, TimePoint now);
  void tell_why_behind(std::uint64_t awaited_in, TimePoint now);
  void check_queue(TimePoint now);
  [[nodiscard]] std::string name_operation(std::uint64_t number) const;
  [[nodiscard]] std::string describe_wait(const Operation& operation, const std::vector<int>& ranks) const;
  [[nodiscard]] std::string describe_wait(const Descriptor& what, std::uint64_t operation,
                                          const std::string& phase, const std::vector<int>& ranks) const;
  [[nodiscard]] std::vector<int> culprits(Operation& operation) const;
  void tell_all(FrameHeader header, const std::shared_ptr<std::vector<std::byte>>& payload);

  GroupServices& services_;
  std::uint64_t id_;
  std::string name_;
  std::vector<int> members_;
  std::vector<int> places_;  // by rank of the job
  std::shared_ptr<const TracedGroup> traced_;
  int rank_ = 0;
  GroupLayout layout_;
  GroupSettings settings_;
  std::shared_ptr<RegionTable> regions_;
  Status failed_;
  std::uint64_t next_number_ = 0;  // of the next call
  std::uint64_t begun_ = 0;        // operations by order of calls that have begun
  std::uint64_t next_step_ = 0;    // of the next named buffer to begin
  std::uint64_t next_index_ = 0;
  std::deque<Waiting> queue_;
  std::map<std::uint64_t, Waiting> named_;
  std::map<std::uint64_t, std::unique_ptr<Operation>> active_;
  ParkedFrames parked_;  // by operation
  std::vector<std::uint64_t> finished_;
  std::uint64_t next_exchange_ = 0;
  std::uint32_t next_message_collective_ = 0;
  Mail mail_;
  std::map<int, TimePoint> closed_;  // members, by rank of the group, that closed their engine, and when
  struct Departure {
    int rank = 0;  // of the group
    std::uint64_t first = 0;
    std::uint64_t first_named = 0;
    TimePoint at{};
  };
  std::vector<Departure> departures_;  // members that destroyed the group
  // What ranks that are behind said of calls that are complete here: whom they wait for there.
  struct Hearsay {
    std::uint64_t operation = 0;
    std::set<int> suspects;
  };
  std::map<int, Hearsay> hearsay_;  // by rank of the group
  // What ranks said when somebody had waited for a message until the deadline: whom they wait for themselves.
  struct ToldWait {
    std::set<int> ranks;
    TimePoint at{};
  };
  std::map<int, ToldWait> told_waits_;  // by rank of the group
  TimePoint told_own_waits_{};
  std::optional<std::uint64_t> warned_;  // the last operation that a warning told of
  bool inside_ = false;                  // an entry function is running and will reap
};

}  // namespace smdp
