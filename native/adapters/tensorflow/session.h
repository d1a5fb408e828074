// The engine of this process, from init() to shutdown(), and the groups that TensorFlow's operations use.
#pragma once

#include <smdp/engine.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "calls.h"
#include "lane.h"

namespace smdp_tensorflow {

// Operations of one group that take several calls: one operation after the other, in the order in which they
// came, so that the calls of all ranks meet.
class Sequence : public std::enable_shared_from_this<Sequence> {
 public:
  // Starts the operation, whose end it tells.
  using Start = std::function<void(Group& group, Ended over)>;

  explicit Sequence(std::unique_ptr<Group> group) : group_(std::move(group)) {}
  void add(Start start, Ended ended);
  // Ends what waits or comes later with the error; what is under way ends as the group is closed.
  void fail(const smdp_error& error);
  // The same at once, and the engine knows nothing of the sequence any more when it returns.
  void close();

 private:
  struct Waiting {
    Start start;
    Ended ended;
  };
  void begin(Waiting next);

  const std::unique_ptr<Group> group_;
  std::mutex mutex_;
  // Guarded by mutex_.
  std::deque<Waiting> waiting_;  // the first is under way
  std::optional<smdp_error> failed_;
};

struct LaneName {
  std::string lane;
  std::string among;      // under which the ranks compare what they have made; empty: they do not
  std::string described;  // each gradient of the list, with a blank between two
};

class Session {
 public:
  // Null before init() and after shutdown().
  static std::shared_ptr<Session> current();
  // Blocks until all ranks are connected.
  static smdp_error open(int rank, int world_size, const char* master);
  static void close();
  // For a script that ends by an exception: the others shall see a loss and not a goodbye.
  static void abandon();

  Session(smdp_engine* engine, int rank, int world_size);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session();

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int world_size() const { return world_size_; }
  // Made at the first use of a name; null with an error.
  std::shared_ptr<Lane> lane(const LaneName& name, Lane::Shape shape, smdp_error* error);
  std::shared_ptr<Sequence> sequence(const std::string& name, smdp_error* error);

 private:
  std::unique_ptr<Group> group(const std::string& name, smdp_error* error);
  void compare(const LaneName& name, const std::shared_ptr<Lane>& lane);
  void watch();
  void end();  // of all that it has; nothing is made afterwards

  smdp_engine* const engine_;
  const int rank_;
  const int world_size_;
  std::mutex mutex_;
  // All guarded by mutex_.
  std::map<std::string, std::shared_ptr<Lane>> lanes_;
  std::map<std::string, std::unique_ptr<Group>> comparisons_;
  std::map<std::string, std::shared_ptr<Sequence>> sequences_;
  bool closing_ = false;
  std::condition_variable closes_;
  std::thread watcher_;  // looks at the lanes' deadlines
};

}  // namespace smdp_tensorflow
