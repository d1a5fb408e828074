#include "shm/offload.h"

#include <utility>

namespace smdp {

void Offload::Gate::enter_and_run(const Task& work) {
  {
    const std::lock_guard lock(mutex);
    if (closed) {
      return;
    }
    ++inside;
  }
  work();
  const std::lock_guard lock(mutex);
  if (--inside == 0 && closed) {
    left.notify_all();
  }
}

void Offload::hand_over(Phase phase, Task work, Task done) {
  if (!gate_) {
    gate_ = std::make_shared<Gate>();
  }
  executor_.offload([gate = gate_, work = std::move(work)] { gate->enter_and_run(work); },
                    [this, gate = gate_, done = std::move(done)] {
                      if (gate->closed) {  // written on the loop only
                        return;
                      }
                      --under_way_;
                      rest();
                      resume_(done);
                    });
  ++under_way_;
  marks_.work_on(phase);
}

void Offload::cancel() {
  if (gate_) {
    std::unique_lock lock(gate_->mutex);
    gate_->closed = true;
    gate_->left.wait(lock, [this] { return gate_->inside == 0; });
  }
}

}  // namespace smdp
