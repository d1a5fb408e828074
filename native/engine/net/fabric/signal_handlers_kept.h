// Restores all handlers of signals when it ends. Libraries of libfabric's providers replace them: PSM's,
// which Debian's libfabric loads, takes SIGINT and SIGTERM of the process to print a backtrace. Python would
// then raise no KeyboardInterrupt, and a script would save no checkpoint at SIGTERM.
#pragma once

#include <signal.h>

#include <array>
#include <mutex>
#include <optional>

namespace smdp {

class SignalHandlersKept {
 public:
  SignalHandlersKept() : lock_(one_at_a_time()) {
    for (int number = 1; number < NSIG; ++number) {
      struct sigaction found{};
      if (::sigaction(number, nullptr, &found) == 0) {
        before_[static_cast<std::size_t>(number)] = found;
      }
    }
  }
  ~SignalHandlersKept() {
    for (int number = 1; number < NSIG; ++number) {
      if (const auto& found = before_[static_cast<std::size_t>(number)]) {
        ::sigaction(number, &*found, nullptr);  // fails for SIGKILL and SIGSTOP, which have no handler
      }
    }
  }
  SignalHandlersKept(const SignalHandlersKept&) = delete;
  SignalHandlersKept& operator=(const SignalHandlersKept&) = delete;

 private:
  // Two threads would restore each other's replaced handlers.
  static std::mutex& one_at_a_time() {
    static std::mutex mutex;
    return mutex;
  }

  std::lock_guard<std::mutex> lock_;
  std::array<std::optional<struct sigaction>, NSIG> before_{};
};

}  // namespace smdp
