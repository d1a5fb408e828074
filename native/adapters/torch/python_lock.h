// Python's lock, without Python's headers: the adapter then fits every Python. The three functions are
// exported by every CPython since 3.4 and have kept their form; the process has them, since it imported
// torch.
#pragma once

#include <dlfcn.h>

namespace smdp_torch {

// Releases the lock for its lifetime where this thread holds it.
class WithoutPythonLock {
 public:
  WithoutPythonLock() {
    static const auto holds = function<int()>("PyGILState_Check");
    static const auto release = function<void*()>("PyEval_SaveThread");
    if (holds != nullptr && release != nullptr && holds() != 0) {
      thread_ = release();
    }
  }
  WithoutPythonLock(const WithoutPythonLock&) = delete;
  WithoutPythonLock& operator=(const WithoutPythonLock&) = delete;
  ~WithoutPythonLock() {
    if (thread_ != nullptr) {
      static const auto acquire = function<void(void*)>("PyEval_RestoreThread");
      acquire(thread_);
    }
  }

 private:
  template <class Signature>
  static Signature* function(const char* name) {
    return reinterpret_cast<Signature*>(dlsym(RTLD_DEFAULT, name));
  }

  void* thread_ = nullptr;
};

}  // namespace smdp_torch
