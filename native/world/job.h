// One run of a job in its world: the engines of all ranks, what they are asked for, what goes wrong, and the
// judge of how it ends (judge.cc).
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
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
  struct Made {
    std::uint32_t number = 0;
    Descriptor what;
    int group_rank = 0;
    std::string name;  // as messages call it
    Values values;
    std::shared_ptr<OperationHandle> handle;
    Status refused;
    TimePoint at{};
    TimePoint ended{};
    std::size_t left_with = 0;  // digest of its values, where it failed

    [[nodiscard]] bool is_over() const { return !refused.ok() || handle->is_complete(); }
    [[nodiscard]] const Status& status() const { return refused.ok() ? handle->status() : refused; }
  };

  struct Rank {
    std::vector<std::unique_ptr<Made>> made;  // outlives the engine, which writes to it
    std::unique_ptr<Engine> engine;
    VirtualExecutor* executor = nullptr;            // the engine's
    std::map<std::uint32_t, std::uint64_t> groups;  // by place in the plan: the engine's number
    std::set<std::uint32_t> destroyed;              // of them
    std::vector<std::uint32_t> calls;               // numbers of those that it makes, in its order
    std::size_t next = 0;                           // of them
    bool waits = false;                             // to go on when a call is complete
    bool is_over = false;                           // it has done all it does
    bool is_gone = false;                           // it died, or left early: nothing is asked of it
    bool has_lost_memory = false;
    bool was_held_up = false;
    bool has_departed = false;
  };

  // Whom the calls of a group may fail of, and since when.
  struct Guilt {
    std::set<int> ranks;
    TimePoint since{};
  };

  void open();
  EngineParts parts_of(int rank, Arena arena);
  void begin(int rank);
  [[nodiscard]] std::vector<std::uint32_t> calls_of(int rank);
  void go_on(int rank);
  void finish(int rank);
  void go_on_later(int rank, Clock::duration most);
  bool meets_a_fault(int rank);
  bool make_group(int rank, std::uint32_t group);
  void destroy_group(int rank, std::uint32_t group);
  void make_call(int rank, std::uint32_t number);
  Call call_of(Made& made, const PlannedCall& planned);
  void over(int rank, Made& made, const Status& status);
  [[nodiscard]] bool has_open_calls(int rank, std::optional<std::uint32_t> group) const;

  void strike(const Fault& fault);
  void blame(int rank, std::optional<std::uint32_t> group = std::nullopt);
  void blame_cut(int host, int other);
  void kill(int rank, bool host_too);
  void depart(int rank);

  [[nodiscard]] bool calls_are_over() const;
  [[nodiscard]] bool has_closed(const Rank& one) const;
  void close();

  void judge();
  void judge_success(const std::string& name, int rank, const Made& made);
  void judge_error(const std::string& name, int rank, const Made& made);
  void judge_time(const std::string& name, int rank, const Made& made);
  void judge_holdings(int rank);
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
  std::vector<Mapping> readable_;  // each rank's shared memory, as the others of its host read it
  std::vector<Rank> ranks_;
  Reference reference_;
  std::map<std::uint32_t, Guilt> guilt_;  // by group; of one that is not here no call may fail by itself
  bool is_struck_ = false;                // a fault came that a call may fail of, in whatever group
  bool is_tight_ = false;                 // processes are held up for so long that deadlines may pass
  Clock::duration delayed_{};             // by pauses
  TimePoint held_up_until_{};             // when the last process that was held up goes on
  TimePoint closing_{};                   // since when all close their engines
  Verdict verdict_;
};

}  // namespace smdp::simulation
