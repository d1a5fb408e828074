#include "collectives/group/open_calls.h"

#include <algorithm>
#include <utility>

#include "net/call_number.h"

namespace smdp {

std::uint64_t OpenCalls::number(const Call& call) {
  if (call.keyed) {
    return named_call(call.step, call.index);
  }
  return is_made_of_messages(call.what.collective) ? kMessageCall | next_message_call_++ : next_number_++;
}

bool OpenCalls::is_valid_name(const Call& call) const {
  const bool has_begun = call.step < next_step_ || (call.step == next_step_ && call.index < next_index_);
  return call.index < call.buffers && call.step < 1U << 31U && !has_begun &&
         !named_.contains(named_call(call.step, call.index));
}

void OpenCalls::queue(QueuedCall call) {
  if (call.call.keyed) {
    named_[call.number] = std::move(call);
  } else {
    queue_.push_back(std::move(call));
  }
}

std::optional<QueuedCall> OpenCalls::take_next(bool named, std::size_t most) {
  const auto count =
      std::ranges::count_if(running_, [named](const auto& entry) { return is_named(entry.first) == named; });
  if (std::cmp_greater_equal(count, most)) {
    return std::nullopt;
  }
  if (!named) {
    if (queue_.empty()) {
      return std::nullopt;
    }
    QueuedCall next = std::move(queue_.front());
    queue_.pop_front();
    begun_ = next.number + 1;
    return next;
  }
  const auto first = named_.find(named_call(next_step_, next_index_));
  if (first == named_.end()) {
    return std::nullopt;  // an earlier buffer has not been submitted on this rank
  }
  QueuedCall next = std::move(first->second);
  named_.erase(first);
  if (++next_index_ == next.call.buffers) {
    next_index_ = 0;
    ++next_step_;
  }
  return next;
}

void OpenCalls::clear_queued() {
  queue_.clear();
  named_.clear();
}

Operation* OpenCalls::find(std::uint64_t call) const {
  const auto found = running_.find(call);
  return found == running_.end() ? nullptr : found->second.get();
}

bool OpenCalls::is_ahead(std::uint64_t call) const {
  return is_named(call) ? call >= named_call(next_step_, next_index_) : call >= begun_;
}

bool OpenCalls::is_oldest(std::uint64_t call) const {
  const auto first = is_named(call) ? running_.lower_bound(kNamedCall) : running_.begin();
  return first != running_.end() && first->first == call;
}

std::uint64_t OpenCalls::first_open(bool named) const {
  const auto oldest = running_.lower_bound(named ? kNamedCall : 0);
  if (oldest != running_.end() && is_named(oldest->first) == named) {
    return oldest->first;
  }
  return named ? named_call(next_step_, next_index_) : begun_;
}

bool OpenCalls::has_open(bool named) const {
  return named ? !named_.empty() || running_.lower_bound(kNamedCall) != running_.end()
               : first_open(false) < next_number_;
}

}  // namespace smdp
