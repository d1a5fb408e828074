#include "trace/flight/flight_dump.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/bytes.h"
#include "net/call_number.h"
#include "trace/flight/pickle.h"

namespace smdp {
namespace {

using State = FlightRecord::State;
using Groups = std::map<std::uint64_t, std::shared_ptr<const TracedGroup>>;

constexpr std::array<std::string_view, 4> kStates = {"scheduled", "started", "completed", "failed"};

std::int64_t monotonic_ns(TimePoint at) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count();
}

// Converts points of the monotonic clock to the system's clock, as both are now: the latter may be set while
// a job runs.
struct WallClock {
  std::int64_t ahead_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                              std::chrono::system_clock::now().time_since_epoch())
                              .count() -
                          monotonic_ns(Clock::now());

  [[nodiscard]] std::int64_t ns(TimePoint at) const { return monotonic_ns(at) + ahead_ns; }
};

std::string_view torch_name_of(DType dtype) {
  constexpr std::array<std::string_view, 10> kNames = {"Float", "Double", "Half", "BFloat16", "Char",
                                                       "Short", "Int",    "Long", "Byte",     "Bool"};
  return kNames[static_cast<std::size_t>(dtype)];
}

std::string id_text(const TracedGroup& group) { return to_hex(Writer().put(group.id).take()); }

class Encoder {
 public:
  explicit Encoder(const WallClock& wall) : wall_(wall) {}

  void text(std::string_view key, std::string_view value) { out_.text(key).text(value); }
  void number(std::string_view key, std::int64_t value) { out_.text(key).number(value); }
  void boolean(std::string_view key, bool value) { out_.text(key).boolean(value); }
  void wall(std::string_view key, TimePoint at) { moment(key, at, wall_.ns(at)); }
  void monotonic(std::string_view key, TimePoint at) { moment(key, at, monotonic_ns(at)); }
  void shape(std::string_view key, std::uint64_t count) {
    out_.text(key).begin_list().begin_list().large(count).end_list().end_list();
  }
  void words(std::string_view key, std::string_view only) {
    out_.text(key).begin_list().text(only).end_list();
  }
  void ranks(std::string_view key, const std::vector<int>& values) {
    out_.text(key).begin_list();
    for (const int value : values) {
      out_.number(value);
    }
    out_.end_list();
  }
  PickleWriter& out() { return out_; }

 private:
  void moment(std::string_view key, TimePoint at, std::int64_t ns) {
    out_.text(key);
    at == TimePoint{} ? out_.none() : out_.number(ns);
  }

  const WallClock& wall_;
  PickleWriter out_;
};

// torch's analyser knows only the prefixes of its own backends, of which one is for the CPU.
std::string profiling_name(const Descriptor& what) { return "gloo:" + std::string(name_of(what.collective)); }

void put_call(Encoder& to, const FlightRecord& record) {
  const Descriptor& what = record.what;
  const bool gathers = what.collective == Collective::kAllGather;
  to.text("profiling_name", profiling_name(what));
  to.shape("input_sizes", what.count);
  to.shape("output_sizes", what.count * (gathers ? record.group->members.size() : 1));
  to.words("input_dtypes", torch_name_of(what.dtype));
  to.words("output_dtypes", torch_name_of(what.dtype));
  to.text("collective", name_of(what.collective));
  to.text("op", name_of(what.op));
  to.text("dtype", name_of(what.dtype));
  to.number("root", what.root);
  to.out().text("bytes").large(what.count * size_of(what.dtype));
  const bool named = is_named(record.operation);
  to.number("step", named ? static_cast<std::int64_t>(step_of(record.operation)) : -1);
  to.number("index", named ? static_cast<std::int64_t>(index_of(record.operation)) : -1);
}

void put_times(Encoder& to, const FlightRecord& record) {
  to.wall("time_created_ns", record.created);
  to.wall("time_discovered_started_ns", record.started);
  to.wall("time_discovered_completed_ns", record.state == State::kCompleted ? record.ended : TimePoint{});
  to.monotonic("created_ns", record.created);
  to.monotonic("started_ns", record.started);
  to.monotonic("ended_ns", record.ended);
  to.monotonic("deadline_ns", record.deadline);
  to.number("timeout_ms",
            std::chrono::duration_cast<std::chrono::milliseconds>(record.deadline - record.created).count());
}

