#include "fault_transport.h"

#include <algorithm>

namespace smdp {

class FaultFabric::Endpoint final : public Transport {
 public:
  Endpoint(FaultFabric& fabric, Executor& executor, int rank)
      : fabric_(fabric), executor_(executor), rank_(rank) {}
  ~Endpoint() override {
    const std::lock_guard lock(fabric_.mutex_);
    fabric_.endpoints_.erase(rank_);
  }
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  void start(Events& events) override {
    events_ = &events;
    const std::lock_guard lock(fabric_.mutex_);
    fabric_.endpoints_[rank_] = this;
  }

  void post(int peer, Message message) override {
    message.header.sender = static_cast<std::uint32_t>(rank_);
    message.header.payload = message.payload.size();
    auto copy = std::make_shared<std::vector<std::byte>>(message.payload.begin(), message.payload.end());
    fabric_.carry({rank_, peer, message.header, std::move(copy), step_ + 1});
    if (message.sent) {
      message.sent();
    }
  }

  void cancel(std::uint64_t, std::uint64_t) override {
  }  // this transport copies, and holds no memory of operations
  void finish() override {
    const std::lock_guard lock(fabric_.mutex_);
    for (auto& [peer, endpoint] : fabric_.endpoints_) {
      if (peer != rank_) {
        endpoint->lose(rank_, true);
      }
    }
  }
  void tick() override { fabric_.let_go(rank_); }

  void receive(const Parcel& parcel) {
    executor_.post([this, parcel] {
      if (gone_.contains(parcel.from)) {
        return;
      }
      step_ = std::max(step_, parcel.step);
      auto landing = events_->place(parcel.from, parcel.header);
      if (!landing) {
        if (gone_.insert(parcel.from).second) {
          events_->lost(parcel.from, false, {Code::kPeerLost, "a frame broke the protocol"});
        }
        return;
      }
      std::ranges::copy(*parcel.payload, landing->data);
      events_->arrived(parcel.from, parcel.header, std::move(*landing));
    });
  }

  void lose(int peer, bool orderly) {
    executor_.post([this, peer, orderly] {
      if (gone_.insert(peer).second) {
        events_->lost(peer, orderly, {Code::kPeerLost, "the connection was cut"});
      }
    });
  }

 private:
  FaultFabric& fabric_;
  Executor& executor_;
  int rank_;
  Events* events_ = nullptr;
  std::set<int> gone_;  // on the loop, as is step_
  int step_ = 0;        // of the longest chain that arrived here
};

std::unique_ptr<Transport> FaultFabric::attach(Executor& executor, int rank) {
  return std::make_unique<Endpoint>(*this, executor, rank);
}

void FaultFabric::silence(int rank) {
  const std::lock_guard lock(mutex_);
  silent_.insert(rank);
}

void FaultFabric::drop(int from, int to) {
  const std::lock_guard lock(mutex_);
  dropping_.emplace(from, to);
}

void FaultFabric::slow_down(int rank) {
  const std::lock_guard lock(mutex_);
  unread_[rank];
}

void FaultFabric::cut(int rank) {
  const std::lock_guard lock(mutex_);
  for (auto& [peer, endpoint] : endpoints_) {
    if (peer != rank) {
      endpoint->lose(rank, false);
      if (endpoints_.contains(rank)) {
        endpoints_[rank]->lose(peer, false);
      }
    }
  }
}

void FaultFabric::damage_next(int rank) {
  const std::lock_guard lock(mutex_);
  damaged_.insert(rank);
}

int FaultFabric::longest_chain() {
  const std::lock_guard lock(mutex_);
  return longest_chain_;
}

std::uint64_t FaultFabric::most_unanswered(int rank) {
  const std::lock_guard lock(mutex_);
  return accounts_[rank].most;
}

void FaultFabric::keep_account(const Parcel& parcel) {
  longest_chain_ = std::max(longest_chain_, parcel.step);
  if (parcel.header.type == FrameType::kHostSum) {
    Account& sender = accounts_[parcel.from];
    sender.unanswered += parcel.header.bytes;
    sender.most = std::max(sender.most, sender.unanswered);
  } else if (parcel.header.type == FrameType::kPublish) {
    accounts_[parcel.to].unanswered -= parcel.header.bytes;
  }
}

void FaultFabric::carry(Parcel parcel) {
  const std::lock_guard lock(mutex_);
  keep_account(parcel);
  if (silent_.contains(parcel.from) || dropping_.contains({parcel.from, parcel.to})) {
    return;
  }
  if (parcel.header.payload > 0 && parcel.header.type != FrameType::kAbort &&
      damaged_.erase(parcel.from) > 0) {
    parcel.header.bytes += 8;
  }
  if (const auto reader = unread_.find(parcel.to); reader != unread_.end()) {
    reader->second.push_back(std::move(parcel));
    return;
  }
  if (slow_links_.contains({parcel.from, parcel.to})) {
    slow_.push_back(std::move(parcel));
    return;
  }
  if (std::uniform_real_distribution<>(0, 1)(random_) < plan_.hold) {
    held_.push_back(std::move(parcel));
    return;
  }
  hand_over(parcel);
}

void FaultFabric::hold(int from, int to) {
  const std::lock_guard lock(mutex_);
  slow_links_.emplace(from, to);
}

void FaultFabric::release() {
  const std::lock_guard lock(mutex_);
  slow_links_.clear();
  for (Parcel& parcel : slow_) {
    hand_over(parcel);
  }
  slow_.clear();
}

void FaultFabric::let_go(int ticking) {
  const std::lock_guard lock(mutex_);
  if (const auto reader = unread_.find(ticking); reader != unread_.end() && !reader->second.empty()) {
    hand_over(reader->second.front());
    reader->second.pop_front();
  }
  std::ranges::shuffle(held_, random_);
  for (Parcel& parcel : held_) {
    hand_over(parcel);
  }
  held_.clear();
}

void FaultFabric::hand_over(const Parcel& parcel) {
  const auto found = endpoints_.find(parcel.to);
  if (found != endpoints_.end()) {
    found->second->receive(parcel);
  }
}

}  // namespace smdp
