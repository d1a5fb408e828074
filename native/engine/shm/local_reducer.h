// The seam for the step inside a host: bring the values of its ranks together, and hand results out to them.
//
// Copies and sums may run beside the loop (LocalSpec::offload): what they make is there with the event.
//
// Shared memory stands behind it now (shm_reducer.h). On hosts whose GPUs are linked a device reducer comes
// later: reduce-scatter on the GPUs, each rank copying out its own lane of the host's sum. The operation
// above is the same.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/offload.h"
#include "collectives/plan.h"
#include "kernels/reduce.h"
#include "net/frame.h"

namespace smdp {

// The part of one operation that happens inside this rank's host. All calls and events on the loop.
class LocalJob {
 public:
  class Events {
   public:
    virtual ~Events() = default;
    // On the piece's agent: every rank of the host has contributed, sum() may be called.
    virtual void contributed(std::uint32_t piece) = 0;
    // On the agent, after sum(): the host's sum.
    virtual void summed(std::uint32_t piece, std::span<const std::byte> sum) = 0;
    // On a rank that is not the agent: its values of the piece are no longer read from the input.
    virtual void handed_over(std::uint32_t piece) = 0;
    // The piece's final bytes are in this rank's output (or this rank has none).
    virtual void delivered(std::uint32_t piece) = 0;
    // On the rank that called deliver(): all ranks of the host have the bytes.
    virtual void taken(std::uint32_t piece) = 0;
  };

  virtual ~LocalJob() = default;

  virtual void start() = 0;
  // On the agent: makes the host's sum, for which may_sum() must have found memory. False: ask again.
  virtual bool may_sum(std::uint32_t piece) = 0;
  virtual void sum(std::uint32_t piece) = 0;
  // Where the final bytes must be written before deliver(); may be the sum's own memory. Empty data() means
  // "no memory now, ask again" (zero bytes have a data() too).
  virtual std::span<std::byte> result(std::uint32_t piece) = 0;
  // Hands result(piece) to the ranks of this host that get it.
  virtual void deliver(std::uint32_t piece) = 0;
  // Instead of deliver(), where no rank of this host gets result(piece): gives its memory back.
  virtual void discard(std::uint32_t piece) = 0;
  // The memory of result(piece) is read by somebody until the returned object dies.
  virtual std::shared_ptr<const void> keep(std::uint32_t piece) = 0;
  // A frame from a rank of this host. False when it is no frame of this job's plan.
  virtual bool on_frame(int local_sender, const FrameHeader& header) = 0;
  // Contributions that were held back for want of memory are tried again.
  virtual void pump() = 0;
  // Since when there has been no memory whenever it was asked for.
  [[nodiscard]] virtual std::optional<TimePoint> starved_since() const = 0;
  // Local ranks whose contribution to `piece` has not come.
  [[nodiscard]] virtual std::vector<int> missing(std::uint32_t piece) const = 0;
  // Local ranks that were handed `piece` and have not taken it.
  [[nodiscard]] virtual std::vector<int> takers(std::uint32_t piece) const = 0;
};

struct LocalSpec {
  Descriptor call;
  const Plan* plan = nullptr;
  const GroupLayout* layout = nullptr;
  int rank = 0;  // in the group
  std::span<const std::byte> input;
  std::span<std::byte> output;  // empty where this rank gets nothing
  ReduceFn fold = nullptr;      // of the host's values
  std::uint32_t divisor = 1;    // ... where more than one rank has some
  const KernelSet* kernels = nullptr;
  Offload* offload = nullptr;  // of the operation, which outlives the job
};

}  // namespace smdp
