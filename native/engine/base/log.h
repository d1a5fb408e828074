// Log lines, through a function that the embedding process may replace.
#pragma once

#include <functional>
#include <string>

namespace smdp {

// A notice is printed as a warning is, and is none.
enum class LogLevel : int { kInfo = 0, kWarning = 1, kNotice = 2 };

// Called from the loop's thread and, while an engine opens, from the opening one. Must not block for long.
using LogSink = std::function<void(LogLevel, const std::string&)>;

// "smdp: warning: ..." or "smdp: ..." on standard error; information only when `verbose`.
LogSink standard_error_sink(bool verbose);

}  // namespace smdp
