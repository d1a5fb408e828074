#include "trace/flight/dump_signal.h"

#include <signal.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <string>

namespace smdp {
namespace {

struct Signal {
  std::string_view name;
  int number;
};
constexpr std::array kSignals = {Signal{"USR1", SIGUSR1}, Signal{"USR2", SIGUSR2}, Signal{"QUIT", SIGQUIT},
                                 Signal{"HUP", SIGHUP}};

std::atomic<std::uint64_t> requested = 0;
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "counted in a signal handler");

void count(int /*signal*/) { ++requested; }

}  // namespace

Status listen_for_dumps(std::string_view signal) {
  const auto* const named = std::ranges::find(kSignals, signal, &Signal::name);
  if (named == kSignals.end()) {
    return {};
  }
  struct sigaction before{};
  ::sigaction(named->number, nullptr, &before);
  if (before.sa_handler == count) {
    return {};
  }
  if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    return {Code::kInvalid, "SMDP_TRACE_SIGNAL=" + std::string(signal) +
                                ": the program handles this signal itself; choose another, or call "
                                "smdp_engine.trace.dump() from its handler"};
  }
  struct sigaction ours{};
  ours.sa_handler = count;
  ours.sa_flags = SA_RESTART;
  return ::sigaction(named->number, &ours, nullptr) == 0 ? Status() : system_error("sigaction", errno);
}

std::uint64_t dumps_requested() { return requested; }

}  // namespace smdp
