// The file of a timeline: a JSON array of events, one per line. A thread of its own formats and writes the
// lines, because formatting takes longer than many operations, and a disk may be slow. A process that dies
// leaves an array without its end, which browsers and `python -m smdp_engine.trace` can read.
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

  // `folder`/timeline_rank_<rank>.json, or with a number before the extension if this process has written
  // that file.
  static Result<std::unique_ptr<TimelineFile>> create(const std::string& folder, int rank,
                                                      std::uint64_t most_bytes);
  ~TimelineFile();
  TimelineFile(const TimelineFile&) = delete;
  TimelineFile& operator=(const TimelineFile&) = delete;

  void post(Batch batch);
  // A batch waits or is being written. Post the next one later if possible.
  [[nodiscard]] bool is_busy();
  // Runs the posted batches, then ends the array and the thread.
  void close();
  [[nodiscard]] const std::string& path() const { return path_; }

  // On the file's thread. One event, without a comma. False: the file is full; the event is dropped and
  // counted.
  bool add(std::string_view event);
  // The same for the few events that may exceed the limit: names, clocks, totals.
  void add_always(std::string_view event);
  [[nodiscard]] std::uint64_t dropped() const { return dropped_; }

 private:
  TimelineFile(std::string path, int fd, std::uint64_t most_bytes);
  void run();
  void run_batches(const std::vector<Batch>& batches);

  std::string path_;
  UniqueFd fd_;
  std::uint64_t most_bytes_;
  // Of the file's thread.
  std::string text_ = "[\n";
  std::uint64_t bytes_ = 0;
  std::uint64_t dropped_ = 0;
  bool first_ = true;
  bool failed_ = false;  // writing failed

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Batch> batches_;  // guarded by mutex_
  bool working_ = false;        // guarded by mutex_
  bool closing_ = false;        // guarded by mutex_
  std::thread thread_;
};

}  // namespace smdp
