#include "completer.h"

#include <unistd.h>

#include <utility>

namespace smdp_torch {
namespace {

std::mutex instance_mutex;
Completer* instance = nullptr;  // guarded by instance_mutex, as is instance_owner
pid_t instance_owner = 0;

}  // namespace

Completer& Completer::of_process() {
  const std::lock_guard lock(instance_mutex);
  if (instance == nullptr || instance_owner != ::getpid()) {
    instance = new Completer();
    instance_owner = ::getpid();
  }
  return *instance;
}

Completer::Completer() : thread_([this] { run(); }) {}

void Completer::post(Task task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.notify_one();
}

void Completer::retire() {
  Completer* completer = nullptr;
  {
    const std::lock_guard lock(instance_mutex);
    completer = instance_owner == ::getpid() ? instance : nullptr;
  }
  if (completer == nullptr) {
    return;
  }
  {
    const std::lock_guard lock(completer->mutex_);
    if (std::exchange(completer->retired_, true)) {
      return;
    }
  }
  completer->changed_.notify_one();
  completer->thread_.join();
}

void Completer::run() {
  for (;;) {
    Task task;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return retired_ || !tasks_.empty(); });
      if (tasks_.empty()) {
        return;
      }
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace smdp_torch
