// How much bulk data this rank has on its way between hosts, over all its operations: little enough that a
// small operation, and the queues of the network, are not kept waiting by it.
#pragma once

#include <cstdint>

namespace smdp {

struct BulkBudget {
  std::uint64_t limit = UINT64_MAX;  // bytes: SMDP_BULK_KIB, shared among the host's ranks
  std::uint64_t used = 0;
  bool starved = false;  // an operation would have sent more
};

}  // namespace smdp
