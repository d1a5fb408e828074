// Decides when a group has failed because ranks are late, have left or are gone, and names those ranks.
//
// Belongs to its group; its state is touched on the loop only. It owns what the other ranks reported:
//
//   departures          ranks that left the group, and up to which call they took part
//   closed engines      ranks that closed their engine, and when
//   suspicion reports   ranks that other ranks wait for. A report about a running call is stored with it
//                       (Operation::watch), because both end together; a report about a call that is
//                       complete on this rank, from a rank that is behind, is stored here.
//   wait reports        the same for calls made of messages, which have no number that all ranks share
//
// Who is to blame: when a deadline passes, or a warning is due, each rank sends the others the ranks that it
// waits for itself. A rank that others wait for and that reports nothing is the cause; one that reports is
// only held up. So the verdict comes a moment (kReportTime) after the reports were sent.
//
// It decides; the group acts: every failure goes through FailureDetector::Host::fail().
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "collectives/group/open_calls.h"
#include "collectives/point_to_point.h"
#include "record/flight_recorder.h"

namespace smdp {

// How a rank leaves a group; the numbers are those of the wire.
enum class Leaving : std::uint8_t { kDestroysGroup = 0, kClosesEngine = 1 };

class FailureDetector {
 public:
  // What the detector needs from its group. Ranks are ranks of the group.
  class Host {
   public:
    virtual ~Host() = default;
    virtual void send_to_others(const FrameHeader& header) = 0;
    // Fails the group on all ranks. `subject`: the call that `why` already names.
    virtual void fail(const Status& why, std::optional<std::uint64_t> subject = std::nullopt) = 0;
    [[nodiscard]] virtual bool has_failed() const = 0;
    virtual void warn(const std::string& text) = 0;
    [[nodiscard]] virtual std::string describe_rank(int rank) const = 0;
    [[nodiscard]] virtual std::string describe_call(std::uint64_t call) const = 0;
    // "on rank 0 (host a): all_reduce(...), operation 3 of group 'world', waiting for the result of rank 1"
    [[nodiscard]] virtual std::string describe_wait(const Descriptor& what, std::uint64_t call,
                                                    const Operation::Wait& wait) const = 0;
  };

  // `rank`: this rank within the group. `warn_s`: seconds between two warnings about slow calls.
  FailureDetector(Host& host, const TracedGroup& group, const OpenCalls& calls, PointToPoint& messages,
                  int rank, double warn_s)
      : host_(host), group_(group), calls_(calls), messages_(messages), rank_(rank), warn_s_(warn_s) {}

  // `from` left the group. It has completed all calls before `first`, and before `first_named` of those with
  // a name.
  void on_departure(int from, Leaving how, std::uint64_t first, std::uint64_t first_named);
  // The goodbye of `rank`. If it was in the group, its departure has come before.
  void on_closed_engine(int rank);
  // False: the report names no rank of the group.
  bool on_suspicion(int from, const FrameHeader& header);
  // A rank that sends frames of a later call waits for no rank in an earlier one, or reports it again.
  void on_frame(int from, std::uint64_t call);
  void on_complete(std::uint64_t call);

  [[nodiscard]] bool has_departures() const { return !departures_.empty(); }
  // Fails the group when a rank that left it is missing in an open call.
  void check_departures();
  // Fails the group when a rank that closed its engine before it created the group is missing in an open
  // call.
  void check_closed_engines(TimePoint now);
  void check_messages(TimePoint now);
  // Deadline and warning of one running call, and of the calls that have not begun.
  void check_operation(Operation& operation, TimePoint now);
  void check_queue(TimePoint now);

 private:
  struct Departure {
    int rank = 0;
    Leaving how = Leaving::kDestroysGroup;
    std::uint64_t first = 0;
    std::uint64_t first_named = 0;
    TimePoint at{};
  };
  struct Suspicion {
    std::uint64_t call = 0;
    std::set<int> suspects;
  };
  struct WaitReport {
    std::set<int> ranks;
    TimePoint at{};
  };

  void report_wait(Operation& operation, TimePoint now);
  void report_wait_and_pause(Operation& operation, TimePoint now);
  void repeat_reports(std::uint64_t awaited_in, TimePoint now);
  [[nodiscard]] std::vector<int> find_causes(Operation& operation) const;
  [[nodiscard]] std::string describe_causes(Operation& operation) const;

  void report_message_waits(TimePoint now);
  void add_wait_report(int from, int awaited, TimePoint now);
  [[nodiscard]] std::vector<int> ends_of_wait_chains(const std::vector<int>& awaited, TimePoint now) const;
  [[nodiscard]] std::string describe(const Departure& departure) const;
  [[nodiscard]] std::optional<std::string> describe_absence(int rank, TimePoint now) const;
  void warn_of_message(Exchange& exchange, TimePoint now);
  bool check_absent_peers(const Exchange& exchange, TimePoint now);

  Host& host_;
  const TracedGroup& group_;
  const OpenCalls& calls_;
  PointToPoint& messages_;
  int rank_;
  double warn_s_;
  std::map<int, TimePoint> closed_;  // by rank: when its engine was closed
  std::vector<Departure> departures_;
  std::map<int, Suspicion> suspicions_;     // by the reporting rank: of calls that are complete here
  std::map<int, WaitReport> wait_reports_;  // by the reporting rank
  TimePoint own_waits_reported_at_{};
  std::optional<std::uint64_t> warned_;          // the last call that a warning was about
  std::optional<std::uint64_t> warned_message_;  // the same of calls made of messages
};

}  // namespace smdp
