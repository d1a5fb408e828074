#include "lane.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <sstream>
#include <utility>

namespace smdp_tensorflow {
namespace {

constexpr std::size_t kAlignment = 64;  // a cache line, and the widest vector
constexpr std::size_t kShownIndexes = 8;

}  // namespace

std::size_t size_of(smdp_dtype dtype) {
  switch (dtype) {
    case SMDP_FLOAT64:
    case SMDP_INT64:
      return 8;
    case SMDP_FLOAT32:
    case SMDP_INT32:
      return 4;
    case SMDP_FLOAT16:
    case SMDP_BFLOAT16:
    case SMDP_INT16:
      return 2;
    default:
      return 1;
  }
}

FusionPlan::FusionPlan(std::vector<Size> sizes, std::size_t most_bytes)
    : sizes_(std::move(sizes)), places_(sizes_.size()) {
  std::map<smdp_dtype, uint32_t> open;  // by type: the buffer for the next gradient
  for (auto index = static_cast<uint32_t>(sizes_.size()); index-- > 0;) {
    const Size& size = sizes_[index];
    const auto found = open.find(size.dtype);
    if (found == open.end() ||
        (buffers_[found->second].count + size.count) * size_of(size.dtype) > most_bytes) {
      open[size.dtype] = static_cast<uint32_t>(buffers_.size());
      buffers_.push_back({size.dtype, 0, 0});
    }
    const uint32_t buffer = open[size.dtype];
    places_[index] = {buffer, buffers_[buffer].count};
    buffers_[buffer].count += size.count;
    ++buffers_[buffer].parts;
  }
}

Lane::Lane(std::unique_ptr<Group> group, Shape shape)
    : group_(std::move(group)), shape_(shape), steps_(shape.gradients) {}

Lane::~Lane() {
  for (const auto& [bytes, memory] : spare_) {
    std::free(memory);
  }
}

void Lane::add(uint32_t index, Gradient gradient) {
  std::vector<Part> ready;
  {
    const std::lock_guard lock(mutex_);
    Part part{index, steps_[index]++, std::move(gradient), Clock::now()};
    if (is_over(part)) {
      return;
    }
    smdp_call named{};
    if (shape_.gradients == 1) {
      submit(part.gradient, named, part.gradient.ended);
      return;
    }
    List& list = lists_[part.gradient.list];
    learn(list, part);
    if (part.step == 0) {
      named.index = shape_.gradients - 1 - index;
      named.buffers = shape_.gradients;
      submit(part.gradient, named, part.gradient.ended);
    } else {
      list.early.push_back(std::move(part));
    }
    ready = list.plan ? std::exchange(list.early, {}) : std::vector<Part>();
  }
  for (Part& part : ready) {
    put(std::move(part));
  }
}

bool Lane::is_over(const Part& part) {
  if (failed_) {
    later([ended = part.gradient.ended, error = *failed_] { ended(error); });
  }
  return failed_.has_value();
}

void Lane::learn(List& list, const Part& part) {
  if (list.plan) {
    return;
  }
  list.sizes.try_emplace(part.index, FusionPlan::Size{part.gradient.dtype, part.gradient.count});
  if (list.sizes.size() < shape_.gradients) {
    return;
  }
  std::vector<FusionPlan::Size> sizes;
  for (const auto& [index, size] : std::exchange(list.sizes, {})) {
    sizes.push_back(size);
  }
  const auto same = std::find_if(lists_.begin(), lists_.end(), [&](const auto& entry) {
    return entry.second.plan && entry.second.plan->sizes() == sizes;
  });
  list.plan = same != lists_.end()
                  ? same->second.plan
                  : std::make_shared<const FusionPlan>(std::move(sizes), shape_.buffer_bytes);
}

void Lane::put(Part part) {
  Key key;
  Memory memory;
  std::byte* place = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto plan = lists_[part.gradient.list].plan;
    if (is_over(part) || !fits(part, *plan)) {
      return;
    }
    const FusionPlan::Place planned = plan->place(part.index);
    const FusionPlan::Buffer& buffer = plan->buffers()[planned.buffer];
    key = {part.step, planned.buffer};
    const auto [found, is_first] = filling_.try_emplace(key);
    Filling& filling = found->second;
    if (is_first) {
      filling.began = Clock::now();
      filling.plan = plan;
    } else if (filling.plan != plan) {
      end_with(failure(SMDP_INVALID,
                       "step " + std::to_string(part.step) + " of " + std::to_string(shape_.gradients) +
                           " gradients has gradients of two lists: in an earlier step this rank "
                           "did not give all gradients of a list"));
      is_over(part);
      return;
    }
    if (is_first && buffer.parts > 1) {
      filling.memory = memory_of(buffer.count * size_of(buffer.dtype));
    }
    if (buffer.parts > 1 && !filling.memory) {
      end_with(failure(SMDP_EXHAUSTED, "no memory for a fusion buffer"));
      is_over(part);
      return;
    }
    memory = filling.memory;  // outlives the lane if necessary
    place = memory.get() + planned.offset * size_of(buffer.dtype);
  }
  const std::size_t bytes = part.gradient.count * size_of(part.gradient.dtype);
  if (memory && bytes > 0) {
    std::memcpy(place, part.gradient.input, bytes);
  }
  const std::lock_guard lock(mutex_);
  if (is_over(part)) {
    return;
  }
  const auto found = filling_.find(key);
  found->second.parts.push_back(std::move(part));
  if (found->second.parts.size() == found->second.plan->buffers()[key.second].parts) {
    Filling full = std::move(found->second);
    filling_.erase(found);
    start(key, std::move(full));
  }
}

