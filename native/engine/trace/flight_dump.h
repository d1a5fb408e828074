// The flight recorder's file: a pickle with the fields of torch's own flight recorder, version 2.10, which
// torch.distributed.flight_recorder reads; what it has no field for has names of ours beside them.
// docs/tracing.md lists them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/layout.h"
#include "trace/flight_recorder.h"

namespace smdp {

struct DumpIdentity {
  int rank = 0;
  const Layout* layout = nullptr;
  std::string build;
};

// `groups`: those that exist, with or without records. `reason`: why it is dumped, for people.
std::string encode_flight(const FlightRecorder& recorder, const DumpIdentity& who, const std::string& reason,
                          std::vector<std::shared_ptr<const TracedGroup>> groups);

}  // namespace smdp
