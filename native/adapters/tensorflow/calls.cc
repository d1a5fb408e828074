#include "calls.h"

#include <cstdio>
#include <numeric>
#include <utility>
#include <vector>

#include "../common/completer.h"

namespace smdp_tensorflow {
namespace {

void on_engines_thread(void* context, const smdp_error* error) {
  auto* ended = static_cast<Ended*>(context);
  later([ended = std::shared_ptr<Ended>(ended), error = *error] { (*ended)(error); });
}

}  // namespace

smdp_error failure(smdp_code code, const std::string& why) {
  smdp_error error{};
  error.code = code;
  std::snprintf(error.message, sizeof(error.message), "%s", why.c_str());
  return error;
}

void later(std::function<void()> task) { smdp_adapters::Completer::of_process().post(std::move(task)); }

Ended Together::part() {
  return [self = shared_from_this()](const smdp_error& error) {
    if (error.code != SMDP_OK && !self->failed_.exchange(true)) {
      self->error_ = error;
    }
    if (--self->left_ == 0) {
      self->ended_(self->error_);
    }
  };
}

Group::Group(smdp_engine* engine, int world_size, const std::string& name, smdp_error* error) {
  std::vector<int> members(static_cast<std::size_t>(world_size));
  std::iota(members.begin(), members.end(), 0);
  smdp_group_create(engine, members.data(), world_size, name.c_str(), 0, &group_, error);
}

Group::~Group() { close(); }

void Group::close() {
  const std::lock_guard lock(mutex_);
  if (group_ != nullptr) {
    smdp_group_destroy(std::exchange(group_, nullptr));
  }
}

void Group::submit(smdp_call call, Ended ended) {
  auto owned = std::make_unique<Ended>(std::move(ended));
  call.size = sizeof(call);
  call.done = on_engines_thread;
  call.context = owned.get();
  smdp_operation* operation = nullptr;
  smdp_error error = failure(SMDP_CLOSED, "the group was closed");
  {
    const std::lock_guard lock(mutex_);
    if (group_ != nullptr && smdp_submit(group_, &call, &operation, &error) == SMDP_OK) {
      owned.release();  // the engine owns it until it calls back
      smdp_operation_release(operation);
      return;
    }
  }
  later([owned = std::shared_ptr<Ended>(std::move(owned)), error] { (*owned)(error); });
}

}  // namespace smdp_tensorflow
