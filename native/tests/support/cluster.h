// Ranks as threads in one process: each has its own engine, over TCP on loopback or over the fault fabric.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine.h"
#include "fault_transport.h"
#include "reference.h"

namespace smdp::testing {

// The store of a framework: a map behind a lock.
class MemoryStore final : public KeyValueStore {
 public:
  Status set(const std::string& key, const std::string& value) override;
  Result<std::string> get(const std::string& key, TimePoint deadline) override;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

struct ClusterOptions {
  std::vector<int> hosts = {1};   // ranks per host
  FaultFabric* fabric = nullptr;  // null: TCP
  std::map<std::string, std::string> options{};
  // Changes one rank's configuration before it opens.
  std::function<void(int rank, EngineConfig& config)> adjust{};
};

class Cluster {
 public:
  explicit Cluster(const ClusterOptions& options);
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  // The result of open() on each rank.
  [[nodiscard]] const std::vector<Status>& opened() const { return opened_; }
  [[nodiscard]] bool ok() const;
  [[nodiscard]] int size() const { return static_cast<int>(engines_.size()); }
  Engine& engine(int rank) { return *engines_[static_cast<std::size_t>(rank)]; }
  // A group of these ranks on each of them; the ids agree.
  std::uint64_t group(const std::vector<int>& members, const std::string& name, double timeout_s = 20);
  std::vector<std::string> warnings();
  // What the ranks print that is no warning.
  std::string notices();
  void close();

 private:
  std::vector<std::unique_ptr<Engine>> engines_;
  std::vector<Status> opened_;
  std::mutex mutex_;
  std::vector<std::string> warnings_;
  std::string notices_;
};

// Lines as one text.
std::string joined(const std::vector<std::string>& lines);

// Its ranks.
std::vector<int> everybody(const Cluster& cluster);

struct Job {
  Descriptor what;
  Buffer input;
  Buffer output;
  bool in_place = false;
  std::shared_ptr<OperationHandle> handle;
  Status refused;
};

// Starts a call on one rank. `job` owns the memory.
void start(Cluster& cluster, int rank, std::uint64_t group, const std::vector<int>& members, Job& job,
           double timeout_s = 20);
Status finish(Job& job, double seconds = 60);

// The inputs by host, for reference_reduce().
std::vector<std::vector<Buffer>> by_host(Cluster& cluster, const std::vector<int>& members,
                                         const std::vector<Buffer>& inputs);

Job float_job(Collective collective, std::uint64_t count, std::uint32_t seed);
// The result of a call, from the inputs by host.
using Reference = std::function<Buffer(const std::vector<std::vector<Buffer>>& inputs)>;
Buffer float_sum(const std::vector<std::vector<Buffer>>& inputs);
// One all_reduce of `count` floats on all ranks, compared with the reference.
void check_all_reduce(Cluster& cluster, std::uint64_t group, std::uint64_t count, std::uint32_t seed,
                      const Reference& reference = float_sum);

}  // namespace smdp::testing
