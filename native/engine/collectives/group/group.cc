#include "collectives/group/group.h"

#include <algorithm>

#include "base/bytes.h"
#include "net/call_number.h"
#include "shm/shm_reducer.h"

namespace smdp {
namespace {

constexpr std::uint64_t kMaxEarlyBytes = 1ULL << 30U;
constexpr std::uint64_t kSwiftBytes = 256U
                                      << 10U;  // between hosts, the network sets the time of a larger call

// The place of each rank of the job among `members`, or -1.
std::vector<int> places_of(const std::vector<int>& members, int world_size) {
  std::vector<int> places(static_cast<std::size_t>(world_size), -1);
  for (std::size_t place = 0; place < members.size(); ++place) {
    places[static_cast<std::size_t>(members[place])] = static_cast<int>(place);
  }
  return places;
}

bool is_collective(Collective collective) {
  return collective != Collective::kSend && collective != Collective::kRecv;
}

// Half of the time until the deadline where that is soon.
double warn_time_s(double warn_s, Clock::duration until_deadline) {
  return std::min(warn_s, std::chrono::duration<double>(until_deadline).count() / 2);
}

}  // namespace

Group::Group(GroupServices& services, std::uint64_t id, std::string name, std::vector<int> members, int me,
             const GroupSettings& settings)
    : services_(services),
      id_(id),
      name_(std::move(name)),
      members_(std::move(members)),
      places_(places_of(members_, services_.layout().world_size())),
      rank_(rank_of(me).value_or(0)),
      settings_(settings),
      records_(services_.flight(), services_.marks(),
               std::make_shared<TracedGroup>(TracedGroup{id_, name_, members_}), layout_, rank_),
      regions_(std::make_shared<RegionTable>(services_.arena())),
      messages_(*this, rank_, static_cast<int>(members_.size())),
      detector_(*this, *records_.group(), calls_, messages_, rank_, settings_.warn_s) {
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

bool Group::shares_host(int group_rank) const {
  return layout_.host_of[static_cast<std::size_t>(group_rank)] ==
         layout_.host_of[static_cast<std::size_t>(rank_)];
}

// --- What operations and messages need ---

void Group::send_network(int group_rank, Message message) {
  message.header.group = id_;
  services_.send(members_[static_cast<std::size_t>(group_rank)], std::move(message));
}

void Group::send_to_others(FrameHeader header, const std::shared_ptr<std::vector<std::byte>>& payload) {
  header.group = id_;
  for (const int member : members_) {
    if (member != members_[static_cast<std::size_t>(rank_)]) {
      const auto bytes = payload ? std::span<const std::byte>(*payload) : std::span<const std::byte>();
      services_.send(member, {header, bytes, payload, nullptr});
    }
  }
}

void Group::resume(const std::function<void()>& task) {
  const auto self = shared_from_this();
  inside_ = true;
  task();
  reap();
}

std::unique_ptr<LocalJob> Group::make_local_job(LocalSpec spec, std::uint64_t operation,
                                                LocalJob::Events& events) {
  const auto& mates = layout_.mates_of(rank_);
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

std::span<const std::byte> Group::peek(int group_rank, std::uint64_t offset, std::uint64_t bytes) {
  return services_.peek(members_[static_cast<std::size_t>(group_rank)], offset, bytes);
}

// --- Submission ---

void Group::submit(Call call) {
  if (!failed_.ok()) {
    refuse(call);
    return;
  }
  const TimePoint now = Clock::now();
  const TimePoint deadline = now + seconds(call.timeout_s > 0 ? call.timeout_s : settings_.timeout_s);
  const std::uint64_t number = calls_.number(call);
  if (is_made_of_messages(call.what.collective)) {
    submit_exchange({number, std::move(call), deadline, now, 0});
    return;
  }
  if (call.keyed) {
    if (!calls_.is_valid_name(call)) {
      call.handle->complete(
          {Code::kInvalid, describe_call(number) + " of " + std::to_string(call.buffers) +
                               " buffers: was submitted before, or is no index of this step"});
      return;
    }
    // An all_reduce has no root: its place in the descriptor, which ranks compare, holds the number of
    // buffers.
    call.what.root = call.buffers;
  }
  const std::uint64_t record = records_.add(number, call.what, now, deadline);
  calls_.queue({number, std::move(call), deadline, now, record});
  check_departures();
  inside_ = true;
  admit();
  reap();
}

void Group::submit_exchange(QueuedCall queued) {
  queued.record = records_.add(queued.number, queued.call.what, queued.submitted, queued.deadline);
  Exchange exchange;
  exchange.number = queued.number;
  exchange.deadline = queued.deadline;
  exchange.warn_at =
      queued.submitted + seconds(warn_time_s(settings_.warn_s, queued.deadline - queued.submitted));
  exchange.trace = records_.begin(queued, queued.submitted);
  if (is_collective(queued.call.what.collective)) {
    exchange.sequence = next_message_collective_++;
  }
  exchange.call = std::move(queued.call);
  messages_.begin(std::move(exchange));
}

// A call on a failed group. It is recorded all the same: the first ranks to make a call find that it differs,
// and the records of the others show which rank differs.
void Group::refuse(const Call& call) {
  const TimePoint now = Clock::now();
  const std::uint64_t number = calls_.number(call);
  const Status status(failed_.code(), "group '" + name_ + "' failed before: " + failed_.message() + " [" +
                                          describe(call.what) + ", " + describe_call(number) +
                                          " had not begun]");
  services_.flight().end(records_.add(number, call.what, now, now), status, now);
  services_.failed(failed_);
  call.handle->complete(status);
}

Executor::Work Group::work() const {
  const auto& running = calls_.running();
  if (calls_.empty() && messages_.exchanges().empty()) {
    return Executor::Work::kNone;
  }
  const bool swift = layout_.hosts.size() == 1 || !messages_.exchanges().empty() ||
                     std::ranges::any_of(running, [](const auto& entry) {
                       const Descriptor& what = entry.second->call().what;
                       return what.count * size_of(what.dtype) <= kSwiftBytes;
                     });
  if (swift) {
    return Executor::Work::kSwift;
  }
  const bool leisurely =
      !running.empty() && std::ranges::all_of(running, [now = Clock::now()](const auto& entry) {
        return entry.second->is_leisurely(now);
      });
  return leisurely ? Executor::Work::kSeldom : Executor::Work::kSlow;
}

void Group::admit() {
  const std::size_t most = settings_.buffers_in_flight * (layout_.hosts.size() > kFewHosts ? 2 : 1);
  for (const bool named : {false, true}) {
    while (failed_.ok()) {
      std::optional<QueuedCall> next = calls_.take_next(named, most);
      if (!next) {
        break;
      }
      begin(std::move(*next));
    }
  }
}

// Completes the call where memory runs out before it runs: nothing else would complete it.
void Group::begin(QueuedCall queued) {
  const std::uint64_t number = queued.number;
  const std::shared_ptr<OperationHandle> handle = queued.call.handle;
  try {
    start(std::move(queued));
  } catch (const std::bad_alloc&) {
    if (calls_.find(number) == nullptr && !handle->is_complete()) {
      handle->complete(
          {Code::kExhausted, describe_rank(rank_) + " had no memory to begin " + describe_call(number)});
    }
    throw;
  }
}

void Group::start(QueuedCall queued) {
  const std::uint64_t number = queued.number;
  const TimePoint now = Clock::now();
  const TimePoint warn_at = now + seconds(warn_time_s(settings_.warn_s, queued.deadline - now));
  const OperationTrace trace = records_.begin(queued, now);
  auto operation =
      std::make_unique<Operation>(*this, number, std::move(queued.call), layout_, rank_, settings_.plan,
                                  *settings_.kernels, settings_.window, queued.deadline, warn_at, trace);
  Operation& running = *calls_.running().emplace(number, std::move(operation)).first->second;
  running.start();
  for (EarlyFrame& frame : early_.take(number)) {
    if (failed_.ok() && !deliver_frame(frame.from, frame.header, std::move(frame.landing))) {
      fail({Code::kInternal,
            describe_rank(frame.from) + " sent a frame that is none of " + describe_call(number)});
    }
  }
}

// --- Frames ---

std::optional<Landing> Group::place(int from, const FrameHeader& header) {
  const auto rank = rank_of(from);
  if (!rank) {
    return std::nullopt;
  }
  if (is_message_call(header.operation)) {
    // When the group has failed, the peer may not know it yet.
    return failed_.ok() ? messages_.place(*rank, header) : Landing::fresh(header.payload);
  }
  Operation* const operation = calls_.find(header.operation);
  if (operation == nullptr || header.call != operation->call().what) {
    return early_.bytes() + header.payload > kMaxEarlyBytes ? std::nullopt
                                                            : std::optional(Landing::fresh(header.payload));
  }
  return operation->place(*rank, header);
}

bool Group::arrived(int from, const FrameHeader& header, Landing landing) {
  const auto rank = rank_of(from);
  if (!rank) {
    return false;
  }
  if (header.type == FrameType::kAbort) {
    return on_abort(header, landing);
  }
  if (!failed_.ok()) {
    return true;
  }
  if (header.type == FrameType::kLeave) {
    detector_.on_departure(*rank, static_cast<Leaving>(header.piece), header.operation, header.offset);
    check_departures();
    return true;
  }
  if (header.type == FrameType::kSuspect) {
    return detector_.on_suspicion(*rank, header);
  }
  if (is_message_call(header.operation)) {
    return messages_.arrived(*rank, header, std::move(landing));
  }
  detector_.on_frame(*rank, header.operation);
  if (calls_.find(header.operation) == nullptr) {
    if (calls_.is_ahead(header.operation)) {
      early_.add(header.operation, {*rank, header, std::move(landing)});
    }
    return true;  // otherwise the call is complete: a credit or an acknowledgement that arrives late
  }
  inside_ = true;
  const bool good = deliver_frame(*rank, header, std::move(landing));
  reap();
  return good;
}

bool Group::on_abort(const FrameHeader& header, const Landing& landing) {
  Reader reader(std::span<const std::byte>(landing.data, header.payload));
  const auto code = static_cast<Code>(reader.get<std::uint8_t>());
  const std::string text = reader.text();
  if (!reader.ok() || code == Code::kOk || code > kLastCode) {
    return false;
  }
  fail({code, text});
  return true;
}

bool Group::deliver_frame(int from, const FrameHeader& header, Landing landing) {
  Operation* const operation = calls_.find(header.operation);
  if (operation == nullptr) {
    return true;
  }
  if (header.call != operation->call().what) {
    mismatch(from, header, operation->call().what);
    return true;
  }
  const bool local = header.type == FrameType::kContribute || header.type == FrameType::kConsumed ||
                     header.type == FrameType::kOffer || header.type == FrameType::kTaken;
  return local ? shares_host(from) && operation->local_frame(from, header)
               : operation->arrived(from, header, std::move(landing));
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

void Group::exchanged(const Exchange& exchange) {
  records_.end(exchange.trace, {});
  exchange.call.handle->complete({});
}

// Another operation may wait for the part of the budget that one returned.
void Group::share_budget() {
  if (std::exchange(budget().starved, false)) {
    for (auto& [number, operation] : calls_.running()) {
      operation->advance();
    }
  }
}

void Group::reap() {
  share_budget();
  while (!finished_.empty()) {
    const std::vector<std::uint64_t> over = std::exchange(finished_, {});
    for (const std::uint64_t number : over) {
      const auto found = calls_.running().find(number);
      if (found != calls_.running().end()) {
        records_.end(found->second->trace(), {});
        const auto handle = found->second->call().handle;
        calls_.running().erase(found);
        detector_.on_complete(number);
        handle->complete({});
      }
    }
    admit();
    share_budget();
  }
  inside_ = false;
}

void Group::tick(TimePoint now) {
  if (!failed_.ok()) {
    return;
  }
  inside_ = true;
  std::vector<std::uint64_t> running;
  running.reserve(calls_.running().size());
  for (const auto& [number, operation] : calls_.running()) {
    running.push_back(number);
  }
  for (const std::uint64_t number : running) {
    if (Operation* const operation = calls_.find(number)) {
      operation->advance();
    }
  }
  reap();
  check_departures();
  if (!failed_.ok() || check_memory(now)) {
    return;
  }
  detector_.check_closed_engines(now);
  if (failed_.ok()) {
    messages_.pump();
    detector_.check_messages(now);
  }
  for (const std::uint64_t number : running) {
    if (Operation* const operation = calls_.find(number); operation != nullptr && failed_.ok()) {
      detector_.check_operation(*operation, now);
    }
  }
  detector_.check_queue(now);
}

}  // namespace smdp
