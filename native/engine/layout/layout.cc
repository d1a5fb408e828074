#include "layout/layout.h"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>

#include "base/bytes.h"

namespace smdp {

std::string Layout::describe(int rank) const {
  const auto index = static_cast<std::size_t>(rank);
  const std::string host =
      index < host_of.size() ? host_names[static_cast<std::size_t>(host_of[index])] : "unknown";
  return "rank " + std::to_string(rank) + " (host " + host + ")";
}

std::uint64_t Layout::hash(std::uint64_t seed) const {
  Writer writer;
  writer.put(seed);
  for (const int host : host_of) {
    writer.put(host);
  }
  return hash64(writer.take());
}

std::string host_key(const std::string& host_id) {
  if (!host_id.empty()) {
    return host_id;
  }
  std::string boot_id = "no-boot-id";
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
  struct stat space{};
  const bool known = ::stat("/proc/self/ns/net", &space) == 0;
  return boot_id.substr(0, 8) + "/net:" + (known ? std::to_string(space.st_ino) : "unknown");
}

Layout make_layout(const std::vector<std::string>& keys, const std::vector<std::vector<int>>& proved) {
  Layout layout;
  std::vector<std::vector<int>> members;
  const auto shares = [&](int left, int right) {
    const auto says = [&](int a, int b) {
      const auto& list = proved[static_cast<std::size_t>(a)];
      return std::ranges::find(list, b) != list.end();
    };
    return says(left, right) && says(right, left);
  };
  for (int rank = 0; rank < static_cast<int>(keys.size()); ++rank) {
    const std::string& key = keys[static_cast<std::size_t>(rank)];
    std::size_t host = 0;
    int namesakes = 0;
    for (; host < members.size(); ++host) {
      const bool same_key = keys[static_cast<std::size_t>(members[host].front())] == key;
      namesakes += same_key ? 1 : 0;
      if (same_key && std::ranges::all_of(members[host], [&](int other) { return shares(rank, other); })) {
        break;
      }
    }
    if (host == members.size()) {
      members.emplace_back();
      layout.host_names.push_back(namesakes == 0 ? key : key + "#" + std::to_string(namesakes + 1));
    }
    members[host].push_back(rank);
    layout.host_of.push_back(static_cast<int>(host));
  }
  return layout;
}

}  // namespace smdp
