// The file behind a timeline: a JSON array of events, one on each line. A thread of its own makes the lines
// and writes them, since text takes longer than many an operation, and a disk may be slow: the loop hands
// over what is to be told and goes on. A process that dies leaves an array without its end, which browsers
// and `python -m smdp_engine.trace` read all the same.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/status.h"

namespace smdp {

class TimelineFile {
 public:
  // Adds events; runs on the file's thread.
  using Batch = std::function<void(TimelineFile&)>;

  // `folder`/timeline_rank_<rank>.json, or with a number before the end if this process wrote that already.
  static Result<std::unique_ptr<TimelineFile>> create(const std::string& folder, int rank,
                                                      std::uint64_t most_bytes);
  ~TimelineFile();
  TimelineFile(const TimelineFile&) = delete;
  TimelineFile& operator=(const TimelineFile&) = delete;

  void post(Batch batch);
  // A batch is waiting or being written: whoever can waits with the next.
  [[nodiscard]] bool is_busy();
  // Runs what was posted, ends the array and the thread.
  void close();
  [[nodiscard]] const std::string& path() const { return path_; }

  // On the file's thread. One event, without a comma. False: the file is full, it was dropped and counted.
  bool add(std::string_view event);
  // The same for the few that may pass the limit: names, clocks, totals.
  void add_always(std::string_view event);
  [[nodiscard]] std::uint64_t dropped() const { return dropped_; }

 private:
  TimelineFile(std::string path, int fd, std::uint64_t most_bytes);
  void run();
  void run_batches(const std::vector<Batch>& batches);

  std::string path_;
  UniqueFd fd_;
  std::uint64_t most_bytes_;
  // The thread's.
  std::string text_ = "[\n";
  std::uint64_t bytes_ = 0;
  std::uint64_t dropped_ = 0;
  bool first_ = true;
  bool failed_ = false;  // the disk took no more

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Batch> batches_;  // guarded by mutex_
  bool working_ = false;        // guarded by mutex_
  bool closing_ = false;        // guarded by mutex_
  std::thread thread_;
};

}  // namespace smdp
