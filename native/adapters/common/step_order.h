// The order in which the ranks of a host begin the steps of calls that sum within the host first
// (torch/local_first.h).
//
// Two threads of a rank begin steps: one the first step of each call, the other the last step. Each kind of
// step has a process group of its own. A kernel of NCCL waits on the device for the other ranks, and many
// functions of CUDA wait for all kernels of the device. Ranks that begin the steps of two groups in different
// orders can therefore block each other for ever, and NCCL requires the same order on all ranks.
//
// The first rank of the host decides: it begins a step as soon as the step is ready, and sends which one it
// is. The other ranks begin their steps in this order. The first step of a call is ready when all ranks of
// the host have made the call. Otherwise a rank that waits for a call before it makes the next one could wait
// for ever, because the first step of the next call would come before the last step of this one.
//
// The steps of two process groups are not ordered against each other. So only one of them may use NCCL
// (_local_reducer.py).
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace smdp_adapters {

enum class Step : std::uint8_t { kScatter, kGather };

class StepOrder {
 public:
  // Returns when all ranks of the host have called it.
  using Meet = std::function<void()>;
  // Returns the value of the host's first rank on all its ranks.
  using Share = std::function<std::uint8_t(std::uint8_t value)>;

  // `decides`: this is the first rank of its host. `meet` and `share` throw when they fail.
  StepOrder(bool decides, Meet meet, Share share)
      : decides_(decides), meet_(std::move(meet)), share_(std::move(share)) {}
  StepOrder(const StepOrder&) = delete;
  StepOrder& operator=(const StepOrder&) = delete;
  ~StepOrder() = default;

  // Calls begin() when it is the turn of this step, and returns its result. Throws the error of begin() or of
  // the other ranks. Each kind of step is run by one thread, in the order of calls.
  template <class Begin>
  auto run(Step step, const Begin& begin) {
    if (step == Step::kScatter) {
      meet_();
    }
    std::unique_lock lock(mutex_);
    if (decides_) {
      require_open();
      share_(static_cast<std::uint8_t>(step));
      return begin();
    }
    await_turn(step, lock);
    const Turn turn(*this);
    return begin();
  }

  // From here on every step fails with this reason, those too that wait for their turn. A step whose turn has
  // come begins: the host's first rank has begun it, and its device would wait for this rank.
  void end(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    end_ = reason;
    changed_.notify_all();
  }

 private:
  // The turn of a step, with the mutex held.
  class Turn {
   public:
    explicit Turn(StepOrder& order) : order_(order) {}
    ~Turn() {
      order_.next_.reset();
      order_.changed_.notify_all();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    StepOrder& order_;
  };

  void require_open() const {
    if (!end_.empty()) {
      throw std::runtime_error(end_);
    }
  }

  void await_turn(Step step, std::unique_lock<std::mutex>& lock) {
    while (next_ != step) {
      require_open();
      if (next_ || receiving_) {
        changed_.wait(lock);
      } else {
        receive(lock);
      }
    }
  }

  // One thread at a time.
  void receive(std::unique_lock<std::mutex>& lock) {
    receiving_ = true;
    lock.unlock();
    std::optional<Step> received;
    std::exception_ptr failure;
    try {
      received = static_cast<Step>(share_(0));
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    receiving_ = false;
    next_ = received;
    changed_.notify_all();
    if (failure) {
      std::rethrow_exception(failure);
    }
  }

  const bool decides_;
  const Meet meet_;
  const Share share_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // All guarded by mutex_.
  std::optional<Step> next_;  // of a rank that does not decide: the step whose turn it is
  bool receiving_ = false;    // a thread receives the next step
  std::string end_;           // why no step begins any more
};

}  // namespace smdp_adapters
