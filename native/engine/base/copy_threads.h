// Threads that run the work that an executor offloads. They return finished jobs on an intrusive list, which
// allocates nothing: these threads cannot report that memory has run out.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/executor.h"

namespace smdp {

class CopyThreads {
 public:
  struct Job {
    Executor::Task work;
    Executor::Task done;
    std::unique_ptr<Job> next;
  };

  // First in, first out.
  class Queue {
   public:
    Queue() = default;
    Queue(const Queue&) = delete;
    Queue& operator=(const Queue&) = delete;
    ~Queue() {
      while (pop()) {  // one by one: the destructors of a long list would nest
      }
    }
    void push(std::unique_ptr<Job> job) {
      Job* const added = job.get();
      (last_ == nullptr ? first_ : last_->next) = std::move(job);
      last_ = added;
    }
    std::unique_ptr<Job> pop() {
      std::unique_ptr<Job> job = std::move(first_);
      if (job) {
        first_ = std::move(job->next);
        last_ = first_ ? last_ : nullptr;
      }
      return job;
    }
    void swap(Queue& other) noexcept {
      std::swap(first_, other.first_);
      std::swap(last_, other.last_);
    }
    [[nodiscard]] bool empty() const { return first_ == nullptr; }

   private:
    std::unique_ptr<Job> first_;
    Job* last_ = nullptr;
  };

  using Finished = std::function<void(std::unique_ptr<Job>)>;

  CopyThreads() = default;
  CopyThreads(const CopyThreads&) = delete;
  CopyThreads& operator=(const CopyThreads&) = delete;
  ~CopyThreads() { stop(); }

  // `finished` gets each job whose work has run, on the thread that ran it. `spin`: how long a thread looks
  // for another job before it sleeps.
  Status start(int threads, std::chrono::microseconds spin, Finished finished);
  // Drops the jobs that have not begun.
  void stop();

  [[nodiscard]] bool any() const { return !threads_.empty(); }
  void add(std::unique_ptr<Job> job);

 private:
  void run();
  std::unique_ptr<Job> next_job();

  std::vector<std::thread> threads_;
  std::chrono::microseconds spin_{0};
  Finished finished_;
  std::atomic<int> waiting_ = 0;  // jobs; threads read it before they take the lock
  std::atomic<bool> stopping_ = false;
  std::mutex mutex_;
  std::condition_variable added_;
  Queue queue_;       // guarded by mutex_
  int sleeping_ = 0;  // guarded by mutex_
};

}  // namespace smdp
