// One run of a job in its world: the engines of all ranks, their calls, the injected faults, and the judge of
// the outcome (judge.cc).
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine.h"
#include "scenario.h"
#include "values.h"
#include "virtual_executor.h"
#include "virtual_network.h"
#include "world.h"

namespace smdp::simulation {

class Job {
 public:
  Job(const JobPlan& plan, bool records);
  Verdict run();

 private:
  // One call on one rank.
  struct CallOnRank {
    std::uint32_t number = 0;
    Descriptor what;
    int group_rank = 0;
    std::string name;  // for messages
    Values values;
    std::shared_ptr<OperationHandle> handle;
    Status refused;
    TimePoint at{};
    TimePoint ended{};
    std::size_t digest = 0;  // of its values, where it failed

    [[nodiscard]] bool is_over() const { return !refused.ok() || handle->is_complete(); }
    [[nodiscard]] const Status& status() const { return refused.ok() ? handle->status() : refused; }
  };

  struct Rank {
    std::vector<std::unique_ptr<CallOnRank>> made;  // outlives the engine, which writes to the calls
    std::unique_ptr<Engine> engine;
    VirtualExecutor* executor = nullptr;            // the engine's
    std::map<std::uint32_t, std::uint64_t> groups;  // by index in the plan: the engine's number
    std::set<std::uint32_t> destroyed;              // of groups
    std::vector<std::uint32_t> calls;               // numbers of its calls, in its order
    std::size_t next = 0;                           // index into calls
    bool waits = false;                             // continues when a call is complete
    bool is_over = false;                           // it has made all its calls
    bool is_gone = false;                           // it died or left early: nothing is required of it
    bool has_lost_memory = false;
    bool was_paused = false;
    bool has_departed = false;
  };

  // The ranks that calls of a group may blame for a failure, and since when.
  struct Blame {
    std::set<int> ranks;
    TimePoint since{};
  };

  void open();
  EngineParts parts_of(int rank, Arena arena);
  void begin(int rank);
  [[nodiscard]] std::vector<std::uint32_t> calls_of(int rank);
  void run_next(int rank);
  void finish(int rank);
  void run_next_later(int rank, Clock::duration most);
  bool meets_a_fault(int rank);
  bool make_group(int rank, std::uint32_t group);
  void destroy_group(int rank, std::uint32_t group);
  void make_call(int rank, std::uint32_t number);
  Call call_of(CallOnRank& call, const PlannedCall& planned);
  void over(int rank, CallOnRank& call, const Status& status);
  [[nodiscard]] bool has_open_calls(int rank, std::optional<std::uint32_t> group) const;

  void inject(const Fault& fault);
  void blame(int rank, std::optional<std::uint32_t> group = std::nullopt);
  void blame_cut(int host, int other);
  void kill(int rank, bool host_too);
  void depart(int rank);

  [[nodiscard]] bool calls_are_over() const;
  [[nodiscard]] bool has_closed(const Rank& one) const;
  void close();

  void judge();
  void judge_success(const std::string& name, int rank, const CallOnRank& call);
  void judge_error(const std::string& name, int rank, const CallOnRank& call);
  [[nodiscard]] std::uint32_t call_named_in(std::string_view cause, std::uint32_t number) const;
  void judge_time(const std::string& name, int rank, const CallOnRank& call);
  void judge_usage(int rank);
  void wrong(const std::string& text) { verdict_.wrong.push_back(text); }

  [[nodiscard]] std::string name_of_group(std::uint32_t group) const;
  [[nodiscard]] std::string name_of_call(int rank, std::uint32_t number) const;
  [[nodiscard]] bool is_member(int rank, std::uint32_t group) const {
    return std::ranges::find(plan_.groups[group], rank) != plan_.groups[group].end();
  }
  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const Rank& at(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] int host(int rank) const { return host_of_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] int size() const { return static_cast<int>(ranks_.size()); }

  const JobPlan& plan_;
  World world_;
  std::vector<int> host_of_;
  VirtualNetwork wires_;
  VirtualNetwork memory_;
  std::vector<Mapping> readable_;  // each rank's shared memory, mapped for the other ranks of its host
  std::vector<Rank> ranks_;
  Reference reference_;
  std::map<std::uint32_t, Blame> blame_;  // by group; calls of other groups must not fail by themselves
  bool any_call_may_fail_ = false;        // a fault was injected of which any call may fail
  bool is_tight_ = false;                 // processes are paused for so long that deadlines may pass
  Clock::duration delayed_{};             // by pauses
  TimePoint paused_until_{};              // when the last paused process continues
  TimePoint begun_{};                     // when the last rank began
  TimePoint closing_{};                   // since when all ranks close their engines
  Verdict verdict_;
};

}  // namespace smdp::simulation
