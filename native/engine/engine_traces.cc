// What an engine keeps for people: flight records, timeline, counters.
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
#include "trace/dump_signal.h"
#include "trace/file.h"
#include "trace/flight_dump.h"

namespace smdp {
namespace {

constexpr double kDumpPatience = 10;  // seconds for the loop to write the records
constexpr std::chrono::milliseconds kBetweenDumps{200};
constexpr int kClockQuestions = 8;  // in a series, of which the quickest answer counts
constexpr std::chrono::seconds kClockSeries{30};

std::uint64_t nanoseconds(TimePoint at) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count());
}

// The pipe for events that the entrypoint gave this process.
struct EventPipe {
  int fd = -1;
  unsigned long long device = 0;
  unsigned long long inode = 0;

  // A program in between may have closed it, and its number may belong to a file of the script by now.
  [[nodiscard]] bool is_there() const {
    struct stat status{};
    return fd >= 0 && ::fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode) && status.st_dev == device &&
           status.st_ino == inode;
  }
};

// "descriptor:device:inode"; nothing where the text is none of that.
EventPipe event_pipe(std::string_view given) {
  EventPipe pipe;
  const auto take = [&given](auto& number, std::string_view behind) {
    const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), number);
    given.remove_prefix(static_cast<std::size_t>(end - given.data()));
    const bool good = error == std::errc() && given.starts_with(behind);
    given.remove_prefix(good ? behind.size() : 0);
    return good;
  };
  const bool good = take(pipe.fd, ":") && take(pipe.device, ":") && take(pipe.inode, "") && given.empty();
  return good ? pipe : EventPipe();
}

// In one call, so that the lines of several threads and ranks do not mix.
void print_line(int fd, const std::string& line) { (void)write_fully(fd, line + "\n"); }

}  // namespace

void Engine::start_traces() {
  const int host = layout_.host_of[static_cast<std::size_t>(rank_)];
  const TraceIdentity who{rank_, layout_.world_size(), layout_.host_names[static_cast<std::size_t>(host)],
                          config_.identity.build, host == layout_.host_of[0]};
  Tracer::EmitEvent emit = config_.emit_event;
  if (!emit) {
    const std::optional<std::string> given = process_environment()("SMDP_EVENT_PIPE");
    const EventPipe pipe = given ? event_pipe(*given) : EventPipe();
    if (given && !pipe.is_there() && config_.options.counters_s > 0) {
      log_(
          LogLevel::kWarning,
          "the entrypoint's pipe for events was closed by a program in between, so nobody takes the lines of "
          "SMDP_COUNTERS_S for events: pass the descriptor of SMDP_EVENT_PIPE on (pass_fds)");
    }
    emit = [pipe](const std::string& line) { print_line(pipe.is_there() ? pipe.fd : STDOUT_FILENO, line); };
  }
  auto tracer = Tracer::create(config_.options, who, std::move(emit));
  if (tracer.ok()) {
    tracer_ = std::move(*tracer);
  } else {
    log_(LogLevel::kWarning, tracer.status().message() + "; no timeline is kept");
  }
  dumps_seen_ = dumps_asked_for();
}

Result<std::string> Engine::dump(const std::string& folder, const std::string& reason) {
  if (!is_own()) {
    return Status(Code::kClosed, "the engine does not survive a fork: its records are the parent's");
  }
  struct Answer {
    std::atomic<bool> there = false;
    Result<std::string> path =
        Status(Code::kTimeout, "the engine is held up and has not written its records");
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
  executor_->drive([&answer] { return answer->there.load(); }, after(kDumpPatience));
  return answer->there ? answer->path
                       : Status(Code::kTimeout, "the engine is held up and has not written its records");
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

void Engine::keep_flight(const std::string& reason) {
  kept_at_ = Clock::now();
  unkept_failure_ = false;
  if (config_.options.trace_dir.empty() || config_.options.flight_records == 0) {
    return;
  }
  const auto path = write_flight("", reason);
  log_(LogLevel::kWarning, path.ok() ? "flight records of rank " + std::to_string(rank_) + ": " + *path
                                     : "no flight records were written: " + path.status().message());
}

// At once, for the script may end the process as soon as it hears. When a rank is lost all its groups fail
// together: writing for each would keep the last from hearing.
void Engine::failed(const Status& why) {
  if (why.code() == Code::kClosed) {
    return;
  }
  const bool apart = Clock::now() - kept_at_ >= kBetweenDumps;
  failure_ = apart || failure_.empty() ? why.message() : failure_;
  unkept_failure_ = !apart;
  if (!apart) {
    return;
  }
  try {
    keep_flight(failure_);
  } catch (const std::bad_alloc&) {
    log_(LogLevel::kWarning, "no memory for the flight records");  // that the calls end matters more
  }
}

void Engine::keep_last_flight(bool orderly) {
  if (unkept_failure_) {
    keep_flight(failure_);
  } else if (!orderly && failure_.empty()) {
    keep_flight("the script ended by an exception, or gave the engine up");
  }
}

void Engine::tick_traces(TimePoint now) {
  if (const std::uint64_t asked = dumps_asked_for(); asked != dumps_seen_) {
    dumps_seen_ = asked;
    keep_flight("a signal asked for it");
  } else if (unkept_failure_ && now - kept_at_ >= kBetweenDumps) {
    keep_flight(failure_);
  }
  if (tracer_) {
    ask_clock(now);
    tracer_->tick(now);
  }
}

// Ranks of one host share its clock.
void Engine::ask_clock(TimePoint now) {
  const bool shared = layout_.host_of[static_cast<std::size_t>(rank_)] == layout_.host_of[0];
  if (shared || !tracer_->wants_clocks() || now < next_clock_series_) {
    return;
  }
  next_clock_series_ = now + kClockSeries;
  rank0_clock_.clear();
  send_clock(0, FrameType::kClockAsk, nanoseconds(Clock::now()), 0);
}

void Engine::send_clock(int peer, FrameType type, std::uint64_t asked, std::uint64_t theirs) {
  FrameHeader header;
  header.type = type;
  header.offset = asked;
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
  if (rank0_clock_.answers() < kClockQuestions) {
    send_clock(0, FrameType::kClockAsk, nanoseconds(Clock::now()), 0);
  } else if (rank0_clock_.best()) {
    tracer_->clock(now, *rank0_clock_.best());
  }
  return true;
}

}  // namespace smdp
