#include "session.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <utility>
#include <vector>

namespace smdp_tensorflow {
namespace {

constexpr auto kWatch = std::chrono::seconds(1);
constexpr char kShutDown[] = "the engine was shut down here";

std::mutex current_mutex;
// Guarded by current_mutex. Never destroyed: at the end of a forked process there is no watcher to join.
std::shared_ptr<Session>& current_session = *new std::shared_ptr<Session>;

// The engine's deadline of an operation: from the environment, or the default in its table of options.
double operation_timeout_s() {
  const std::string name = "SMDP_OPERATION_TIMEOUT_S";
  const char* value = std::getenv(name.c_str());
  smdp_option option{};
  for (int i = 0; value == nullptr && smdp_option_info(i, &option) == SMDP_OK; ++i) {
    value = name == option.name ? option.default_value : nullptr;
  }
  return std::strtod(value, nullptr);
}

// A list of gradients, as the ranks exchange it.
struct Description {
  uint64_t digest = 0;  // of the whole list
  uint64_t gradients = 0;
  std::array<char, 8176> text{};  // the beginning of the list
};

std::vector<std::string> split(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

Description described(const LaneName& name) {
  Description description;
  description.digest = 14695981039346656037U;  // FNV-1a
  for (const char one : name.lane + ' ' + name.described) {
    description.digest = (description.digest ^ static_cast<unsigned char>(one)) * 1099511628211U;
  }
  description.gradients = split(name.described).size();
  name.described.copy(description.text.data(), description.text.size() - 1);
  return description;
}

// An error that describes the first rank whose list differs; SMDP_OK: none does.
smdp_error difference(const std::vector<Description>& all, int own) {
  const Description& ours = all.back();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Description& one) { return one.digest != ours.digest; });
  if (found == all.end()) {
    return {};
  }
  std::ostringstream why;
  why << "rank " << found - all.begin();
  if (found->gradients != ours.gradients) {
    why << " gives " << found->gradients << " gradients and this rank, " << own << ", gives "
        << ours.gradients << ": none may be None on some ranks only";
    return failure(SMDP_MISMATCH, why.str());
  }
  const auto here = split(ours.text.data());
  const auto there = split(found->text.data());
  const auto at = std::mismatch(here.begin(), here.end(), there.begin(), there.end());
  why << " gives other gradients than this rank, " << own << ": ";
  if (at.first != here.end() && at.second != there.end()) {
    why << "number " << at.first - here.begin() << " of " << ours.gradients << " is " << *at.second
        << " there and " << *at.first << " here";
  } else {
    why << "after number " << here.size() << ", or in fusion buffers of another size";
  }
  return failure(SMDP_MISMATCH, why.str());
}

}  // namespace

void Sequence::add(Start start, Ended ended) {
  Waiting next{std::move(start), std::move(ended)};
  {
    const std::lock_guard lock(mutex_);
    if (failed_) {
      later([ended = std::move(next.ended), error = *failed_] { ended(error); });
      return;
    }
    waiting_.push_back(next);
    if (waiting_.size() > 1) {
      return;
    }
  }
  begin(std::move(next));
}

void Sequence::fail(const smdp_error& error) {
  {
    const std::lock_guard lock(mutex_);
    if (failed_) {
      return;
    }
    failed_ = error;
  }
  later([self = shared_from_this()] { self->group_->close(); });
}

void Sequence::close() {
  fail(failure(SMDP_CLOSED, kShutDown));
  group_->close();
}

void Sequence::begin(Waiting next) {
  next.start(*group_, [self = shared_from_this(), ended = std::move(next.ended)](const smdp_error& error) {
    std::optional<Waiting> following;
    std::deque<Waiting> given_up;
    {
      const std::lock_guard lock(self->mutex_);
      self->waiting_.pop_front();
      if (self->failed_) {
        given_up.swap(self->waiting_);
      } else if (!self->waiting_.empty()) {
        following = self->waiting_.front();
      }
    }
    for (const Waiting& one : given_up) {
      one.ended(*self->failed_);  // constant once set
    }
    if (following) {
      self->begin(std::move(*following));
    }
    ended(error);
  });
}

std::shared_ptr<Session> Session::current() {
  const std::lock_guard lock(current_mutex);
  return current_session;
}

