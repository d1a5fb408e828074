// The bulk data that this rank has in flight between hosts, over all its operations. The limit keeps it from
// delaying small operations and from filling the queues of the network.
#pragma once

#include <cstdint>

namespace smdp {

struct BulkBudget {
  std::uint64_t limit = UINT64_MAX;  // bytes: SMDP_BULK_KIB, shared among the host's ranks
  std::uint64_t used = 0;
  bool starved = false;  // an operation had no budget left
};

}  // namespace smdp