void put_record(Encoder& to, const FlightRecord& record) {
  to.out().begin_dict();
  to.out().text("record_id").large(record.id);
  to.number("pg_id", 0);
  to.out()
      .text("process_group")
      .begin_tuple()
      .text(id_text(*record.group))
      .text(record.group->name)
      .end_tuple();
  const bool message = is_made_of_messages(record.what.collective);
  to.out().text("collective_seq_id").large(message ? record.operation & ~kMessageCall : record.operation);
  to.number("p2p_seq_id", 0);
  to.out().text("op_id").large(record.id);
  to.boolean("is_p2p", false);
  put_call(to, record);
  to.text("state", kStates[static_cast<std::size_t>(record.state)]);
  to.boolean("retired", record.state >= State::kCompleted);
  put_times(to, record);
  to.text("phase", record.phase);
  to.ranks("waits_for", record.waits_for);
  to.text("error", record.error);
  to.out().text("frames").begin_list().end_list();
  to.out().end_dict();
}

void put_records(Encoder& to, const char* name, const std::vector<const FlightRecord*>& records) {
  to.out().text(name).begin_list();
  for (const FlightRecord* record : records) {
    put_record(to, *record);
  }
  to.out().end_list();
}

std::string list_text(const std::vector<int>& members) {
  std::string text = "[";
  for (const int member : members) {
    text += (text.size() > 1 ? ", " : "") + std::to_string(member);
  }
  return text + "]";
}

void put_groups(Encoder& to, const Groups& groups) {
  to.out().text("pg_config").begin_dict();
  for (const auto& [id, group] : groups) {
    to.out().text(id_text(*group)).begin_dict();
    to.text("name", id_text(*group));
    to.text("desc", group->name);
    to.text("ranks", list_text(group->members));
    to.out().end_dict();
  }
  to.out().end_dict();
}

// The number of the last operation for which `is_so` holds; -1: none.
template <class Predicate>
std::int64_t last_that(const std::vector<const FlightRecord*>& records, std::uint64_t group,
                       Predicate is_so) {
  const auto found = std::find_if(records.rbegin(), records.rend(), [&](const FlightRecord* record) {
    return record->group->id == group && is_so(*record);
  });
  return found == records.rend() ? -1 : static_cast<std::int64_t>((*found)->operation & ~kNamedCall);
}

void put_progress(Encoder& to, const Groups& groups, const std::vector<const FlightRecord*>& records) {
  const auto called = [](const FlightRecord& /*record*/) { return true; };
  const auto begun = [](const FlightRecord& record) { return record.started != TimePoint{}; };
  const auto completed = [](const FlightRecord& record) { return record.state == State::kCompleted; };
  to.out().text("pg_status").begin_dict();
  for (const auto& [id, group] : groups) {
    to.out().text(id_text(*group)).begin_dict();
    to.number("last_enqueued_collective", last_that(records, id, called));
    to.number("last_started_collective", last_that(records, id, begun));
    to.number("last_completed_collective", last_that(records, id, completed));
    to.out().end_dict();
  }
  to.out().end_dict();
}

void put_identity(Encoder& to, const DumpIdentity& who, const std::string& reason) {
  const TimePoint now = Clock::now();
  to.out().text("smdp").begin_dict();
  to.number("rank", who.rank);
  to.number("world_size", who.layout->world_size());
  to.text("host", who.layout->host_names[static_cast<std::size_t>(
                      who.layout->host_of[static_cast<std::size_t>(who.rank)])]);
  to.text("build", who.build);
  to.text("reason", reason);
  to.wall("wall_ns", now);
  to.monotonic("monotonic_ns", now);
  to.out().end_dict();
}

}  // namespace

std::string encode_flight(const FlightRecorder& recorder, const DumpIdentity& who, const std::string& reason,
                          std::vector<std::shared_ptr<const TracedGroup>> groups) {
  // fr_trace compares records of equal numbers, but each rank numbers its own calls made of messages.
  std::vector<const FlightRecord*> records;
  std::vector<const FlightRecord*> messages;
  for (const FlightRecord* record : recorder.records()) {
    (is_made_of_messages(record->what.collective) ? messages : records).push_back(record);
    groups.push_back(record->group);
  }
  Groups known;
  for (const auto& group : groups) {
    known.emplace(group->id, group);
  }
  const WallClock wall;
  Encoder to(wall);
  to.out().begin_dict();
  to.text("version", "2.10");
  put_groups(to, known);
  put_progress(to, known, records);
  put_identity(to, who, reason);
  put_records(to, "entries", records);
  put_records(to, "messages", messages);
  to.out().end_dict();
  return to.out().take();
}

}  // namespace smdp
