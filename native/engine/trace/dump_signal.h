// The signal by which a person asks a process for its flight records. The handler only counts: each engine of
// the process looks at the count on its own loop.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace smdp {

// Takes the signal ("USR1", ...; "": none) for the whole process, once. kInvalid when the program handles it
// itself.
Status listen_for_dumps(std::string_view signal);

// Signals so far.
std::uint64_t dumps_asked_for();

}  // namespace smdp
