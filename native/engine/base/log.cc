#include "base/log.h"

#include <cstdio>

namespace smdp {

LogSink standard_error_sink(bool verbose) {
  return [verbose](LogLevel level, const std::string& text) {
    if (level == LogLevel::kInfo && !verbose) {
      return;
    }
    // One call, so that the lines of several ranks do not mix.
    const std::string line =
        std::string("smdp: ") + (level == LogLevel::kWarning ? "warning: " : "") + text + "\n";
    std::fputs(line.c_str(), stderr);
  };
}

}  // namespace smdp
