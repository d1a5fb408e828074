// The signal that requests the flight records of a process. The handler only counts: each engine of the
// process reads the count on its own loop.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace smdp {

// Installs the handler of the signal ("USR1", ...; "": none) for the whole process, once. kInvalid when the
// program handles the signal itself.
Status listen_for_dumps(std::string_view signal);

// The number of signals so far.
std::uint64_t dumps_requested();

}  // namespace smdp
