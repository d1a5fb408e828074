#include "base/fork_guard.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <vector>

namespace smdp::fork_guard {
namespace {

struct Table {
  std::mutex mutex;
  std::vector<int> fds;
};

// Never destroyed: a descriptor may be closed by a thread that outlives static destructors.
Table& table() {
  static Table& only = *[] {
    auto* made = new Table;  // NOLINT(cppcoreguidelines-owning-memory)
    ::pthread_atfork([] { table().mutex.lock(); }, [] { table().mutex.unlock(); },
                     [] {
                       for (const int fd : table().fds) {
                         ::close(fd);
                       }
                       table().fds.clear();
                       table().mutex.unlock();
                     });
    return made;
  }();
  return only;
}

}  // namespace

void add(int fd) {
  Table& known = table();
  const std::lock_guard lock(known.mutex);
  known.fds.push_back(fd);
}

void remove_and_close(int fd) {
  Table& known = table();
  const std::lock_guard lock(known.mutex);
  const auto found = std::ranges::find(known.fds, fd);
  if (found == known.fds.end()) {
    return;  // a forked child: already closed there, and the number may be another file's by now
  }
  known.fds.erase(found);
  ::close(fd);
}

}  // namespace smdp::fork_guard