bool Lane::fits(const Part& part, const FusionPlan& plan) {
  const FusionPlan::Size now{part.gradient.dtype, part.gradient.count};
  const FusionPlan::Size& before = plan.sizes()[part.index];
  if (now == before) {
    return true;
  }
  std::ostringstream why;
  why << "gradient " << part.index << " of " << shape_.gradients << " had " << before.count << " elements of "
      << size_of(before.dtype) << " bytes and has " << now.count << " of " << size_of(now.dtype)
      << " bytes now: a list of gradients keeps its sizes and types";
  end_with(failure(SMDP_INVALID, why.str()));
  is_over(part);
  return false;
}

void Lane::start(Key key, Filling filling) {
  smdp_call named{};
  named.step = key.first;
  named.index = key.second;
  named.buffers = static_cast<uint32_t>(filling.plan->buffers().size());
  if (!filling.memory) {
    Gradient& only = filling.parts.front().gradient;
    submit(only, named, only.ended);
    return;
  }
  const FusionPlan::Buffer& buffer = filling.plan->buffers()[key.second];
  const Gradient whole{buffer.dtype, buffer.count, filling.memory.get(), filling.memory.get(), {}};
  submit(whole, named, [filling = std::move(filling)](const smdp_error& error) {
    for (const Part& part : filling.parts) {
      const Gradient& gradient = part.gradient;
      const std::size_t element = size_of(gradient.dtype);
      if (error.code == SMDP_OK && gradient.count > 0) {
        std::memcpy(gradient.output, filling.memory.get() + filling.plan->place(part.index).offset * element,
                    gradient.count * element);
      }
    }
    for (const Part& part : filling.parts) {
      part.gradient.ended(error);
    }
  });
}

void Lane::submit(const Gradient& gradient, const smdp_call& named, Ended ended) {
  smdp_call call = named;
  call.collective = SMDP_ALL_REDUCE;
  call.dtype = gradient.dtype;
  call.op = shape_.op;
  call.count = gradient.count;
  call.input = gradient.input;
  call.output = gradient.output;
  group_->submit(call, [weak = weak_from_this(), ended = std::move(ended)](const smdp_error& error) {
    const auto self = weak.lock();
    if (!self || error.code == SMDP_OK) {
      ended(error);
      return;
    }
    {
      const std::lock_guard lock(self->mutex_);
      if (self->comparing_ && !self->failed_) {
        self->delayed_.push_back({ended, error});
        return;
      }
    }
    self->report({ended, error});
  });
}

void Lane::report(const Failure& failure) {
  const smdp_error explained = explain(failure.error);
  failure.ended(explained);
  if (shape_.gradients > 1) {
    fail(explained);
  }
}

