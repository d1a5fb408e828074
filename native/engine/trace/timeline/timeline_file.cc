#include "trace/timeline/timeline_file.h"

#include <fcntl.h>
#include <pthread.h>

#include <cerrno>
#include <set>
#include <system_error>
#include <utility>

#include "base/out_of_memory.h"
#include "base/signals_blocked.h"
#include "trace/file.h"

namespace smdp {
namespace {

// Successive engines of one process write one file each.
std::string fresh_path(const std::string& folder, int rank) {
  static std::mutex mutex;
  static std::set<std::string> used;
  const std::lock_guard lock(mutex);
  const std::string stem = folder + "/timeline_rank_" + std::to_string(rank);
  std::string path = stem + ".json";
  for (int turn = 2; !used.insert(path).second; ++turn) {
    path = stem + "." + std::to_string(turn) + ".json";
  }
  return path;
}

}  // namespace

Result<std::unique_ptr<TimelineFile>> TimelineFile::create(const std::string& folder, int rank,
                                                           std::uint64_t most_bytes) {
  if (Status status = create_folder(folder); !status.ok()) {
    return status;
  }
  const std::string path = fresh_path(folder, rank);
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) {
    return system_error(path, errno);
  }
  try {
    return std::unique_ptr<TimelineFile>(new TimelineFile(path, fd, most_bytes));
  } catch (const std::system_error& error) {
    return system_error("creating a thread for " + path, error.code().value());
  }
}

TimelineFile::TimelineFile(std::string path, int fd, std::uint64_t most_bytes)
    : path_(std::move(path)), fd_(fd), most_bytes_(most_bytes) {
  const SignalsBlocked of_the_program;
  thread_ = std::thread([this] { run(); });
  ::pthread_setname_np(thread_.native_handle(), "smdp-timeline");
}

TimelineFile::~TimelineFile() { close(); }

void TimelineFile::post(Batch batch) {
  {
    const std::lock_guard lock(mutex_);
    batches_.push_back(std::move(batch));
  }
  changed_.notify_one();
}

bool TimelineFile::is_busy() {
  const std::lock_guard lock(mutex_);
  return working_ || !batches_.empty();
}

void TimelineFile::close() {
  if (!thread_.joinable()) {
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

// --- On the file's thread ---

bool TimelineFile::add(std::string_view event) {
  if (bytes_ >= most_bytes_) {
    ++dropped_;
    return false;
  }
  add_always(event);
  return true;
}

void TimelineFile::add_always(std::string_view event) {
  text_ += std::exchange(first_, false) ? "" : ",\n";
  text_ += event;
  bytes_ += event.size() + 2;
}

void TimelineFile::run_batches(const std::vector<Batch>& batches) {
  for (const Batch& batch : batches) {
    batch(*this);
  }
  failed_ = failed_ || !write_fully(fd_.get(), text_).ok();
  text_.clear();
}

void TimelineFile::run() {
  be_ready_to_throw();
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return closing_ || !batches_.empty(); });
    const bool last = closing_;
    const std::vector<Batch> batches = std::exchange(batches_, {});
    working_ = true;
    lock.unlock();
    if (last) {
      run_batches(batches);
      text_ = first_ ? "]\n" : "\n]\n";
      run_batches({});
      return;
    }
    run_batches(batches);
    lock.lock();
    working_ = false;
  }
}

}  // namespace smdp
