// The engine's traces: flight records, timeline, counters.
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "engine.h"
#include "trace/file.h"
#include "trace/flight/dump_signal.h"
#include "trace/flight/flight_dump.h"

namespace smdp {
namespace {

constexpr double kDumpTimeout = 10;  // seconds for the loop to write the records
constexpr std::chrono::milliseconds kBetweenDumps{200};
constexpr int kClockRequests = 8;  // in a series, of which the quickest answer counts
constexpr std::chrono::seconds kClockSeries{30};

std::uint64_t nanoseconds(TimePoint at) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count());
}

// The pipe on which the entrypoint reads event lines.
struct EventPipe {
  int fd = -1;
  unsigned long long device = 0;
  unsigned long long inode = 0;

  // A program between the entrypoint and this process may have closed it, and the descriptor may belong to
  // another file now.
  [[nodiscard]] bool is_there() const {
    struct stat status{};
    return fd >= 0 && ::fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode) && status.st_dev == device &&
           status.st_ino == inode;
  }
};

// Parses "descriptor:device:inode"; an empty pipe when the text has another form.
EventPipe parse_event_pipe(std::string_view text) {
  EventPipe pipe;
  const auto take = [&text](auto& number, std::string_view separator) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    const bool good = error == std::errc() && text.starts_with(separator);
    text.remove_prefix(good ? separator.size() : 0);
    return good;
  };
  const bool good = take(pipe.fd, ":") && take(pipe.device, ":") && take(pipe.inode, "") && text.empty();
  return good ? pipe : EventPipe();
}

// In one call, so that the lines of several threads and ranks do not mix.
void write_line(int fd, const std::string& line) { (void)write_fully(fd, line + "\n"); }

}  // namespace

void Engine::start_traces() {
  const int host = layout_.host_of[static_cast<std::size_t>(rank_)];
  const TraceIdentity who{rank_, layout_.world_size(), layout_.host_names[static_cast<std::size_t>(host)],
                          config_.identity.build, host == layout_.host_of[0]};
  Tracer::EmitEvent emit = config_.emit_event;
  if (!emit) {
    const std::optional<std::string> text = process_environment()("SMDP_EVENT_PIPE");
    const EventPipe pipe = text ? parse_event_pipe(*text) : EventPipe();
    if (text && !pipe.is_there() && config_.options.counters_s > 0) {
      log_(LogLevel::kWarning,
           "a program between the entrypoint and this process has closed the entrypoint's pipe for events, "
           "so the event lines of SMDP_COUNTERS_S do not count: pass the descriptor of SMDP_EVENT_PIPE on "
           "(pass_fds)");
    }
    emit = [pipe](const std::string& line) { write_line(pipe.is_there() ? pipe.fd : STDOUT_FILENO, line); };
  }
  auto tracer = Tracer::create(config_.options, who, std::move(emit));
  if (tracer.ok()) {
    tracer_ = std::move(*tracer);
  } else {
    log_(LogLevel::kWarning, tracer.status().message() + "; no timeline is written");
  }
  dumps_seen_ = dumps_requested();
}

Result<std::string> Engine::dump(const std::string& folder, const std::string& reason) {
  if (!is_own()) {
    return Status(Code::kClosed, "the engine does not survive a fork: its records are the parent's");
  }
  struct Answer {
    std::atomic<bool> there = false;
    Result<std::string> path =
        Status(Code::kTimeout, "the engine is blocked and has not written its records");
  };
  const auto answer = std::make_shared<Answer>();
  {
    const std::lock_guard lock(mutex_);
    if (closed_) {
      return Status(Code::kClosed, "the engine is closed");
    }
    executor_->post([this, answer, folder, reason] {
      answer->path = write_flight(folder, reason);
      answer->there = true;
    });
  }
  executor_->drive([&answer] { return answer->there.load(); }, after(kDumpTimeout));
  return answer->there ? answer->path
                       : Status(Code::kTimeout, "the engine is blocked and has not written its records");
}

// --- On the loop ---

