// The gradients of a list, summed in fusion buffers while the other gradients are still being computed.
//
// A gradient is identified by its index in the list of gradients, so the ranks may compute and submit
// gradients in different orders: TensorFlow runs whatever is ready. The lane counts the step of each index.
// In the first step every gradient is exchanged by itself, and the lane learns its size. From the second step
// on each gradient goes to its place in a buffer, and a buffer is exchanged when it is full. The plan depends
// on the sizes only, which are the same on all ranks: buffers of one type each, from the last gradient, which
// the backward pass computes first, to the first.
//
// Several lists may use a lane, one list in each step, for example those of two models. A list that is new in
// a later step waits until all its gradients are there, and then has a plan. It may be new on some ranks
// only: the sizes of the step are the same on all ranks, so the plan is too.
//
// Tensors of a list with one element are exchanged one after the other in the order of calls, and their size
// may change from call to call.
//
// Failure. The steps of the ranks do not match any more when one gradient is lost, so the first failure ends
// all gradients that wait and all later ones.
//
// Threads: any. `mutex_` guards everything except the memory of a buffer, where no two threads write to one
// place.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "calls.h"

namespace smdp_tensorflow {

struct Gradient {
  smdp_dtype dtype = SMDP_FLOAT32;
  uint64_t count = 0;  // elements
  const void* input = nullptr;
  void* output = nullptr;
  Ended ended;        // until then the lane owns the memory
  uint64_t list = 0;  // a list keeps its sizes; the ranks may number their lists differently
};

std::size_t size_of(smdp_dtype dtype);  // bytes of an element

// Which gradients share a buffer.
class FusionPlan {
 public:
  struct Size {
    smdp_dtype dtype = SMDP_FLOAT32;
    uint64_t count = 0;

    bool operator==(const Size& other) const { return dtype == other.dtype && count == other.count; }
  };
  struct Place {
    uint32_t buffer = 0;
    uint64_t offset = 0;  // elements
  };
  struct Buffer {
    smdp_dtype dtype = SMDP_FLOAT32;
    uint64_t count = 0;  // elements
    uint32_t parts = 0;  // gradients
  };

  // `most_bytes`: of a buffer, unless it is a single gradient.
  FusionPlan(std::vector<Size> sizes, std::size_t most_bytes);

  [[nodiscard]] const std::vector<Size>& sizes() const { return sizes_; }
  [[nodiscard]] const Place& place(uint32_t index) const { return places_[index]; }
  [[nodiscard]] const std::vector<Buffer>& buffers() const { return buffers_; }

 private:
  std::vector<Size> sizes_;
  std::vector<Place> places_;
  std::vector<Buffer> buffers_;
};

class Lane : public std::enable_shared_from_this<Lane> {
 public:
  struct Shape {
    uint32_t gradients = 1;
    smdp_reduce_op op = SMDP_AVG;
    std::size_t buffer_bytes = 25 << 20;
    double timeout_s = 0;  // how long a gradient waits for the others of its buffer
  };

  Lane(std::unique_ptr<Group> group, Shape shape);
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  ~Lane();

  void add(uint32_t index, Gradient gradient);
  // Fails the gradients that wait and all later ones with the error; the other ranks see that this one left.
  void fail(const smdp_error& error);
  // The same; when it returns, the engine does not use the lane any more.
  void close();
  // Delays the errors of exchanges until compared(): a rank whose list of gradients differs closes its lane,
  // which the others may see before they have compared the lists.
  void await_comparison();
  // Fails the lane with an error of the comparison.
  void compared(const smdp_error& result);
  // Fails the lane if a gradient has waited too long for the others of its step.
  void look(std::chrono::steady_clock::time_point now);

 private:
  using Clock = std::chrono::steady_clock;
  using Memory = std::shared_ptr<std::byte>;
  using Key = std::pair<uint32_t, uint32_t>;  // step, buffer

  struct Part {
    uint32_t index = 0;
    uint32_t step = 0;
    Gradient gradient;
    Clock::time_point came;
  };
  struct List {
    std::map<uint32_t, FusionPlan::Size> sizes;  // by index, until there is a plan
    std::shared_ptr<const FusionPlan> plan;      // lists of the same sizes share it
    std::vector<Part> early;                     // submitted before there was a plan
  };
  struct Filling {
    std::shared_ptr<const FusionPlan> plan;
    std::vector<Part> parts;  // present in the memory
    Memory memory;            // empty for a gradient that is alone in its buffer
    Clock::time_point began;
  };

  struct Failure {
    Ended ended;
    smdp_error error;
  };

  void put(Part part);
  void report(const Failure& failure);
  // The reason behind an error of the engine.
  smdp_error explain(const smdp_error& error);
  // These with the lock held.
  bool is_over(const Part& part);
  bool fits(const Part& part, const FusionPlan& plan);
  void learn(List& list, const Part& part);
  // The first step for which this rank has not given all gradients.
  [[nodiscard]] uint32_t unfinished_step() const;
  void start(Key key, Filling filling);
  void submit(const Gradient& gradient, const smdp_call& named, Ended ended);
  void end_with(const smdp_error& error);
  // The error for a step without some gradients of a buffer; without a plan: of any buffer.
  smdp_error missing(const Key& key, const FusionPlan* plan) const;
  Memory memory_of(std::size_t bytes);

  const std::unique_ptr<Group> group_;
  const Shape shape_;
  std::mutex mutex_;
  // All guarded by mutex_.
  std::vector<uint32_t> steps_;  // by index: how many times it was submitted
  std::map<uint64_t, List> lists_;
  std::map<Key, Filling> filling_;
  std::multimap<std::size_t, std::byte*> spare_;  // memory of finished buffers, by size in bytes
  std::optional<smdp_error> failed_;
  bool comparing_ = false;
  std::vector<Failure> delayed_;  // while the lists are compared
};

}  // namespace smdp_tensorflow
