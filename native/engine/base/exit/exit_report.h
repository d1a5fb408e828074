// Reports the exit status of this process to a child process, and waits for the child.
#pragma once

#include <sys/types.h>

#include <chrono>

#include "base/fd.h"
#include "base/status.h"

namespace smdp {

// When this process calls exit() or returns from main(): writes "exit STATUS\n" to the pipe, with the status
// from 0 to 255 that the parent of this process gets, and closes the pipe. Then waits until `child` has
// ended, and kills it after `limit`. Until then the pipe stays open, so a child that reads its end without
// this line knows that a signal or _exit() has ended this process. Forked children of this process report
// nothing.
Status report_exit(UniqueFd pipe, pid_t child, std::chrono::milliseconds limit);

}  // namespace smdp
