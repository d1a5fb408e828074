// An engine: one rank of the job. It owns the loop, the connections, the shared memory and the groups.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/executor.h"
#include "bootstrap.h"
#include "collectives/group/group.h"
#include "collectives/group/retired_regions.h"
#include "net/transport/transport.h"
#include "record/flight_recorder.h"
#include "trace/timeline/clock_offset.h"
#include "trace/timeline/tracer.h"

namespace smdp {

struct EngineConfig {
  Identity identity;
  Options options;
  LogSink log;                   // null: standard error
  Tracer::EmitEvent emit_event;  // null: lines to SMDP_EVENT_PIPE, or to standard output
  // Tests use another transport between the hosts; null: what SMDP_TRANSPORT chooses.
  std::function<std::unique_ptr<Transport>(Executor& executor, int rank)> make_transport;
};

// The parts of an engine: its executor, and the connections to the other ranks.
struct EngineParts {
  std::unique_ptr<Executor> executor;
  Layout layout;
  Arena arena;
  std::map<int, std::span<const std::byte>> peer_arenas;  // of the other ranks of the host
  std::vector<Mapping> mappings;                          // of peer_arenas
  std::unique_ptr<Transport> network;
  std::unique_ptr<Transport> local;
  const KernelSet* kernels = nullptr;  // null: those that SMDP_KERNELS names
};

// Creates the loop, and transports over the connections.
EngineParts make_parts(const EngineConfig& config, Connections connections);

// The resources that calls use. All zero when no call is open.
struct Usage {
  std::uint64_t calls = 0;
  std::uint64_t regions = 0;          // of its shared memory, with lent receive buffers
  std::uint64_t in_flight_bytes = 0;  // of BulkBudget
  std::uint64_t early_bytes = 0;      // of frames that arrived before their group or call
};

class Engine final : public GroupServices {
 public:
  // Blocks until every rank of the job is connected, or fails on every rank for the same reason.
  static Result<std::unique_ptr<Engine>> open(EngineConfig config);
  // The same with parts that are connected already.
  static Result<std::unique_ptr<Engine>> make(EngineConfig config, EngineParts parts);
  ~Engine() override;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // From any thread, in the same order on every member for one name and set of members. `members`: ranks of
  // the job.
  Result<std::uint64_t> create_group(const std::vector<int>& members, const std::string& name,
                                     double timeout_s);
  // Pending operations fail with kClosed on this rank, and on the other ranks as soon as these make the same
  // calls.
  void destroy_group(std::uint64_t group);
  // On all ranks of the group. A group that has failed keeps its first reason.
  void fail_group(std::uint64_t group, const Status& why);
  // Checks the call, then passes it to the loop. The memory belongs to the engine until the handle is
  // complete.
  Status submit(std::uint64_t group, int group_size, int group_rank, Call call);
  // kTimeout when the operation is not complete within `timeout_s` (below 0: no limit); the operation
  // continues.
  Status wait(OperationHandle& handle, double timeout_s);
  // Sends a goodbye and waits up to SMDP_CLOSE_TIMEOUT_S for the other ranks to do so. Safe to call twice.
  void close();
  // Ends at once without a goodbye: to the other ranks this process has died.
  void abandon();
  // The first half of close(): sends the goodbye and does not wait. close() does the rest.
  void depart();
  // Every other rank has sent a goodbye or is lost.
  [[nodiscard]] bool is_alone();
  // On the loop, or while the loop does not run.
  [[nodiscard]] Usage usage() const;
  // Writes the flight records of this rank to a file in `folder` (empty: in SMDP_TRACE_DIR) and returns its
  // path. kTimeout when the loop is blocked.
  Result<std::string> dump(const std::string& folder, const std::string& reason);
  // Waits until every other rank has sent a goodbye or is lost, at most SMDP_CLOSE_TIMEOUT_S.
  void await_others();
  // A part of the shared memory that the caller divides itself, for as long as the engine lives; the same at
  // every call. The other ranks of the host read values in it in place. Empty: SMDP_REGISTERED_MIB is 0.
  Result<std::span<std::byte>> registered_memory();
  // Before close(): the shared memory stays mapped until the process ends.
  void keep_memory() { arena_.keep(); }

  [[nodiscard]] const Layout& layout() const override { return layout_; }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] const Options& options() const { return config_.options; }
  // False in a forked child, which must not use the engine, and must not destroy it either.
  [[nodiscard]] bool is_own() const;

