// A set of ranks that make calls together: numbers their calls, starts them in order, routes frames to them,
// and fails them all when a rank is lost or makes a different call.
//
// A group is local state only. Creating one sends nothing; destroying one reports to the other ranks which
// calls this rank does not complete any more.
//
// Belongs to its engine; all of it runs on the loop. The parts with a state of their own:
//
//   OpenCalls        which calls have not begun or run, and what begins next
//   PointToPoint     calls made of messages between two ranks
//   FailureDetector  late and departed ranks, and which rank is the cause
//   CallRecords      flight recorder and marks
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/executor.h"
#include "base/log.h"
#include "collectives/group/call_records.h"
#include "collectives/group/early_frames.h"
#include "collectives/group/failure_detector.h"
#include "collectives/group/open_calls.h"
#include "collectives/operation.h"
#include "collectives/point_to_point.h"
#include "layout/layout.h"
#include "shm/region_table.h"

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
  // The group has failed: frees its regions when these ranks of the job do not read them any more.
  virtual void retire(std::uint64_t group, std::shared_ptr<RegionTable> regions,
                      const std::vector<int>& readers) = 0;
  // Failed groups, and groups that lack memory, hold the whole arena: no region becomes free soon.
  [[nodiscard]] virtual bool is_held_by_failures() const = 0;
  virtual std::span<const std::byte> peek(int job_rank, std::uint64_t offset, std::uint64_t bytes) = 0;
  [[nodiscard]] virtual const Layout& layout() const = 0;
  virtual BulkBudget& budget() = 0;
  virtual void log(LogLevel level, const std::string& text) = 0;
  virtual FlightRecorder& flight() = 0;
  virtual MarkLog* marks() = 0;  // null: timelines and counters are off
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

class Group final : public OperationHost,
                    private PointToPoint::Host,
                    private FailureDetector::Host,
                    public std::enable_shared_from_this<Group> {
 public:
  // `members`: ranks of the job, in order of rank in the group. `me` is one of them.
  Group(GroupServices& services, std::uint64_t id, std::string name, std::vector<int> members, int me,
        const GroupSettings& settings);

  void submit(Call call);
  // Frames from a rank of the job that name this group.
  std::optional<Landing> place(int from, const FrameHeader& header);
  // False: the frame breaks the protocol.
  bool arrived(int from, const FrameHeader& header, Landing landing);
  void tick(TimePoint now);
  // An operation lacks shared memory.
  [[nodiscard]] bool is_starved() const;
  [[nodiscard]] std::size_t regions_held() const { return regions_->count(); }
  // A rank has read this rank's region at `offset`.
  void release(std::uint64_t offset) { regions_->release(offset); }
  // Fails every call on all ranks. `subject`: the call that `why` already names.
  void fail(const Status& why, std::optional<std::uint64_t> subject = std::nullopt) override {
    fail_calls(why, true, subject);
  }
  // Fails every call on this rank only.
  void fail_here(const Status& why) { fail_calls(why, false, std::nullopt); }
  // This rank destroys the group or closes its engine.
  void leave(Leaving how);
  void peer_lost(int job_rank, bool orderly, const Status& why);
  [[nodiscard]] const std::shared_ptr<const TracedGroup>& traced() const { return records_.group(); }
  // Writes into the flight records what each call under way waits for.
  void note_waits();
  [[nodiscard]] Executor::Work work() const;
  [[nodiscard]] std::size_t open_calls() const { return calls_.size() + messages_.exchanges().size(); }
  // Of frames and messages that arrived before the call that takes them.
  [[nodiscard]] std::uint64_t early_bytes() const { return early_.bytes() + messages_.unreceived_bytes(); }

  // OperationHost
  void send_network(int group_rank, Message message) override;
  Executor& executor() override { return services_.executor(); }
  void resume(const std::function<void()>& task) override;
  std::unique_ptr<LocalJob> make_local_job(LocalSpec spec, std::uint64_t operation,
                                           LocalJob::Events& events) override;
  void finished(std::uint64_t operation) override;
  BulkBudget& budget() override { return services_.budget(); }
  [[nodiscard]] bool is_oldest(std::uint64_t operation) const override { return calls_.is_oldest(operation); }

 private:
  // PointToPoint::Host
  void post(int group_rank, Message message) override { send_network(group_rank, std::move(message)); }
  [[nodiscard]] bool shares_host(int group_rank) const override;
  RegionTable& regions() override { return *regions_; }
  std::span<const std::byte> peek(int group_rank, std::uint64_t offset, std::uint64_t bytes) override;
  void disagree(const Exchange& exchange, int with, const std::string& how) override;
  void overrun(int by) override;
  void exchanged(const Exchange& exchange) override;

  // FailureDetector::Host
  void send_to_others(const FrameHeader& header) override { send_to_others(header, nullptr); }
  [[nodiscard]] bool has_failed() const override { return !failed_.ok(); }
  void warn(const std::string& text) override { services_.log(LogLevel::kWarning, text); }
  [[nodiscard]] std::string describe_rank(int group_rank) const override;
  [[nodiscard]] std::string describe_call(std::uint64_t call) const override;
  [[nodiscard]] std::string describe_wait(const Descriptor& what, std::uint64_t call,
                                          const Operation::Wait& wait) const override;

  // Submission
  void refuse(const Call& call);
  void submit_exchange(QueuedCall queued);
  void admit();
  void begin(QueuedCall queued);
  void start(QueuedCall queued);

  // Frames
  [[nodiscard]] std::optional<int> rank_of(int job_rank) const;
  bool on_abort(const FrameHeader& header, const Landing& landing);
  bool deliver_frame(int from, const FrameHeader& header, Landing landing);
  void send_to_others(FrameHeader header, const std::shared_ptr<std::vector<std::byte>>& payload);

  // Completion
  void reap();
  void share_budget();

  // Failure
  void check_departures();
  bool check_memory(TimePoint now);
  void mismatch(int from, const FrameHeader& header, const Descriptor& ours);
  void fail_calls(const Status& why, bool on_all_ranks, std::optional<std::uint64_t> subject);
  void end_calls(const Status& why, bool on_all_ranks, std::optional<std::uint64_t> subject);
  void end_running(const Status& why, std::optional<std::uint64_t> subject);
  void end_exchanges(const Status& why, std::optional<std::uint64_t> subject);
  void end_queued(const Status& why);
  void record_failures(const Status& why);
  void give_up_memory();

  GroupServices& services_;
  std::uint64_t id_;
  std::string name_;
  std::vector<int> members_;
  std::vector<int> places_;  // by rank of the job
  int rank_ = 0;
  GroupLayout layout_;
  GroupSettings settings_;
  CallRecords records_;
  std::shared_ptr<RegionTable> regions_;
  Status failed_;
  OpenCalls calls_;
  PointToPoint messages_;
  FailureDetector detector_;
  EarlyFrames early_;  // by operation
  std::vector<std::uint64_t> finished_;
  std::uint32_t next_message_collective_ = 0;
  bool inside_ = false;  // a function that calls reap() at its end is running
};

}  // namespace smdp
