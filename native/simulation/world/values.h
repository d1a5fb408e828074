// The inputs of a planned call on each rank, which are random bytes derived from the call and the rank, and
// the expected results, which the reference computes.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "collectives/call.h"
#include "job_plan.h"
#include "reference.h"

namespace smdp::simulation {

// The memory of one call on one rank.
struct Values {
  struct Message {
    int peer = 0;  // rank of the group
    bool receive = false;
    testing::Buffer bytes;
  };

  testing::Buffer input;
  testing::Buffer output;
  std::vector<Message> messages;

  // Uses this memory for the call, which it must outlive.
  void lend(Call& call);
  // Digest of all bytes: constant while nothing writes to them.
  [[nodiscard]] std::size_t digest() const;
};

// The memory before the call; outputs are zeros. `what`: of the planned call, or with another count.
Values values_before(const JobPlan& plan, std::uint32_t number, const Descriptor& what, int group_rank);

// The expected results of the calls of a job, on each rank.
class Reference {
 public:
  explicit Reference(const JobPlan& plan) : plan_(plan) {}

  // Whether `values` are the results of a call that all ranks made as `what`.
  bool agrees(const Values& values, std::uint32_t number, const Descriptor& what, int group_rank);

 private:
  const testing::Buffer& result_of(std::uint32_t number, const PlannedCall& call);

  const JobPlan& plan_;
  std::map<std::pair<std::uint32_t, std::uint64_t>, testing::Buffer> results_;  // by call and its count
};

}  // namespace smdp::simulation
