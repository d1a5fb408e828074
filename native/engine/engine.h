// An engine: this process's membership in the job. It owns the loop, the connections, the shared memory and
// the groups.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/executor.h"
#include "bootstrap.h"
#include "collectives/group.h"
#include "net/transport.h"
#include "trace/clock_offset.h"
#include "trace/flight_recorder.h"
#include "trace/tracer.h"

namespace smdp {

struct EngineConfig {
  Identity identity;
  Options options;
  LogSink log;                   // null: standard error
  Tracer::EmitEvent emit_event;  // null: lines to SMDP_EVENT_PIPE, else on standard output
  // Tests put another transport between the hosts; null: TCP.
  std::function<std::unique_ptr<Transport>(Executor& executor, int rank)> make_transport;
};

// What an engine stands on: who runs its work, and the ways to the other ranks.
struct EngineParts {
  std::unique_ptr<Executor> executor;
  Layout layout;
  Arena arena;
  std::map<int, std::span<const std::byte>>
      peer_arenas;                // of the host's other ranks, as this rank reads them
  std::vector<Mapping> mappings;  // that hold them
  std::unique_ptr<Transport> network;
  std::unique_ptr<Transport> local;
  const KernelSet* kernels = nullptr;  // null: those that SMDP_KERNELS names
};

// What an engine has in use for calls; without any, nothing.
struct Holdings {
  std::uint64_t calls = 0;
  std::uint64_t regions = 0;          // of its shared memory: lent, or kept
  std::uint64_t in_flight_bytes = 0;  // of BulkBudget
  std::uint64_t parked_bytes = 0;     // of frames that came before their group or call
};

class Engine final : public GroupServices {
 public:
  // Blocks until every rank of the job is connected, or fails on every rank for the same reason.
  static Result<std::unique_ptr<Engine>> open(EngineConfig config);
  // The same on parts that are connected already.
  static Result<std::unique_ptr<Engine>> make(EngineConfig config, EngineParts parts);
  ~Engine() override;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // From any thread, in the same order on every member for one name and set of members. `members`: ranks of
  // the job.
  Result<std::uint64_t> create_group(const std::vector<int>& members, const std::string& name,
                                     double timeout_s);
  // Pending operations fail with kClosed here, and on the others as soon as they are made there.
  void destroy_group(std::uint64_t group);
  // Checks the call, then hands it to the loop. The memory stays the engine's until the handle is complete.
  Status submit(std::uint64_t group, int group_size, int group_rank, Call call);
  // kTimeout when the operation is not complete within `timeout_s` (below 0: never); it goes on then.
  Status wait(OperationHandle& handle, double timeout_s);
  // Says goodbye and waits up to SMDP_CLOSE_TIMEOUT_S for the others to do so. Safe to call twice.
  void close();
  // Ends at once and without a goodbye: for the others it is as if this process had died.
  void abandon();
  // The first half of close(), which does not wait: says goodbye. close() does the rest.
  void depart();
  // Every other rank said goodbye or is lost.
  [[nodiscard]] bool is_alone();
  // On the loop, or where nothing runs.
  [[nodiscard]] Holdings holdings() const;
  // Writes the flight records of this rank to a file in `folder` (empty: in SMDP_TRACE_DIR) and says where.
  // kTimeout when the loop is held up by something.
  Result<std::string> dump(const std::string& folder, const std::string& reason);
  // Until every other rank said goodbye or is lost, at most SMDP_CLOSE_TIMEOUT_S.
  void await_others();

  [[nodiscard]] const Layout& layout() const override { return layout_; }
  [[nodiscard]] int rank() const { return rank_; }
  // False in a forked child, where nothing may be asked of it, not even to be destroyed.
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
  Tracer* tracer() override { return tracer_.get(); }
  void failed(const Status& why) override;

 private:
  // Frames from the network, and from this host's ranks: the same handling, but each kind only from its own
  // side.
  class Side final : public Transport::Events {
   public:
    Side(Engine& engine, bool local) : engine_(engine), local_(local) {}
    std::optional<Landing> place(int peer, const FrameHeader& header) override;
    void arrived(int peer, const FrameHeader& header, Landing landing) override;
    void lost(int peer, bool orderly, Status why) override { engine_.lost(peer, orderly, why); }

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
  void spoil(std::uint64_t group) noexcept;
  void exhausted() noexcept;
  void tick();
  void start_traces();
  void tick_traces(TimePoint now);
  Result<std::string> write_flight(const std::string& folder, const std::string& reason);
  // Writes the records where SMDP_TRACE_DIR says, if it does, and tells.
  void keep_flight(const std::string& reason);
  // What is to be written before the engine ends.
  void keep_last_flight(bool orderly);
  // Asks rank 0 for its time, in series of questions.
  void ask_clock(TimePoint now);
  void send_clock(int peer, FrameType type, std::uint64_t asked, std::uint64_t theirs);
  // False when the frame is about something else.
  bool handle_clock(int peer, const FrameHeader& header);
  void release(const FrameHeader& header);
  void let_go(int peer, std::uint64_t group);
  void clear_unread(std::uint64_t group);
  [[nodiscard]] std::size_t regions_in_use() const { return arena_.regions_in_use() - permanent_regions_; }
  [[nodiscard]] Executor::Work work() const;

  EngineConfig config_;
  LogSink log_;
  int rank_;
  pid_t owner_;
  Layout layout_;
  Arena arena_;
  std::size_t permanent_regions_;  // of it: the transport's
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
  std::map<std::uint64_t, std::uint32_t> instances_;  // guarded by mutex_: groups made per name and members
  bool all_gone_ = false;                             // guarded by mutex_
  bool closed_ = false;                               // guarded by mutex_
  bool owes_end_ = false;                             // guarded by mutex_: depart() was called, end() was not

  // On the loop.
  std::map<std::uint64_t, std::shared_ptr<Group>> groups_;
  std::set<std::uint64_t> destroyed_;
  ParkedFrames unclaimed_;           // by group
  std::set<std::uint64_t> spoiled_;  // groups of which frames were lost before they were made
  struct Loss {
    bool orderly = false;
    Status why;
  };
  std::map<int, Loss> gone_;
  // Of groups that have failed: regions, and who may still read them.
  struct Retired {
    std::shared_ptr<RegionTable> regions;
    std::set<int> readers;
  };
  std::map<std::uint64_t, Retired> retired_;
  std::map<std::uint64_t, std::set<int>> releases_;  // of groups that have not failed here: who reads no more
  FlightRecorder flight_;
  std::unique_ptr<Tracer> tracer_;  // null: nobody asked for timelines or counters
  std::uint64_t dumps_seen_ = 0;
  TimePoint kept_at_{};          // when the records were last written
  std::string failure_;          // why a group failed; of some that fail together, the first
  bool unkept_failure_ = false;  // one came too soon after the last writing
  ClockOffset rank0_clock_;
  TimePoint next_clock_series_{};
};

}  // namespace smdp
