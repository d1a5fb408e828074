#include "ring.h"

#include <algorithm>
#include <vector>

#include "conclude.h"
#include "networks.h"
#include "world.h"

namespace smdp::model {
namespace {

class Ring {
 public:
  explicit Ring(const Question& question);
  Result<Answer> run();

 private:
  struct Rank {
    TimePoint free{};      // its own work
    TimePoint out_free{};  // its way to a neighbour of its host
    std::uint64_t received = 0;
  };

  void begin(std::size_t bucket);
  // Passes on what is the `step`th of this slice's hops.
  void send(std::size_t rank, std::uint64_t step, std::uint64_t bytes);
  void received(std::size_t rank, std::uint64_t step, std::uint64_t bytes);

  const Question& question_;
  simulation::World world_{1, false};
  Wires wires_;
  std::vector<Rank> ranks_;
  std::vector<Wires::Flow> flows_;  // of each host's last rank
  std::size_t bucket_ = 0;
  std::uint64_t steps_;
  std::uint64_t slices_ = 0;  // of a part
  std::size_t open_ = 0;      // ranks that wait for something of this bucket
  TimePoint began_{};
  Answer answer_;
};

Ring::Ring(const Question& question)
    : question_(question),
      wires_(world_, question.costs, question.hosts),
      ranks_(static_cast<std::size_t>(question.hosts) * static_cast<std::size_t>(question.ranks_per_host)),
      steps_(2 * (ranks_.size() - 1)) {
  for (int host = 0; host < question.hosts; ++host) {
    flows_.emplace_back(host, (host + 1) % question.hosts);
  }
  answer_.bucket_done.resize(question.buckets.size());
}

void Ring::begin(std::size_t bucket) {
  bucket_ = bucket;
  const std::uint64_t part = (question_.buckets[bucket].bytes + ranks_.size() - 1) / ranks_.size();
  const auto most = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(question_.costs.ring_slice_bytes));
  slices_ = std::max<std::uint64_t>(1, (part + most - 1) / most);
  open_ = ranks_.size();
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    ranks_[rank].received = 0;
    for (std::uint64_t slice = 0; slice < slices_; ++slice) {
      send(rank, 0, part / slices_);
    }
  }
}

void Ring::send(std::size_t rank, std::uint64_t step, std::uint64_t bytes) {
  const std::size_t next = (rank + 1) % ranks_.size();
  const auto locals = static_cast<std::size_t>(question_.ranks_per_host);
  auto arrived = [this, next, step, bytes] { received(next, step, bytes); };
  if (rank / locals != next / locals) {
    ++answer_.messages;
    wires_.send(flows_[rank / locals], bytes, nullptr, std::move(arrived));
    return;
  }
  ++answer_.local_messages;
  Rank& one = ranks_[rank];
  one.out_free = std::max(one.out_free, world_.now()) +
                 seconds(static_cast<double>(bytes) / question_.costs.ring_local_rate);
  world_.at(one.out_free + seconds(question_.costs.ring_local_latency), std::move(arrived));
}

void Ring::received(std::size_t rank, std::uint64_t step, std::uint64_t bytes) {
  Rank& one = ranks_[rank];
  one.free = std::max(one.free, world_.now()) + seconds(question_.costs.ring_slice);
  world_.at(one.free, [this, rank, step, bytes] {
    if (step + 1 < steps_) {
      send(rank, step + 1, bytes);
    }
    if (++ranks_[rank].received < steps_ * slices_ || --open_ > 0) {
      return;
    }
    answer_.bucket_done[bucket_] = std::chrono::duration<double>(world_.now() - began_).count();
    if (const std::size_t next = bucket_ + 1; next < question_.buckets.size()) {
      world_.at(began_ + seconds(question_.buckets[next].ready_s), [this, next] { begin(next); });
    }
  });
}

Result<Answer> Ring::run() {
  began_ = world_.now();
  if (ranks_.size() > 1) {
    world_.at(began_ + seconds(question_.buckets.front().ready_s), [this] { begin(0); });
  }
  while (world_.step()) {
  }
  conclude(answer_, world_, wires_);
  return std::move(answer_);
}

}  // namespace

Result<Answer> ring(const Question& question) { return Ring(question).run(); }

}  // namespace smdp::model
