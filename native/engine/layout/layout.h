// Which ranks share a host, and how a host is identified.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace smdp {

struct Layout {
  std::vector<int> host_of;             // by rank of the job
  std::vector<std::string> host_names;  // by host: its key, for messages

  [[nodiscard]] int world_size() const { return static_cast<int>(host_of.size()); }
  // "rank 3 (host algo-1)"
  [[nodiscard]] std::string describe(int rank) const;
  [[nodiscard]] std::uint64_t hash(std::uint64_t seed) const;
};

// SMDP_HOST_ID, else boot id and inode of the network namespace.
std::string host_key(const std::string& host_id);

// The hosts: ranks with one key share a host if every pair of them proved that it shares memory. `proved[a]`
// lists the ranks that a shares memory with. Each rank, in order, joins the first host of its key whose ranks
// all share memory with it. So one key may become several hosts, and two keys never become one.
Layout make_layout(const std::vector<std::string>& keys, const std::vector<std::vector<int>>& proved);

}  // namespace smdp