void Lane::await_comparison() {
  const std::lock_guard lock(mutex_);
  comparing_ = true;
}

void Lane::compared(const smdp_error& result) {
  std::vector<Failure> delayed;
  {
    const std::lock_guard lock(mutex_);
    comparing_ = false;
    if (result.code != SMDP_OK) {
      end_with(result);
    }
    delayed.swap(delayed_);
  }
  for (const Failure& one : delayed) {
    report(one);
  }
}

// Reuses memory: fresh pages of the system are slow.
Lane::Memory Lane::memory_of(std::size_t bytes) {
  const std::size_t rounded = std::max(bytes + kAlignment - 1, kAlignment) / kAlignment * kAlignment;
  std::byte* memory = nullptr;
  if (const auto spare = spare_.find(rounded); spare != spare_.end()) {
    memory = spare->second;
    spare_.erase(spare);
  } else {
    memory = static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded));
  }
  return {memory, [weak = weak_from_this(), rounded](std::byte* done) {
            const auto self = weak.lock();
            if (!self || done == nullptr) {
              std::free(done);
              return;
            }
            const std::lock_guard lock(self->mutex_);
            self->spare_.emplace(rounded, done);
          }};
}

void Lane::fail(const smdp_error& error) {
  const std::lock_guard lock(mutex_);
  end_with(error);
}

void Lane::close() {
  fail(failure(SMDP_CLOSED, "the engine was shut down here"));
  group_->close();
}

void Lane::end_with(const smdp_error& error) {
  if (failed_) {
    return;
  }
  failed_ = error;
  for (const auto& [number, list] : lists_) {
    for (const Part& part : list.early) {
      is_over(part);
    }
  }
  for (const auto& [key, filling] : filling_) {
    for (const Part& part : filling.parts) {
      is_over(part);
    }
  }
  // Outside the lock: the destructor of the last owner of the memory takes it.
  later([self = shared_from_this(), lists = std::exchange(lists_, {}), filling = std::exchange(filling_, {}),
         delayed = std::exchange(delayed_, {})] {
    self->group_->close();
    for (const Failure& one : delayed) {
      self->report(one);
    }
  });
}

void Lane::look(Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  const auto is_late = [this, now](Clock::time_point since) {
    return now - since > std::chrono::duration<double>(shape_.timeout_s);
  };
  const auto late = std::find_if(filling_.begin(), filling_.end(),
                                 [&](const auto& entry) { return is_late(entry.second.began); });
  if (late != filling_.end()) {
    end_with(missing(late->first, late->second.plan.get()));
  } else if (std::any_of(lists_.begin(), lists_.end(), [&](const auto& entry) {
               const std::vector<Part>& early = entry.second.early;
               return !early.empty() && is_late(early.front().came);
             })) {
    end_with(missing({unfinished_step(), 0}, nullptr));
  }
}

// The engine reports only that the group of a failed lane was closed, and, for a gradient that was not
// submitted in the first step, only that an exchange did not begin, because exchanges begin in the order of
// their indexes.
smdp_error Lane::explain(const smdp_error& error) {
  const std::lock_guard lock(mutex_);
  if (failed_) {
    return *failed_;
  }
  if (error.code != SMDP_TIMEOUT || unfinished_step() > 0) {
    return error;
  }
  return failure(SMDP_TIMEOUT, std::string(missing({0, 0}, nullptr).message) + "; " + error.message);
}

uint32_t Lane::unfinished_step() const { return *std::min_element(steps_.begin(), steps_.end()); }

smdp_error Lane::missing(const Key& key, const FusionPlan* plan) const {
  std::ostringstream why;
  why << "step " << key.first << " of " << shape_.gradients << " gradients waited " << shape_.timeout_s
      << " s for some that this rank did not give:";
  std::size_t count = 0;
  for (uint32_t index = 0; index < shape_.gradients; ++index) {
    const bool is_here = plan == nullptr || plan->place(index).buffer == key.second;
    if (is_here && steps_[index] <= key.first && ++count <= kShownIndexes) {
      why << " " << index;
    }
  }
  why << (count > kShownIndexes ? " ..." : "");
  return failure(SMDP_TIMEOUT, why.str());
}

}  // namespace smdp_tensorflow
