#include "base/exit/exit_report.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>

namespace smdp {
namespace {

using Time = std::chrono::steady_clock;

struct ExitReport {
  pid_t owner;
  UniqueFd pipe;
  pid_t child;
  std::chrono::milliseconds limit;
};

void write_status(int pipe, int status, std::chrono::milliseconds limit) {
  ::signal(SIGPIPE, SIG_IGN);  // the child may have died
  const std::string line = "exit " + std::to_string(status & 0xff) + "\n";
  pollfd ready{pipe, POLLOUT, 0};
  if (::poll(&ready, 1, static_cast<int>(limit.count())) > 0) {
    [[maybe_unused]] const auto written = ::write(pipe, line.data(), line.size());
  }
}

void report(int status, void* argument) {
  const std::unique_ptr<ExitReport> report(static_cast<ExitReport*>(argument));
  if (::getpid() != report->owner) {
    return;
  }
  const auto end = Time::now() + report->limit;
  write_status(report->pipe.get(), status, report->limit);
  report->pipe.reset();
  while (::waitpid(report->child, nullptr, WNOHANG) == 0) {
    if (Time::now() >= end) {
      ::dprintf(STDERR_FILENO, "smdp: process %d did not exit within %.3g s after its parent: it is killed\n",
                static_cast<int>(report->child), static_cast<double>(report->limit.count()) / 1000);
      ::kill(report->child, SIGKILL);
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace

Status report_exit(UniqueFd pipe, pid_t child, std::chrono::milliseconds limit) {
  auto request = std::make_unique<ExitReport>(ExitReport{::getpid(), std::move(pipe), child, limit});
  if (::on_exit(report, request.get()) != 0) {
    return {Code::kSystem, "the C library has no memory for a function that exit() calls"};
  }
  [[maybe_unused]] const auto* owned_by_exit = request.release();
  return {};
}

}  // namespace smdp
