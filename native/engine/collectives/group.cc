#include "collectives/group.h"

#include <algorithm>

#include "base/bytes.h"
#include "shm/shm_reducer.h"

namespace smdp {
namespace {

constexpr std::uint64_t kMaxParkedBytes = 1ULL << 30U;
constexpr std::uint64_t kSwiftBytes = 256U << 10U;  // between hosts, a larger call is the network's to time

// The place of each rank of the job among `members`, or -1.
std::vector<int> places_of(const std::vector<int>& members, int world_size) {
  std::vector<int> places(static_cast<std::size_t>(world_size), -1);
  for (std::size_t place = 0; place < members.size(); ++place) {
    places[static_cast<std::size_t>(members[place])] = static_cast<int>(place);
  }
  return places;
}

}  // namespace

Group::Group(GroupServices& services, std::uint64_t id, std::string name, std::vector<int> members, int me,
             const GroupSettings& settings)
    : services_(services),
      id_(id),
      name_(std::move(name)),
      members_(std::move(members)),
      places_(places_of(members_, services_.layout().world_size())),
      traced_(std::make_shared<TracedGroup>(TracedGroup{id_, name_, members_})),
      rank_(rank_of(me).value_or(0)),
      settings_(settings),
      regions_(std::make_shared<RegionTable>(services_.arena())),
      mail_(*this, rank_, static_cast<int>(members_.size())) {
  std::vector<int> hosts;
  hosts.reserve(members_.size());
  for (const int member : members_) {
    hosts.push_back(services_.layout().host_of[static_cast<std::size_t>(member)]);
  }
  layout_ = make_group_layout(hosts);
}

std::optional<int> Group::rank_of(int job_rank) const {
  const int place = places_[static_cast<std::size_t>(job_rank)];
  return place < 0 ? std::nullopt : std::optional(place);
}

std::string Group::describe_rank(int group_rank) const {
  return services_.layout().describe(members_[static_cast<std::size_t>(group_rank)]);
}

void Group::send_network(int group_rank, Message message) {
  message.header.group = id_;
  services_.send(members_[static_cast<std::size_t>(group_rank)], std::move(message));
}

void Group::resume(const std::function<void()>& task) {
  const auto self = shared_from_this();
  inside_ = true;
  task();
  reap();
}

std::unique_ptr<LocalJob> Group::make_local_job(LocalSpec spec, std::uint64_t operation,
                                                LocalJob::Events& events) {
  const auto& mates = of_this_host();
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
  return std::make_unique<ShmJob>(spec, regions_, std::move(send), std::move(peek), events);
}

// --- Submission ---

std::uint64_t Group::number_of(const Call& call) {
  if (call.keyed) {
    return kNamed | static_cast<std::uint64_t>(call.step) << 32U | call.index;
  }
  return is_made_of_messages(call.what.collective) ? kMail | next_exchange_++ : next_number_++;
}

void Group::submit(Call call) {
  if (!failed_.ok()) {
    refuse(call);
    return;
  }
  const TimePoint now = Clock::now();
  const TimePoint deadline = now + seconds(call.timeout_s > 0 ? call.timeout_s : settings_.timeout_s);
  if (is_made_of_messages(call.what.collective)) {
    const std::uint64_t number = number_of(call);
    submit_exchange({number, std::move(call), deadline, now, 0});
    return;
  }
  if (call.keyed) {
    const std::uint64_t key = number_of(call);
    const bool past = call.step < next_step_ || (call.step == next_step_ && call.index < next_index_);
    if (call.buffers == 0 || call.index >= call.buffers || past || named_.contains(key) ||
        call.step >= 1U << 31U) {
      call.handle->complete(
          {Code::kInvalid, name_operation(key) + " of " + std::to_string(call.buffers) +
                               " buffers: was submitted before, or is no index of this step"});
      return;
    }
    call.what.root =
        call.buffers;  // an all_reduce has no root; so the number of buffers is compared between ranks
    const std::uint64_t record = services_.flight().add(traced_, key, call.what, now, deadline);
    named_[key] = {key, std::move(call), deadline, now, record};
  } else {
    const std::uint64_t number = number_of(call);
    const std::uint64_t record = services_.flight().add(traced_, number, call.what, now, deadline);
    queue_.push_back({number, std::move(call), deadline, now, record});
  }
  check_departures();
  inside_ = true;
  admit();
  reap();
}

Executor::Work Group::work() const {
  if (!busy()) {
    return Executor::Work::kNone;
  }
  const bool swift = layout_.hosts.size() == 1 || !mail_.under_way().empty() ||
                     std::ranges::any_of(active_, [](const auto& entry) {
                       const Descriptor& what = entry.second->call().what;
                       return what.count * size_of(what.dtype) <= kSwiftBytes;
                     });
  if (swift) {
    return Executor::Work::kSwift;
  }
  const bool leisurely =
      !active_.empty() && std::ranges::all_of(active_, [now = Clock::now()](const auto& entry) {
        return entry.second->is_leisurely(now);
      });
  return leisurely ? Executor::Work::kSeldom : Executor::Work::kSlow;
}

void Group::admit() {
  const std::size_t most = settings_.buffers_in_flight * (layout_.hosts.size() > kFewHosts ? 2 : 1);
  const auto running = [this](bool named) {
    return static_cast<std::size_t>(std::ranges::count_if(
        active_, [&](const auto& entry) { return ((entry.first & kNamed) != 0) == named; }));
  };
  while (failed_.ok() && !queue_.empty() && running(false) < most) {
    Waiting next = std::move(queue_.front());
    queue_.pop_front();
    begun_ = next.number + 1;
    begin(std::move(next));
  }
  while (failed_.ok() && !named_.empty() && running(true) < most) {
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

// A call that is neither waiting nor under way would be nobody's.
void Group::begin(Waiting waiting) {
  const std::uint64_t operation = waiting.number;
  const std::shared_ptr<OperationHandle> handle = waiting.call.handle;
  try {
    start(std::move(waiting));
  } catch (const std::bad_alloc&) {
    if (!active_.contains(operation) && !handle->is_complete()) {
      handle->complete(
          {Code::kExhausted, describe_rank(rank_) + " had no memory to begin " + name_operation(operation)});
    }
    throw;
  }
}

void Group::start(Waiting waiting) {
  const std::uint64_t operation = waiting.number;
  const TimePoint now = Clock::now();
  const double patience =
      std::min(settings_.warn_s, std::chrono::duration<double>(waiting.deadline - now).count() / 2);
  const OperationTrace trace = trace_begin(waiting, now);
  auto made = std::make_unique<Operation>(*this, operation, std::move(waiting.call), layout_, rank_,
                                          settings_.plan, *settings_.kernels, settings_.window,
                                          waiting.deadline, now + seconds(patience), trace);
  Operation& running = *active_.emplace(operation, std::move(made)).first->second;
  running.start();
  for (ParkedFrame& frame : parked_.take(operation)) {
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
  if (is_mail(header.operation)) {
    // Of a group that failed, the peers may not have heard it yet.
    return failed_.ok() ? mail_.place(*rank, header) : Landing::fresh(header.payload);
  }
  const auto found = active_.find(header.operation);
  if (found == active_.end() || header.call != found->second->call().what) {
    return parked_.bytes() + header.payload > kMaxParkedBytes ? std::nullopt
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
    if (!reader.ok() || code == Code::kOk || code > kLastCode) {
      return false;
    }
    fail({code, text}, true);
    return true;
  }
  if (!failed_.ok()) {
    return true;
  }
  if (header.type == FrameType::kLeave) {
    departures_.push_back({*rank, header.operation, header.offset, Clock::now()});
    check_departures();
    return true;
  }
  if (header.type == FrameType::kSuspect) {
    return hear_suspicion(*rank, header);
  }
  if (is_mail(header.operation)) {
    return mail_.arrived(*rank, header, std::move(landing));
  }
  if (!hearsay_.empty()) {
    forget_hearsay(*rank, header.operation);
  }
  const auto found = active_.find(header.operation);
  if (found == active_.end()) {
    if (is_ahead(header.operation)) {
      parked_.add(header.operation, {*rank, header, std::move(landing)});
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

// --- Completion ---

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

// By the order of calls, or of names: each of the two kinds has its own.
bool Group::is_oldest(std::uint64_t operation) const {
  const auto first = (operation & kNamed) == 0 ? active_.begin() : active_.lower_bound(kNamed);
  return first != active_.end() && first->first == operation;
}

// What one operation gave back another may be waiting for.
void Group::share_budget() {
  if (std::exchange(budget().starved, false)) {
    for (auto& [operation, running] : active_) {
      running->advance();
    }
  }
}

void Group::reap() {
  share_budget();
  while (!finished_.empty()) {
    const std::vector<std::uint64_t> over = std::exchange(finished_, {});
    for (const std::uint64_t operation : over) {
      const auto found = active_.find(operation);
      if (found != active_.end()) {
        trace_end(found->second->trace(), {});
        const auto handle = found->second->call().handle;
        active_.erase(found);
        std::erase_if(hearsay_,
                      [=](const auto& entry) { return is_later(operation, entry.second.operation); });
        handle->complete({});
      }
    }
    admit();
    share_budget();
  }
  inside_ = false;
}

}  // namespace smdp