smdp_error Session::open(int rank, int world_size, const char* master) {
  if (smdp_abi_version() != SMDP_ABI_VERSION) {
    return failure(SMDP_UNSUPPORTED,
                   "libsmdp_engine.so has another interface version: reinstall smdp-engine");
  }
  smdp_engine_config config{};
  config.size = sizeof(config);
  config.rank = rank;
  config.world_size = world_size;
  config.master = master;
  smdp_engine* engine = nullptr;
  smdp_error error{};
  if (smdp_engine_open(&config, &engine, &error) == SMDP_OK) {
    const std::lock_guard lock(current_mutex);
    current_session = std::make_shared<Session>(engine, rank, world_size);
  }
  return error;
}

void Session::close() {
  std::shared_ptr<Session> ours;
  {
    const std::lock_guard lock(current_mutex);
    ours = std::exchange(current_session, nullptr);
  }
  if (ours) {
    ours->end();  // open operations may still hold it
  }
}

void Session::abandon() {
  if (const auto session = current()) {
    smdp_engine_abandon(session->engine_);
  }
}

Session::Session(smdp_engine* engine, int rank, int world_size)
    : engine_(engine), rank_(rank), world_size_(world_size), watcher_([this] { watch(); }) {}

Session::~Session() {
  end();
  smdp_engine_close(engine_);
}

void Session::end() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(closing_, true)) {
      return;
    }
  }
  closes_.notify_all();
  watcher_.join();
  for (const auto& [name, lane] : lanes_) {
    lane->close();
  }
  for (const auto& [name, sequence] : sequences_) {
    sequence->close();
  }
  for (const auto& [name, comparison] : comparisons_) {
    comparison->close();
  }
}

std::unique_ptr<Group> Session::group(const std::string& name, smdp_error* error) {
  if (closing_) {
    *error = failure(SMDP_CLOSED, kShutDown);
    return nullptr;
  }
  auto made = std::make_unique<Group>(engine_, world_size_, name, error);
  return error->code == SMDP_OK ? std::move(made) : nullptr;
}

std::shared_ptr<Lane> Session::lane(const LaneName& name, Lane::Shape shape, smdp_error* error) {
  const std::lock_guard lock(mutex_);
  const auto found = lanes_.find(name.lane);
  if (found != lanes_.end()) {
    return found->second;
  }
  auto made = group("lane/" + name.lane, error);
  if (!made) {
    return nullptr;
  }
  shape.timeout_s = operation_timeout_s();
  const auto lane = lanes_[name.lane] = std::make_shared<Lane>(std::move(made), shape);
  if (!name.among.empty()) {
    compare(name, lane);
  }
  return lane;
}

// Ranks whose lists differ would wait for each other in lanes of different names. Only the errors of
// operations wait for this comparison.
void Session::compare(const LaneName& name, const std::shared_ptr<Lane>& lane) {
  smdp_error error{};
  auto& among = comparisons_[name.among];
  if (!among) {
    among = group("lists/" + name.among, &error);
  }
  if (!among) {
    lane->fail(error);
    return;
  }
  const auto all = std::make_shared<std::vector<Description>>(static_cast<std::size_t>(world_size_) + 1);
  all->back() = described(name);
  smdp_call call{};
  call.collective = SMDP_ALL_GATHER;
  call.dtype = SMDP_UINT8;
  call.count = sizeof(Description);
  call.input = &all->back();
  call.output = all->data();
  lane->await_comparison();
  among->submit(call, [all, lane, own = rank_](const smdp_error& error) {
    lane->compared(error.code == SMDP_OK ? difference(*all, own) : error);
  });
}

std::shared_ptr<Sequence> Session::sequence(const std::string& name, smdp_error* error) {
  const std::lock_guard lock(mutex_);
  const auto found = sequences_.find(name);
  if (found != sequences_.end()) {
    return found->second;
  }
  auto own = group("sequence/" + name, error);
  return own ? sequences_[name] = std::make_shared<Sequence>(std::move(own)) : nullptr;
}

void Session::watch() {
  ::pthread_setname_np(::pthread_self(), "smdp-lanes");
  std::unique_lock lock(mutex_);
  while (!closes_.wait_for(lock, kWatch, [this] { return closing_; })) {
    for (const auto& [name, lane] : lanes_) {
      lane->look(std::chrono::steady_clock::now());
    }
  }
}

}  // namespace smdp_tensorflow
