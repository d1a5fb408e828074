#include "cluster.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <thread>

namespace smdp::testing {

Status MemoryStore::set(const std::string& key, const std::string& value) {
  const std::lock_guard lock(mutex_);
  values_[key] = value;
  changed_.notify_all();
  return {};
}

Result<std::string> MemoryStore::get(const std::string& key, TimePoint deadline) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_until(lock, deadline, [&] { return values_.contains(key); })) {
    return Status(Code::kTimeout, "no " + key);
  }
  return values_[key];
}

Cluster::Cluster(const ClusterOptions& options) {
  MemoryStore store;
  std::vector<int> host_of;
  for (std::size_t host = 0; host < options.hosts.size(); ++host) {
    host_of.insert(host_of.end(), static_cast<std::size_t>(options.hosts[host]), static_cast<int>(host));
  }
  const std::size_t size = host_of.size();
  engines_.resize(size);
  opened_.resize(size);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      EngineConfig config;
      config.identity = {static_cast<int>(rank), static_cast<int>(size), "test-build", "127.0.0.1", &store};
      config.options.host_id = "host-" + std::to_string(host_of[rank]);
      config.options.interface = "127.0.0.1";
      config.options.arena_mib = 256;
      config.options.rendezvous_timeout_s = 30;
      config.options.close_timeout_s = 2;
      config.options.job_token = "00112233445566778899aabbccddeeff";
      config.log = [this](LogLevel level, const std::string& text) {
        const std::lock_guard lock(mutex_);
        if (level == LogLevel::kWarning) {
          warnings_.push_back(text);
        } else {
          notices_ += text + "\n";
        }
      };
      // The same tests run over a fabric too (make test-fabric).
      for (const char* name : {"SMDP_TRANSPORT", "SMDP_LIBFABRIC", "SMDP_FABRIC_RAILS"}) {
        if (const auto value = process_environment()(name)) {
          (void)set_option(config.options, name, *value);
        }
      }
      for (const auto& [name, value] : options.options) {
        (void)set_option(config.options, name, value);
      }
      if (options.fabric != nullptr) {
        config.make_transport = [&](Executor& executor, int me) {
          return options.fabric->attach(executor, me);
        };
      }
      if (options.adjust) {
        options.adjust(static_cast<int>(rank), config);
      }
      auto engine = Engine::open(std::move(config));
      opened_[rank] = engine.status();
      if (engine.ok()) {
        engines_[rank] = std::move(*engine);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

Cluster::~Cluster() { close(); }

void Cluster::close() {
  std::vector<std::thread> threads;
  for (auto& engine : engines_) {
    if (engine) {
      threads.emplace_back([&engine] { engine->close(); });
    }
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

bool Cluster::ok() const {
  return std::ranges::all_of(opened_, [](const Status& status) { return status.ok(); });
}

std::vector<std::string> Cluster::warnings() {
  const std::lock_guard lock(mutex_);
  return warnings_;
}

std::string Cluster::notices() {
  const std::lock_guard lock(mutex_);
  return notices_;
}

std::uint64_t Cluster::group(const std::vector<int>& members, const std::string& name, double timeout_s) {
  std::uint64_t id = 0;
  for (const int member : members) {
    const auto made = engine(member).create_group(members, name, timeout_s);
    id = made.ok() ? *made : 0;
  }
  return id;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) {
    text += line + "\n";
  }
  return text;
}

std::vector<int> everybody(const Cluster& cluster) {
  std::vector<int> all(static_cast<std::size_t>(cluster.size()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

void start(Cluster& cluster, int rank, std::uint64_t group, const std::vector<int>& members, Job& job,
           double timeout_s) {
  const auto size = static_cast<int>(members.size());
  const auto group_rank = static_cast<int>(std::ranges::find(members, rank) - members.begin());
  const std::size_t bytes = job.what.count * size_of(job.what.dtype);
  const bool gathers = job.what.collective == Collective::kAllGather;
  const bool scatters = job.what.collective == Collective::kReduceScatter;
  job.output.resize(gathers ? bytes * members.size() : bytes);
  job.handle = std::make_shared<OperationHandle>(nullptr);
  Call call;
  call.what = job.what;
  call.input = job.input;
  call.output = job.output;
  if (job.in_place && scatters) {
    call.output = std::span(job.input).subspan(bytes * static_cast<std::size_t>(group_rank), bytes);
  } else if (job.in_place) {
    std::ranges::copy(job.input, job.output.begin());
    call.input = job.output;
  }
  if (job.what.collective == Collective::kBarrier) {
    call.input = {};
    call.output = {};
  }
  call.timeout_s = timeout_s;
  call.handle = job.handle;
  job.refused = cluster.engine(rank).submit(group, size, group_rank, std::move(call));
}

Status finish(Job& job, double limit) {
  return job.refused.ok() ? job.handle->wait(std::chrono::nanoseconds(static_cast<std::int64_t>(limit * 1e9)))
                          : job.refused;
}

std::vector<std::vector<Buffer>> by_host(Cluster& cluster, const std::vector<int>& members,
                                         const std::vector<Buffer>& inputs) {
  std::vector<int> hosts;
  for (const int member : members) {
    hosts.push_back(cluster.engine(member).layout().host_of[static_cast<std::size_t>(member)]);
  }
  const GroupLayout layout = make_group_layout(hosts);
  std::vector<std::vector<Buffer>> sorted;
  for (const auto& ranks : layout.hosts) {
    auto& host = sorted.emplace_back();
    for (const int rank : ranks) {
      host.push_back(inputs[static_cast<std::size_t>(rank)]);
    }
  }
  return sorted;
}

Job float_job(Collective collective, std::uint64_t count, std::uint32_t seed) {
  Job job;
  job.what = {collective, DType::kFloat32, ReduceOp::kSum, 0, count};
  job.input = random_buffer(DType::kFloat32, count, seed);
  return job;
}

Buffer float_sum(const std::vector<std::vector<Buffer>>& inputs) {
  return reference_reduce(DType::kFloat32, ReduceOp::kSum, inputs);
}

void check_all_reduce(Cluster& cluster, std::uint64_t group, std::uint64_t count, std::uint32_t seed,
                      const Reference& reference) {
  const std::vector<int> members = everybody(cluster);
  std::vector<Job> jobs;
  std::vector<Buffer> inputs;
  for (const int rank : members) {
    jobs.push_back(float_job(Collective::kAllReduce, count, seed + static_cast<std::uint32_t>(rank)));
    inputs.push_back(jobs.back().input);
  }
  for (const int rank : members) {
    start(cluster, rank, group, members, jobs[static_cast<std::size_t>(rank)]);
  }
  const Buffer expected = reference(by_host(cluster, members, inputs));
  for (Job& job : jobs) {
    const Status status = finish(job);
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_TRUE(job.output == expected) << count;
  }
}

}  // namespace smdp::testing
