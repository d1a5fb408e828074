#include "trace/timeline/trace_events.h"

#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "net/call_number.h"
#include "trace/text.h"

namespace smdp {
namespace {

constexpr std::array<std::string_view, kPhases> kNames = {"wait local", "wait hosts", "wire", "copy",
                                                          "reduce"};
constexpr std::array<std::string_view, kPhases> kKeys = {"wait_local_us", "wait_hosts_us", "wire_us",
                                                         "copy_us", "reduce_us"};

std::chrono::nanoseconds since_zero(TimePoint at) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch());
}

// Appends in place: a temporary string for each part takes longer than a small operation.
class Event {
 public:
  explicit Event(std::string& out) : out_(out) {}

  Event& metadata(std::string_view name, int rank) {
    return raw(R"({"name":")").raw(name).raw(R"(","ph":"M","pid":)").digits(rank);
  }
  Event& bar(std::string_view category, int rank, int lane, TimePoint begin, TimePoint end) {
    raw(R"(","cat":")").raw(category).raw(R"(","ph":"X","pid":)").digits(rank);
    return number("tid", lane).time("ts", since_zero(begin)).time("dur", end - begin);
  }
  Event& arguments() {
    first_ = true;
    return raw(R"(,"args":{)");
  }
  void end() { raw("}}"); }

  template <class Integer>
  Event& number(std::string_view name, Integer value) {
    return key(name).digits(value);
  }
  Event& boolean(std::string_view name, bool value) { return key(name).raw(value ? "true" : "false"); }
  Event& text(std::string_view name, std::string_view value) { return key(name).raw(json_quoted(value)); }
  Event& time(std::string_view name, std::chrono::nanoseconds value) {
    key(name);
    const auto ns = value.count() < 0 ? -value.count() : value.count();
    raw(value.count() < 0 ? "-" : "").digits(ns / 1000).raw(".");
    const auto rest = ns % 1000;
    return raw(rest < 10 ? "00" : (rest < 100 ? "0" : "")).digits(rest);
  }
  Event& phases(const PhaseTimes& times) {
    for (std::size_t i = 0; i < kPhases; ++i) {
      time(kKeys[i], times[i]);
    }
    return *this;
  }
  Event& raw(std::string_view part) {
    out_ += part;
    return *this;
  }
  template <class Integer>
  Event& digits(Integer value) {
    std::array<char, 24> room{};
    const auto [end, error] = std::to_chars(room.data(), room.data() + room.size(), value);
    out_.append(room.data(), end);
    return *this;
  }

 private:
  Event& key(std::string_view name) {
    return raw(std::exchange(first_, false) ? "\"" : ",\"").raw(name).raw("\":");
  }

  std::string& out_;
  bool first_ = false;  // of the arguments
};

void put_size(Event& event, std::uint64_t bytes) {
  if (bytes >= 1U << 20U) {
    event.raw(" ").digits(bytes >> 20U).raw(" MiB");
  } else if (bytes >= 1024) {
    event.raw(" ").digits(bytes >> 10U).raw(" KiB");
  } else {
    event.raw(" ").digits(bytes).raw(" B");
  }
}

void put_number_in_group(Event& event, std::uint64_t operation) {
  event.raw(R"(,"operation":")");
  if (!is_named(operation)) {
    event.digits(operation);
  } else {
    event.raw("step ").digits(step_of(operation)).raw(" index ").digits(index_of(operation));
  }
  event.raw("\"");
}

}  // namespace

void put_process(std::string& out, const TraceIdentity& who) {
  Event event(out);
  event.metadata("process_name", who.rank).arguments();
  event.text("name", "rank " + std::to_string(who.rank) + "@" + who.host).end();
}

void put_identity(std::string& out, const TraceIdentity& who, TimePoint now) {
  const auto wall = std::chrono::system_clock::now().time_since_epoch();
  Event event(out);
  event.metadata("smdp_timeline", who.rank).arguments().number("version", 1).number("rank", who.rank);
  event.number("world_size", who.world_size).text("host", who.host).text("build", who.build);
  event.boolean("rank0_clock", who.rank0_clock).time("at_us", since_zero(now));
  event.time("wall_us", std::chrono::duration_cast<std::chrono::nanoseconds>(wall)).end();
}

void put_lane(std::string& out, int rank, int lane) {
  Event event(out);
  event.metadata("thread_name", rank).number("tid", lane).arguments();
  event.text("name", "operations " + std::to_string(lane)).end();
}

void put_clock(std::string& out, int rank, TimePoint at, const ClockOffset::Estimate& estimate) {
  Event event(out);
  event.metadata("smdp_clock", rank).arguments().time("at_us", since_zero(at));
  event.time("ahead_us", estimate.ahead).time("error_us", estimate.error).end();
}

void put_operation(std::string& out, int rank, std::uint64_t number, const EndedOperation& one) {
  Event event(out);
  event.raw(R"({"name":")").raw(name_of(one.what.collective));
  if (one.what.collective != Collective::kBarrier) {
    put_size(event, one.bytes());
  }
  event.bar(one.failed ? "failed" : "operation", rank, one.lane, one.started, one.ended).arguments();
  event.number("n", number).text("group", one.group->name);
  event.text("group_id", to_hex(Writer().put(one.group->id).take()));
  put_number_in_group(event, one.operation);
  event.number("bytes", one.bytes()).text("dtype", name_of(one.what.dtype));
  event.time("called_us", since_zero(one.created)).number("last_heard", one.last_heard);
  event.phases(one.phases).end();
}

void put_stretch(std::string& out, int rank, int lane, std::uint64_t number, const Phases::Stretch& stretch) {
  const auto main = static_cast<std::size_t>(stretch.main());
  Event event(out);
  event.raw(R"({"name":")").raw(kNames[main]).bar("phase", rank, lane, stretch.begin, stretch.end);
  event.arguments().number("n", number);
  if (stretch.took[main] != stretch.end - stretch.begin) {
    event.phases(stretch.took);
  }
  event.end();
}

void put_totals(std::string& out, int rank, int size_class, const Totals& totals) {
  Event event(out);
  event.metadata("smdp_totals", rank).arguments().number("size_class", size_class);
  event.number("operations", totals.operations).number("bytes", totals.bytes).time("took_us", totals.took);
  event.phases(totals.phases).end();
}

void put_undrawn(std::string& out, int rank, std::uint64_t thinned, std::uint64_t dropped) {
  Event event(out);
  event.metadata("smdp_undrawn", rank)
      .arguments()
      .number("thinned", thinned)
      .number("dropped", dropped)
      .end();
}

}  // namespace smdp
