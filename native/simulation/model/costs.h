// What things cost in a modelled job: seconds of a processor, seconds of a wire.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace smdp::model {

// Times in seconds, sizes in bytes. The defaults are round assumptions about no machine in particular;
// native/benchmarks/calibrate.py measures those of the machine that it runs on.
struct Costs {
  // The network: a queue out of each host and one into it, which the messages of its ranks share.
  double link_rate = 1.25e9;             // bytes a second, each way
  double wire_overhead = 1514.0 / 1448;  // bytes on the wire for each byte sent
  double link_latency = 30e-6;           // from the end of one queue to the begin of the other
  double link_quantum = 16384;           // bytes after which another connection has its turn
  double link_burst = 0;                 // bytes that a shaper lets through at once after a pause

  // The processors: of each host, or of all hosts together where these share a machine.
  double cores = 16;
  double cores_are_shared = 0;
  double wake = 20e-6;          // from a message to a thread that slept
  double send_frame = 4e-6;     // of the sender's processor, a message
  double send_byte = 0.15e-9;   // ... a byte
  double receive_frame = 4e-6;  // of the receiver's
  double receive_byte = 0.25e-9;
  double local_frame = 0.3e-6;  // a message through shared memory, each side
  double hand_over = 1e-6;      // until a copy thread has what it was given
  double copy_byte = 0.2e-9;    // within a host's memory
  double fold_byte = 0.15e-9;   // of each source of a sum
  double memory_rate = 0;       // bytes that all processors of a host copy or add in a second; 0: no bound

  // Of a ring's peer: what each rank spends on a slice that it passes on, and the size of a slice.
  double ring_slice = 10e-6;
  double ring_slice_bytes = 524288;
  double ring_local_rate = 5e9;  // bytes a second between neighbours of one host
  double ring_local_latency = 5e-6;
};

struct CostInfo {
  std::string_view name;
  double Costs::* field;
  bool may_be_zero = true;
};

[[nodiscard]] std::span<const CostInfo> cost_table();
Status set_cost(Costs& costs, std::string_view name, double value);

}  // namespace smdp::model
