// The flight recorder's file: a pickle with the fields of torch's own flight recorder, version 2.10, which
// torch.distributed.flight_recorder reads, and additional fields. docs/how-to/slow-runs.md lists them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "layout/layout.h"
#include "record/flight_recorder.h"

namespace smdp {

struct DumpIdentity {
  int rank = 0;
  const Layout* layout = nullptr;
  std::string build;
};

// `groups`: those that exist, with or without records. `reason`: why the file is written.
std::string encode_flight(const FlightRecorder& recorder, const DumpIdentity& who, const std::string& reason,
                          std::vector<std::shared_ptr<const TracedGroup>> groups);

}  // namespace smdp
