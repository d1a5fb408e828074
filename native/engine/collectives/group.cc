#include "collectives/group.h"

#include <algorithm>

#include "base/bytes.h"
#include "shm/shm_reducer.h"

namespace smdp {
namespace {

constexpr std::uint64_t kMaxParkedBytes = 1ULL << 30U;
constexpr double kLeaveGrace = 0.5;     // seconds that operations may go on after a member closed
constexpr double kWitnessPause = 0.25;  // seconds for the other ranks' suspicions to arrive before a warning

std::string number(std::uint64_t value) { return std::to_string(value); }

}  // namespace

std::string describe(const Descriptor& call) {
  std::string text(name_of(call.collective));
  if (call.collective == Collective::kBarrier) {
    return text + "()";
  }
  text += "(" + std::string(name_of(call.dtype)) + "[" + number(call.count) + "]";
  if (call.collective == Collective::kAllReduce || call.collective == Collective::kReduce) {
    text += ", " + std::string(name_of(call.op));
  }
  if (call.collective == Collective::kBroadcast || call.collective == Collective::kReduce) {
    text += ", root " + number(call.root);
  } else if (call.root != 0) {
    text += ", one of " + number(call.root) + " buffers";
  }
  return text + ")";
}

Group::Group(GroupServices& services, std::uint64_t id, std::string name, std::vector<int> members, int me,
             const GroupSettings& settings)
    : services_(services),
      id_(id),
      name_(std::move(name)),
      members_(std::move(members)),
      settings_(settings) {
  std::vector<int> hosts;
  hosts.reserve(members_.size());
  for (const int member : members_) {
    hosts.push_back(services_.layout().host_of[static_cast<std::size_t>(member)]);
  }
  layout_ = make_group_layout(hosts);
  rank_ = rank_of(me).value_or(0);
}

std::optional<int> Group::rank_of(int job_rank) const {
  const auto found = std::ranges::find(members_, job_rank);
  return found == members_.end() ? std::nullopt : std::optional(static_cast<int>(found - members_.begin()));
}

std::string Group::describe_rank(int group_rank) const {
  return services_.layout().describe(members_[static_cast<std::size_t>(group_rank)]);
}

std::string Group::name_operation(std::uint64_t operation) const {
  const std::string which = (operation & kNamed) != 0
                                ? "buffer (step " + number((operation & ~kNamed) >> 32U) + ", index " +
                                      number(operation & 0xffffffffU) + ")"
                                : "operation " + number(operation);
  return which + " of group '" + name_ + "'";
}

std::string Group::describe_wait(const Operation& operation, const std::vector<int>& ranks) const {
  const Operation::Wait wait = operation.waiting_for();
  std::string text = "on " + describe_rank(rank_) + ": " + describe(operation.call().what) + ", " +
                     name_operation(operation.number()) + ", " + wait.phase;
  const char* separator = " of ";
  for (const int rank : ranks) {
    text += separator + describe_rank(rank);
    separator = ", ";
  }
  return text;
}

std::vector<int> Group::culprits(Operation& operation) const {
  const std::vector<int> direct = operation.waiting_for().ranks;
  std::set<int> all = operation.suspects();
  all.insert(direct.begin(), direct.end());
  std::vector<int> left;
  std::ranges::copy_if(all, std::back_inserter(left),
                       [&](int rank) { return rank != rank_ && !operation.witnesses().contains(rank); });
  return left.empty() ? direct : left;
}

void Group::send_network(int group_rank, Message message) {
  message.header.group = id_;
  services_.send(members_[static_cast<std::size_t>(group_rank)], std::move(message));
}

std::unique_ptr<LocalJob> Group::make_local_job(LocalSpec spec, std::uint64_t operation,
                                                LocalJob::Events& events) {
  const auto& mates =
      layout_.hosts[static_cast<std::size_t>(layout_.host_of[static_cast<std::size_t>(rank_)])];
  const auto job_rank = [this, &mates](int local) {
    return members_[static_cast<std::size_t>(mates[static_cast<std::size_t>(local)])];
  };
  auto send = [this, job_rank, operation, call = spec.call](int local, FrameHeader header) {
    header.call = call;
    header.group = id_;
    header.operation = operation;
    services_.send(job_rank(local), {header, {}, nullptr, nullptr});
  };
  auto peek = [this, job_rank](int local, std::uint64_t offset, std::uint64_t bytes) {
    return services_.peek(job_rank(local), offset, bytes);
  };
  return std::make_unique<ShmJob>(spec, services_.regions(), std::move(send), std::move(peek), events);
}

// --- Submission ---

void Group::submit(Call call) {
  if (!failed_.ok()) {
    call.handle->complete({failed_.code(), "group '" + name_ + "' failed before: " + failed_.message()});
    return;
  }
  const TimePoint now = Clock::now();
  const TimePoint deadline = now + seconds(call.timeout_s > 0 ? call.timeout_s : settings_.timeout_s);
  if (call.keyed) {
    const std::uint64_t key = kNamed | static_cast<std::uint64_t>(call.step) << 32U | call.index;
    const bool past = call.step < next_step_ || (call.step == next_step_ && call.index < next_index_);
    if (call.buffers == 0 || call.index >= call.buffers || past || named_.contains(key) ||
        call.step >= 1U << 31U) {
      call.handle->complete(
          {Code::kInvalid, name_operation(key) + " of " + number(call.buffers) +
                               " buffers: was submitted before, or is no index of this step"});
      return;
    }
    call.what.root =
        call.buffers;  // an all_reduce has no root; so the number of buffers is compared between ranks
    named_[key] = {key, std::move(call), deadline, now};
  } else {
    queue_.push_back({next_number_++, std::move(call), deadline, now});
  }
  inside_ = true;
  admit();
  reap();
}

void Group::admit() {
  const auto running = [this](bool named) {
    return static_cast<std::size_t>(std::ranges::count_if(
        active_, [&](const auto& entry) { return ((entry.first & kNamed) != 0) == named; }));
  };
  while (failed_.ok() && !queue_.empty() && running(false) < settings_.buffers_in_flight) {
    Waiting next = std::move(queue_.front());
    queue_.pop_front();
    begun_ = next.number + 1;
    begin(std::move(next));
  }
  while (failed_.ok() && !named_.empty() && running(true) < settings_.buffers_in_flight) {
    const auto first = named_.find(kNamed | next_step_ << 32U | next_index_);
    if (first == named_.end()) {
      return;  // an earlier buffer has not been submitted on this rank
    }
    Waiting next = std::move(first->second);
    named_.erase(first);
    if (++next_index_ == next.call.buffers) {
      next_index_ = 0;
      ++next_step_;
    }
    begin(std::move(next));
  }
}

void Group::begin(Waiting waiting) {
  const std::uint64_t operation = waiting.number;
  const TimePoint now = Clock::now();
  const double patience =
      std::min(settings_.warn_s, std::chrono::duration<double>(waiting.deadline - now).count() / 2);
  auto made =
      std::make_unique<Operation>(*this, operation, std::move(waiting.call), layout_, rank_, settings_.plan,
                                  settings_.isa, settings_.window, waiting.deadline, now + seconds(patience));
  Operation& running = *active_.emplace(operation, std::move(made)).first->second;
  running.start();
  const auto early = parked_.find(operation);
  if (early == parked_.end()) {
    return;
  }
  std::vector<ParkedFrame> frames = std::move(early->second);
  parked_.erase(early);
  for (ParkedFrame& frame : frames) {
    parked_bytes_ -= frame.header.payload;
    if (failed_.ok() && !deliver_frame(frame.from, frame.header, std::move(frame.landing))) {
      fail({Code::kInternal,
            describe_rank(frame.from) + " sent a frame that is none of " + name_operation(operation)},
           true);
    }
  }
}

bool Group::is_ahead(std::uint64_t operation) const {
  if ((operation & kNamed) == 0) {
    return operation >= begun_;
  }
  return (operation & ~kNamed) >= (next_step_ << 32U | next_index_);
}

// --- Frames ---

std::optional<Landing> Group::place(int from, const FrameHeader& header) {
  const auto rank = rank_of(from);
  if (!rank) {
    return std::nullopt;
  }
  const auto found = active_.find(header.operation);
  if (found == active_.end() || header.call != found->second->call().what) {
    return parked_bytes_ + header.payload > kMaxParkedBytes ? std::nullopt
                                                            : std::optional(Landing::fresh(header.payload));
  }
  return found->second->place(*rank, header);
}

bool Group::arrived(int from, const FrameHeader& header, Landing landing) {
  const auto rank = rank_of(from);
  if (!rank) {
    return false;
  }
  if (header.type == FrameType::kAbort) {
    Reader reader(std::span<const std::byte>(landing.data, header.payload));
    const auto code = static_cast<Code>(reader.get<std::uint8_t>());
    const std::string text = reader.text();
    if (failed_.ok() && reader.ok()) {
      fail({code, text}, true);
    }
    return reader.ok();
  }
  if (!failed_.ok()) {
    return true;
  }
  const auto found = active_.find(header.operation);
  if (header.type == FrameType::kSuspect) {
    if (found != active_.end()) {
      found->second->witnesses().insert(*rank);
      found->second->suspects().insert(static_cast<int>(header.piece));
    }
    return true;
  }
  if (found == active_.end()) {
    if (is_ahead(header.operation)) {
      parked_bytes_ += header.payload;
      parked_[header.operation].push_back({*rank, header, std::move(landing)});
    }
    return true;  // else it is over here: a credit or a reader's word that came late
  }
  inside_ = true;
  const bool good = deliver_frame(*rank, header, std::move(landing));
  reap();
  return good;
}

bool Group::deliver_frame(int from, const FrameHeader& header, Landing landing) {
  const auto found = active_.find(header.operation);
  if (found == active_.end()) {
    return true;
  }
  Operation& operation = *found->second;
  if (header.call != operation.call().what) {
    mismatch(from, header, operation.call().what);
    return true;
  }
  const bool local = header.type == FrameType::kContribute || header.type == FrameType::kConsumed ||
                     header.type == FrameType::kOffer || header.type == FrameType::kTaken;
  if (!local) {
    return operation.arrived(from, header, std::move(landing));
  }
  const auto index = static_cast<std::size_t>(from);
  return layout_.host_of[index] == layout_.host_of[static_cast<std::size_t>(rank_)] &&
         operation.local_frame(from, header);
}

void Group::mismatch(int from, const FrameHeader& header, const Descriptor& ours) {
  const Descriptor& theirs = header.call;
  std::string what;
  const auto add = [&](const char* name, bool differs, const std::string& left, const std::string& right) {
    if (differs) {
      what += (what.empty() ? "" : ", ") + std::string(name) + " (" + left + " and " + right + ")";
    }
  };
  add("collective", ours.collective != theirs.collective, std::string(name_of(ours.collective)),
      std::string(name_of(theirs.collective)));
  add("dtype", ours.dtype != theirs.dtype, std::string(name_of(ours.dtype)),
      std::string(name_of(theirs.dtype)));
  add("size", ours.count != theirs.count, number(ours.count), number(theirs.count));
  add("operation", ours.op != theirs.op, std::string(name_of(ours.op)), std::string(name_of(theirs.op)));
  add(ours.collective == Collective::kAllReduce ? "number of buffers" : "root", ours.root != theirs.root,
      number(ours.root), number(theirs.root));
  fail({Code::kMismatch, name_operation(header.operation) + " differs between ranks in " + what + ": " +
                             describe_rank(rank_) + " called " + describe(ours) + ", " + describe_rank(from) +
                             " called " + describe(theirs)},
       true);
}

// --- Completion, failure, time ---

void Group::finished(std::uint64_t operation) {
  finished_.push_back(operation);
  if (!inside_) {
    services_.later([weak = weak_from_this()] {
      if (const auto self = weak.lock()) {
        self->inside_ = true;
        self->reap();
      }
    });
  }
}

void Group::reap() {
  while (!finished_.empty()) {
    const std::vector<std::uint64_t> over = std::exchange(finished_, {});
    for (const std::uint64_t operation : over) {
      const auto found = active_.find(operation);
      if (found != active_.end()) {
        const auto handle = found->second->call().handle;
        active_.erase(found);
        handle->complete({});
      }
    }
    admit();
  }
  inside_ = false;
}

void Group::tell_all(FrameHeader header, const std::shared_ptr<std::vector<std::byte>>& payload) {
  header.group = id_;
  for (const int member : members_) {
    if (member != members_[static_cast<std::size_t>(rank_)]) {
      const auto bytes = payload ? std::span<const std::byte>(*payload) : std::span<const std::byte>();
      services_.send(member, {header, bytes, payload, nullptr});
    }
  }
}

void Group::fail(const Status& why, bool tell) {
  if (!failed_.ok()) {
    return;
  }
  failed_ = why;
  if (tell) {
    FrameHeader header;
    header.type = FrameType::kAbort;
    const std::string text = why.message().substr(0, kMaxText - 16);
    const Bytes bytes = Writer().put(static_cast<std::uint8_t>(why.code())).text(text).take();
    tell_all(header, std::make_shared<std::vector<std::byte>>(bytes));
  }
  // The operations die on the next turn: one of them may be the caller.
  auto dying = std::make_shared<std::vector<std::unique_ptr<Operation>>>();
  for (auto& [operation, running] : active_) {
    services_.cancel(id_, operation);
    const std::string where = describe_wait(*running, running->waiting_for().ranks);
    running->call().handle->complete({why.code(), why.message() + " [" + where + "]"});
    dying->push_back(std::move(running));
  }
  active_.clear();
  finished_.clear();
  services_.later([dying] {});
  for (Waiting& waiting : queue_) {
    waiting.call.handle->complete(
        {why.code(), why.message() + " [" + name_operation(waiting.number) + " had not begun]"});
  }
  for (auto& [operation, waiting] : named_) {
    waiting.call.handle->complete(
        {why.code(), why.message() + " [" + name_operation(operation) + " had not begun]"});
  }
  queue_.clear();
  named_.clear();
  parked_.clear();
}

void Group::peer_lost(int job_rank, bool orderly, const Status& why) {
  if (!has(job_rank) || !failed_.ok()) {
    return;
  }
  if (orderly) {
    left_ = {job_rank, Clock::now()};
    return;
  }
  fail({Code::kPeerLost, services_.layout().describe(job_rank) + " was lost: " + why.message()}, true);
}

void Group::tick(TimePoint now) {
  if (!failed_.ok()) {
    return;
  }
  inside_ = true;
  std::vector<std::uint64_t> running;
  running.reserve(active_.size());
  for (const auto& [operation, state] : active_) {
    running.push_back(operation);
  }
  for (const std::uint64_t operation : running) {
    if (const auto found = active_.find(operation); found != active_.end()) {
      found->second->advance();
    }
  }
  reap();
  if (left_ && busy() && now - left_->second > seconds(kLeaveGrace)) {
    fail({Code::kPeerLost, services_.layout().describe(left_->first) +
                               " closed its engine without making the calls of the others"},
         true);
    return;
  }
  for (const std::uint64_t operation : running) {
    if (const auto found = active_.find(operation); found != active_.end() && failed_.ok()) {
      check_times(*found->second, now);
    }
  }
  const auto late = [now](const Waiting& waiting) { return now >= waiting.deadline; };
  const bool queue_late = std::ranges::any_of(queue_, late);
  if (failed_.ok() &&
      (queue_late || std::ranges::any_of(named_, [&](const auto& entry) { return late(entry.second); }))) {
    fail({Code::kTimeout, "a deadline passed for a call of group '" + name_ + "' on " + describe_rank(rank_) +
                              " that had not begun: earlier calls were not complete"},
         true);
  }
}

void Group::check_times(Operation& operation, TimePoint now) {
  if (now >= operation.deadline()) {
    fail({Code::kTimeout, "the deadline passed " + describe_wait(operation, culprits(operation))}, true);
    return;
  }
  if (now < operation.warn_at()) {
    return;
  }
  if (!operation.witnesses().contains(rank_)) {
    operation.witnesses().insert(rank_);
    for (const int rank : operation.waiting_for().ranks) {
      FrameHeader header;
      header.type = FrameType::kSuspect;
      header.call = operation.call().what;
      header.operation = operation.number();
      header.piece = static_cast<std::uint32_t>(rank);
      tell_all(header, nullptr);
    }
    operation.warn_again_at(now + seconds(kWitnessPause));
    return;
  }
  operation.warn_again_at(TimePoint::max());
  services_.log(LogLevel::kWarning, "slow: " + describe_wait(operation, culprits(operation)));
}

}  // namespace smdp