Result<std::string> Engine::write_flight(const std::string& folder, const std::string& reason) {
  const std::string& where = folder.empty() ? config_.options.trace_dir : folder;
  if (where.empty()) {
    return Status(Code::kInvalid, "no folder for the flight records: name one, or set SMDP_TRACE_DIR");
  }
  std::vector<std::shared_ptr<const TracedGroup>> groups;
  for (const auto& [id, group] : groups_) {
    group->note_waits();
    groups.push_back(group->traced());
  }
  return write_whole_file(where, "flight_" + std::to_string(rank_),
                          encode_flight(flight_, {rank_, &layout_, config_.identity.build}, reason, groups));
}

void Engine::save_records(const std::string& reason) {
  saved_at_ = Clock::now();
  unsaved_failure_ = false;
  if (config_.options.trace_dir.empty() || config_.options.flight_records == 0) {
    return;
  }
  const auto path = write_flight("", reason);
  log_(LogLevel::kWarning, path.ok() ? "flight records of rank " + std::to_string(rank_) + ": " + *path
                                     : "no flight records were written: " + path.status().message());
}

// Writes the records at once, because the script may end the process as soon as it learns of the failure.
// When a rank is lost, all its groups fail together: writing for each would delay the report to the last.
void Engine::failed(const Status& why) {
  if (why.code() == Code::kClosed) {
    return;
  }
  const bool apart = Clock::now() - saved_at_ >= kBetweenDumps;
  failure_ = apart || failure_.empty() ? why.message() : failure_;
  unsaved_failure_ = !apart;
  if (!apart) {
    return;
  }
  try {
    save_records(failure_);
  } catch (const std::bad_alloc&) {
    log_(LogLevel::kWarning, "no memory for the flight records");  // completing the calls matters more
  }
}

void Engine::save_last_records(bool orderly) {
  if (unsaved_failure_) {
    save_records(failure_);
  } else if (!orderly && failure_.empty()) {
    save_records("the script ended by an exception, or abandoned the engine");
  }
}

void Engine::tick_traces(TimePoint now) {
  if (const std::uint64_t requested = dumps_requested(); requested != dumps_seen_) {
    dumps_seen_ = requested;
    save_records("requested by a signal");
  } else if (unsaved_failure_ && now - saved_at_ >= kBetweenDumps) {
    save_records(failure_);
  }
  if (tracer_) {
    request_clock(now);
    tracer_->tick(now);
  }
}

// Ranks of one host share its clock.
void Engine::request_clock(TimePoint now) {
  const bool shared = layout_.host_of[static_cast<std::size_t>(rank_)] == layout_.host_of[0];
  if (shared || !tracer_->wants_clocks() || now < next_clock_series_) {
    return;
  }
  next_clock_series_ = now + kClockSeries;
  rank0_clock_.clear();
  send_clock(0, FrameType::kClockAsk, nanoseconds(Clock::now()), 0);
}

void Engine::send_clock(int peer, FrameType type, std::uint64_t requested_at, std::uint64_t theirs) {
  FrameHeader header;
  header.type = type;
  header.offset = requested_at;
  header.bytes = theirs;
  send(peer, {header, {}, nullptr, nullptr});
}

bool Engine::handle_clock(int peer, const FrameHeader& header) {
  if (header.type == FrameType::kClockAsk) {
    send_clock(peer, FrameType::kClockAnswer, header.offset, nanoseconds(Clock::now()));
    return true;
  }
  if (header.type != FrameType::kClockAnswer) {
    return false;
  }
  const TimePoint now = Clock::now();
  if (!tracer_ || peer != 0) {
    return true;
  }
  rank0_clock_.add(static_cast<std::int64_t>(header.offset), static_cast<std::int64_t>(header.bytes),
                   static_cast<std::int64_t>(nanoseconds(now)));
  if (rank0_clock_.answers() < kClockRequests) {
    send_clock(0, FrameType::kClockAsk, nanoseconds(Clock::now()), 0);
  } else if (rank0_clock_.best()) {
    tracer_->clock(now, *rank0_clock_.best());
  }
  return true;
}

}  // namespace smdp
