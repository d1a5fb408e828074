// Whether a call is valid: types, sizes and memory.
#pragma once

#include "base/status.h"
#include "collectives/call.h"

namespace smdp {

// kInvalid or kUnsupported, with the reason. `group_size`, `group_rank`: of the group that makes the call.
Status check_call(const Call& call, int group_size, int group_rank);

}  // namespace smdp
