#include "session.h"

#include <pthread.h>

#include <chrono>
#include <cstdlib>
#include <utility>
#include <vector>

namespace smdp_tensorflow {
namespace {

constexpr auto kWatch = std::chrono::seconds(1);
constexpr char kShutDown[] = "the engine was shut down here";

std::mutex current_mutex;
// Guarded by current_mutex. Never destroyed: at the end of a forked process there is no watcher to join.
std::shared_ptr<Session>& current_session = *new std::shared_ptr<Session>;

// The engine's own deadline of an operation: of the environment, else as in its table of options.
double operation_timeout_s() {
  const std::string name = "SMDP_OPERATION_TIMEOUT_S";
  const char* given = std::getenv(name.c_str());
  smdp_option option{};
  for (int i = 0; given == nullptr && smdp_option_info(i, &option) == SMDP_OK; ++i) {
    given = name == option.name ? option.default_value : nullptr;
  }
  return std::strtod(given, nullptr);
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
    Waiting following;
    {
      const std::lock_guard lock(self->mutex_);
      self->waiting_.pop_front();
      if (!self->waiting_.empty()) {
        following = self->waiting_.front();
      }
    }
    if (following.start) {
      self->begin(std::move(following));
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
    ours->end();  // operations that are open may have it still
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
}

std::unique_ptr<Group> Session::group(const std::string& name, smdp_error* error) {
  if (closing_) {
    *error = failure(SMDP_CLOSED, kShutDown);
    return nullptr;
  }
  auto made = std::make_unique<Group>(engine_, world_size_, name, error);
  return error->code == SMDP_OK ? std::move(made) : nullptr;
}

std::shared_ptr<Lane> Session::lane(const std::string& name, Lane::Shape shape, smdp_error* error) {
  const std::lock_guard lock(mutex_);
  const auto found = lanes_.find(name);
  if (found != lanes_.end()) {
    return found->second;
  }
  auto made = group("lane/" + name, error);
  if (!made) {
    return nullptr;
  }
  shape.timeout_s = operation_timeout_s();
  return lanes_[name] = std::make_shared<Lane>(std::move(made), shape);
}

std::shared_ptr<Sequence> Session::sequence(const std::string& name, smdp_error* error) {
  const std::lock_guard lock(mutex_);
  const auto found = sequences_.find(name);
  if (found != sequences_.end()) {
    return found->second;
  }
  auto made = group("sequence/" + name, error);
  return made ? sequences_[name] = std::make_shared<Sequence>(std::move(made)) : nullptr;
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
