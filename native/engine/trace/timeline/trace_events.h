// The lines of a timeline: Chrome trace events, as browsers (chrome://tracing, Perfetto) draw them.
// docs/how-to/slow-runs.md describes names and arguments. Times are microseconds of this machine's monotonic
// clock.
//
// Each function appends one event to `out`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "trace/ended_operation.h"
#include "trace/timeline/clock_offset.h"
#include "trace/totals.h"

namespace smdp {

struct TraceIdentity {
  int rank = 0;
  int world_size = 1;
  std::string host;
  std::string build;
  bool rank0_clock = true;  // it shares rank 0's host, and so its clock
};

// The rank's name, and the header of the file.
void put_process(std::string& out, const TraceIdentity& who);
void put_identity(std::string& out, const TraceIdentity& who, TimePoint now);
// `lane`: the row of an operation; concurrent operations have different lanes.
void put_lane(std::string& out, int rank, int lane);
// Rank 0's clock is `ahead` of this rank's.
void put_clock(std::string& out, int rank, TimePoint at, const ClockOffset::Estimate& estimate);
// `number`: the index of the operation in the file.
void put_operation(std::string& out, int rank, std::uint64_t number, const EndedOperation& one);
// A part of operation `number`.
void put_stretch(std::string& out, int rank, int lane, std::uint64_t number, const Phases::Stretch& stretch);
// All operations so far of 2^(size_class - 1) to 2^size_class - 1 bytes; class 0: no bytes.
void put_totals(std::string& out, int rank, int size_class, const Totals& totals);
// What was not drawn: short operations (thinned), and events beyond the size limit (dropped).
void put_undrawn(std::string& out, int rank, std::uint64_t thinned, std::uint64_t dropped);

}  // namespace smdp
