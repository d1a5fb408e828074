// The barrier that names the ranks that did not arrive. Every other rank sends a message to rank 0, which
// answers all of them.
//
// The error texts are Gloo's: scripts and torch's tests look for them.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "backend.h"

namespace smdp_torch {

// Rank 0 stops waiting for a rank long before; it still receives the message of a rank that arrives later.
constexpr std::chrono::hours kForLateRanks{24 * 365};

inline bool arrived_in_time(c10d::Work& work, std::chrono::steady_clock::time_point deadline) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  try {
    return work.wait(std::max(left, std::chrono::milliseconds(1)));
  } catch (const c10::Error&) {
    if (work.isCompleted()) {
      throw;  // the call itself failed, and its error says why
    }
    return false;
  }
}

inline void EngineBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  const auto timeout = options.timeout == c10d::kUnsetTimeout
                           ? std::chrono::milliseconds(static_cast<int64_t>(timeout_s_ * 1000))
                           : options.timeout;
  if (getRank() == 0) {
    gather_arrivals(timeout, wait_all_ranks);
  } else {
    report_arrival(timeout);
  }
}

inline void EngineBackend::gather_arrivals(std::chrono::milliseconds timeout, bool wait_all_ranks) {
  const NoOptions options{kForLateRanks};
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  std::vector<WorkPtr> arrivals;
  for (int rank = 1; rank < getSize(); ++rank) {
    arrivals.push_back(launch(receive({at::empty({1}, at::kByte)}, rank, kArrivedTag), options));
  }
  std::string late;
  int missing = 0;
  for (int rank = 1; rank < getSize() && (missing == 0 || wait_all_ranks); ++rank) {
    if (!arrived_in_time(*arrivals[static_cast<size_t>(rank - 1)], deadline)) {
      late += (missing++ == 0 ? "" : ", ") + std::to_string(rank);
    }
  }
  for (int rank = 1; rank < getSize(); ++rank) {
    launch(smdp_torch::send({at::full({1}, missing == 0 ? 1 : 0, at::kByte)}, rank, kPassedTag), options);
  }
  TORCH_CHECK_WITH(DistBackendError, timeout.count() > 0 || missing == 0,
                   "smddp: Rank 0 timed out in monitoredBarrier after ", timeout.count(), " ms.");
  TORCH_CHECK_WITH(DistBackendError, missing == 0, "smddp: Rank", missing > 1 ? "s " : " ", late,
                   " failed to pass monitoredBarrier in ", timeout.count(), " ms");
}

inline void EngineBackend::report_arrival(std::chrono::milliseconds timeout) {
  const NoOptions options{kForLateRanks};
  launch(smdp_torch::send({at::ones({1}, at::kByte)}, 0, kArrivedTag), options);
  const at::Tensor passed = at::zeros({1}, at::kByte);
  // Rank 0 needs its own timeout to find the late ranks.
  const auto deadline = std::chrono::steady_clock::now() + 2 * timeout + std::chrono::seconds(1);
  const auto answer = launch(receive({passed}, 0, kPassedTag), options);
  TORCH_CHECK_WITH(
      DistBackendError, arrived_in_time(*answer, deadline) && passed.item<uint8_t>() == 1, "smddp: Rank ",
      getRank(),
      " successfully reached monitoredBarrier, but received errors while waiting for send/recv from "
      "rank 0. Please check rank 0 logs for the rank that did not come.");
}

}  // namespace smdp_torch