  // GroupServices, on the loop
  void send(int job_rank, Message message) override;
  void cancel(std::uint64_t group, std::uint64_t operation) override;
  void later(std::function<void()> task) override { executor_->post(std::move(task)); }
  Executor& executor() override { return *executor_; }
  Arena& arena() override { return arena_; }
  void retire(std::uint64_t group, std::shared_ptr<RegionTable> regions,
              const std::vector<int>& readers) override;
  [[nodiscard]] bool is_held_by_failures() const override;
  std::span<const std::byte> peek(int job_rank, std::uint64_t offset, std::uint64_t bytes) override;
  BulkBudget& budget() override { return budget_; }
  void log(LogLevel level, const std::string& text) override { log_(level, text); }
  FlightRecorder& flight() override { return flight_; }
  MarkLog* marks() override { return tracer_ ? &tracer_->log() : nullptr; }
  void failed(const Status& why) override;

 private:
  // Frames from the network, or from ranks of this host. Each kind of frame is accepted from one of the two
  // only.
  class Side final : public Transport::Events {
   public:
    Side(Engine& engine, bool local) : engine_(engine), local_(local) {}
    std::optional<Landing> place(int peer, const FrameHeader& header) override;
    void arrived(int peer, const FrameHeader& header, Landing landing) override;
    void lost(int peer, bool orderly, Status why) override { engine_.lost(peer, orderly, why); }
    void released(std::uint64_t group) override;

   private:
    Engine& engine_;
    bool local_;
  };

  Engine(EngineConfig config, EngineParts parts);
  Status start();
  [[nodiscard]] int copy_threads() const;
  // False when it was called before.
  bool begin_end(bool orderly);
  void end(bool orderly);
  void handle(int peer, const FrameHeader& header, Landing landing);
  void lost(int peer, bool orderly, const Status& why);
  void broken(int peer);
  void add_group(std::uint64_t id, const std::string& name, const std::vector<int>& members,
                 double timeout_s);
  void fail_new_group(std::uint64_t id, const std::string& name, const std::vector<int>& members) noexcept;
  [[nodiscard]] Status no_memory() const;
  std::optional<Landing> place_unclaimed(const FrameHeader& header);
  void mark_incomplete(std::uint64_t group) noexcept;
  void exhausted() noexcept;
  void tick();
  void start_traces();
  void tick_traces(TimePoint now);
  Result<std::string> write_flight(const std::string& folder, const std::string& reason);
  // Writes the records to SMDP_TRACE_DIR, if it is set, and logs the path.
  void save_records(const std::string& reason);
  // Writes the records that are due before the engine ends.
  void save_last_records(bool orderly);
  // Requests the time of rank 0, in series of requests.
  void request_clock(TimePoint now);
  void send_clock(int peer, FrameType type, std::uint64_t requested_at, std::uint64_t theirs);
  // False: the frame is not about clocks.
  bool handle_clock(int peer, const FrameHeader& header);
  void release(const FrameHeader& header);
  [[nodiscard]] std::size_t regions_in_use() const { return arena_.regions_in_use() - permanent_regions_; }
  [[nodiscard]] Executor::Work work() const;

  EngineConfig config_;
  LogSink log_;
  int rank_;
  pid_t owner_;
  Layout layout_;
  Arena arena_;
  std::size_t permanent_regions_;            // of arena_: those of the transport, and registered_
  std::optional<std::uint64_t> registered_;  // on the loop: offset in arena_
  std::map<int, std::span<const std::byte>> peer_arenas_;
  std::vector<Mapping> mappings_;
  BulkBudget budget_;
  std::unique_ptr<Executor> executor_;
  Side network_side_;
  Side local_side_;
  std::unique_ptr<Transport> network_;
  std::unique_ptr<Transport> local_;
  GroupSettings settings_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint64_t, std::uint32_t>
      instances_;             // guarded by mutex_: groups created per name and members
  bool all_gone_ = false;     // guarded by mutex_
  bool closed_ = false;       // guarded by mutex_
  bool end_pending_ = false;  // guarded by mutex_: depart() was called, end() was not

  // On the loop.
  std::map<std::uint64_t, std::shared_ptr<Group>> groups_;
  std::set<std::uint64_t> destroyed_;
  EarlyFrames unclaimed_;               // by group
  std::set<std::uint64_t> incomplete_;  // groups that lost frames before they were created
  struct Loss {
    bool orderly = false;
    Status why;
  };
  std::map<int, Loss> gone_;
  RetiredRegions retired_;
  FlightRecorder flight_;
  std::unique_ptr<Tracer> tracer_;  // null: timelines and counters are off
  std::uint64_t dumps_seen_ = 0;
  TimePoint saved_at_{};          // when the records were last written
  std::string failure_;           // why a group failed; of groups that fail together, the first
  bool unsaved_failure_ = false;  // a failure came too soon after the last writing
  ClockOffset rank0_clock_;
  TimePoint next_clock_series_{};
};

}  // namespace smdp
