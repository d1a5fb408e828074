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

// Operations of one group that take several calls. They run one after the other, in the order in which they
// were added, so that the calls of all ranks match.
class Sequence : public std::enable_shared_from_this<Sequence> {
 public:
  // Starts the operation, which reports its end.
  using Start = std::function<void(Group& group, Ended over)>;

  explicit Sequence(std::unique_ptr<Group> group) : group_(std::move(group)) {}
  void add(Start start, Ended ended);
  // Fails the operations that wait and all later ones with the error; a running one ends when the group
  // closes.
  void fail(const smdp_error& error);
  // The same at once; when it returns, the engine does not use the sequence any more.
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
  std::deque<Waiting> waiting_;  // the first one runs
  std::optional<smdp_error> failed_;
};

struct LaneName {
  std::string lane;
  std::string among;      // under which the ranks compare their lists; empty: they do not
  std::string described;  // the gradients of the list, separated by blanks
};

class Session {
 public:
  // Null before init() and after shutdown().
  static std::shared_ptr<Session> current();
  // Blocks until all ranks are connected.
  static smdp_error open(int rank, int world_size, const char* master);
  static void close();
  // For a script that ends by an exception: the other ranks see a loss and no goodbye.
  static void abandon();

  Session(smdp_engine* engine, int rank, int world_size);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session();

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int world_size() const { return world_size_; }
  // Created at the first use of a name; null with an error.
  std::shared_ptr<Lane> lane(const LaneName& name, Lane::Shape shape, smdp_error* error);
  std::shared_ptr<Sequence> sequence(const std::string& name, smdp_error* error);

 private:
  std::unique_ptr<Group> group(const std::string& name, smdp_error* error);
  void compare(const LaneName& name, const std::shared_ptr<Lane>& lane);
  void watch();
  void end();  // ends all groups, lanes and sequences; none is created afterwards

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
  std::thread watcher_;  // checks the lanes' deadlines
};

}  // namespace smdp_tensorflow
