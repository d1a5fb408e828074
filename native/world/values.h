// What goes into a planned call on each rank, and what has to come out of it: random bytes from the call and
// the rank, and the reference for what is reduced.
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

  // Makes it the call's. `this` must outlive it.
  void lend(Call& call);
  // Of all its bytes: equal while nobody writes to it.
  [[nodiscard]] std::size_t digest() const;
};

// Before the call; results are zeros. `what` is the planned call's, or differs from it in the count.
Values values_before(const JobPlan& plan, std::uint32_t number, const Descriptor& what, int group_rank);

// Says what the calls of a job have to leave on each rank.
class Reference {
 public:
  explicit Reference(const JobPlan& plan) : plan_(plan) {}

  // Whether `values` hold it, of a call which all ranks made as `what`.
  bool agrees(const Values& values, std::uint32_t number, const Descriptor& what, int group_rank);

 private:
  const testing::Buffer& result_of(std::uint32_t number, const PlannedCall& call);

  const JobPlan& plan_;
  std::map<std::pair<std::uint32_t, std::uint64_t>, testing::Buffer> results_;  // by call and its count
};

}  // namespace smdp::simulation
