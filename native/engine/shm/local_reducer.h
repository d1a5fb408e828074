// The interface for the step inside a host: it sums the values of the host's ranks, and delivers results to
// them.
//
// Copies and sums may run on copy threads (LocalSpec::offload): their output is complete when the event
// comes.
//
// Shared memory implements it (shm_reducer.h). A reducer on linked GPUs can implement it too: a
// reduce-scatter on the GPUs, after which each rank copies its own lane of the host's sum.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/reduce.h"
#include "layout/plan.h"
#include "net/frame.h"
#include "shm/offload.h"

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
  // On the agent: sum() computes the host's sum, after may_sum() has found memory for it. False: retry later.
  virtual bool may_sum(std::uint32_t piece) = 0;
  virtual void sum(std::uint32_t piece) = 0;
  // Where the final bytes must be written before deliver(); may be the sum's own memory. Null data() means
  // "no memory now, retry later"; an empty range has a data() too.
  virtual std::span<std::byte> result(std::uint32_t piece) = 0;
  // Makes `bytes`, the whole piece, result(piece) without a copy, if the other ranks of the host can read
  // this memory. `owner` is kept until all ranks of the host have the bytes. False: nothing has changed.
  virtual bool adopt(std::uint32_t piece, std::span<const std::byte> bytes,
                     const std::shared_ptr<const void>& owner) = 0;
  // Hands result(piece) to the ranks of this host that get it.
  virtual void deliver(std::uint32_t piece) = 0;
  // Instead of deliver(), where no rank of this host gets result(piece): frees its memory.
  virtual void discard(std::uint32_t piece) = 0;
  // Keeps the memory of result(piece) until the returned object is destroyed.
  virtual std::shared_ptr<const void> keep(std::uint32_t piece) = 0;
  // A frame from a rank of this host. False: the frame does not belong to this job's plan.
  virtual bool on_frame(int local_sender, const FrameHeader& header) = 0;
  // Retries contributions that had no memory.
  virtual void pump() = 0;
  // Since when no request for memory has succeeded.
  [[nodiscard]] virtual std::optional<TimePoint> starved_since() const = 0;
  // Local ranks whose contribution to `piece` has not come.
  [[nodiscard]] virtual std::vector<int> missing(std::uint32_t piece) const = 0;
  // Local ranks that were offered `piece` and have not taken it.
  [[nodiscard]] virtual std::vector<int> takers(std::uint32_t piece) const = 0;
};

struct LocalSpec {
  Descriptor call;
  const Plan* plan = nullptr;
  const GroupLayout* layout = nullptr;
  int rank = 0;  // in the group
  std::span<const std::byte> input;
  std::span<std::byte> output;  // empty where this rank gets no result
  ReduceFn fold = nullptr;      // for the values of the host's ranks
  std::uint32_t divisor = 1;    // applied where more than one rank has values
  const KernelSet* kernels = nullptr;
  Offload* offload = nullptr;  // of the operation, which outlives the job
};

}  // namespace smdp
