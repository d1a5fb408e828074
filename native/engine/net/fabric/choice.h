// Whether a job exchanges over TCP or over a fabric (SMDP_TRANSPORT). All ranks take the same decision, from
// what each of them reports through the rendezvous:
//
//   1. the card of each rank says which fabric it may have (fabric_offer); where a rank has none, TCP
//   2. each rank opens a port on each of its rails (rails.h) and sends their addresses to all, or the reason
//   why there are none; all use the smallest number of rails that a rank has
//   3. each rank sends a frame over each rail to every rank of another host, waits for one from each, and
//   reports the outcome
//
// With `auto`, TCP follows from any failure, and rank 0 prints why. With `ofi` the job ends with the reason.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/options.h"
#include "net/fabric/ofi_transport.h"
#include "net/handshake/rendezvous.h"

namespace smdp {

// The fabric that this rank may have: "efa", "any" where SMDP_TRANSPORT=ofi asks for any, "" for none.
// `devices`: the system's folder of RDMA devices. Loads nothing.
std::string fabric_offer(const Options& options, const std::string& devices = "/sys/class/infiniband");

// The bytes of a rank's shared memory for its receive buffers; 0 where no fabric is possible.
std::size_t fabric_memory(const Options& options);

// The proof in each frame that its sender belongs to this rendezvous of the job.
FabricPort::Tag fabric_tag(std::span<const std::byte> token, std::uint64_t session);

struct FabricQuestion {
  const Options& options;
  int rank = 0;
  std::vector<std::string> offers;  // by rank: fabric_offer()
  std::vector<int> host_of;         // by rank
  std::vector<std::string> names;   // by rank, for messages
  std::string source;               // an address of this rank
  FabricPort::Tag tag{};
  std::span<std::byte> shared;  // for receive buffers: memory that the ranks of this host can read
  std::string sysfs = "/sys";
};

// No rail: TCP. An error is the same on all ranks.
Result<FabricConnections> choose_fabric(const FabricQuestion& question, Rendezvous& rendezvous,
                                        TimePoint deadline, const LogSink& log);

}  // namespace smdp
