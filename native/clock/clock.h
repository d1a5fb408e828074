// What the files of the module smdp_engine._clock share: the clock, and how they read arguments.
#pragma once

// Python's limited API: one file serves Python 3.8 and later.
#define Py_LIMITED_API 0x03080000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <time.h>

#include <algorithm>
#include <cstdint>

namespace smdp::timing {

// In the order of smdp_engine/phases.py.
constexpr int kPhases = 10;
constexpr int kInput = 0;
constexpr int kForward = 2;
constexpr int kBackward = 3;
constexpr int kExchange = 4;
constexpr int kOptimizer = 5;
constexpr int kEvaluation = 8;
constexpr int kOther = 9;
constexpr int kDeepest = 256;  // calls within each other: a deeper one counts for the one below
constexpr int kNotMeasured = 0;

inline int64_t now_of(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

inline int64_t now() { return now_of(CLOCK_MONOTONIC); }

// A step of an optimizer that has begun. The object is compared and never used.
struct RunningStep {
  const PyObject* optimizer;
  int mark;
};
constexpr int kRunningSteps = 8;  // within each other, and those that an exception has ended

// What an iterator of a loader has delivered since the last backward pass, as Source in
// smdp_engine/timing/torch_loaders.py.
struct Source {
  PyObject_HEAD long long workers;
  long long batches;
  long long samples;
  long long passes;
  long long forward;
  long long moved;
  long long evaluation;
  long long first;
  long long used;
  long long each;
  char has_trained;
  char evaluates;
};
extern PyTypeObject* source_type;  // batches.cc

struct Clock {
  PyObject_HEAD unsigned long thread;  // the training thread
  int64_t since;                       // the beginning of the current phase
  int64_t totals[kPhases];
  long long batches;
  long long checkpoints;
  long long passes;
  long long samples;
  long long delivered;
  int depth;  // of the stack, whose first entry is the base phase
  char is_owned;
  char has_trained;
  int workers;     // of the training loader, -1 before its first batch
  long long left;  // samples of an iterator's last batches, at its end
  PyObject* last;  // the source of the last batch, or null
  PyObject* steps;
  PyObject* moves;
  unsigned char stack[kDeepest];
  int running;  // so many of the steps below are in use
  RunningStep running_steps[kRunningSteps];

  int phase() const { return stack[depth - 1]; }
  bool is_own_thread() const { return is_owned != 0 && PyThread_get_thread_ident() == thread; }

  // Between two calls the time is that of the phase on top of the stack.
  void charge() {
    const int64_t time = now();
    totals[phase()] += time - since;
    since = time;
  }

  // The mark of the call that begins, kNotMeasured in another thread.
  int enter(int phase) {
    if (!is_own_thread() || depth == kDeepest) return kNotMeasured;
    charge();
    stack[depth] = static_cast<unsigned char>(phase);
    return depth++;
  }

  void leave(long mark, int base) {
    if (mark == kNotMeasured) return;
    charge();
    if (mark > 0 && mark < depth) depth = static_cast<int>(mark);
    stack[0] = static_cast<unsigned char>(base);
  }

  // This thread is the training thread, if no other has trained.
  void adopt() {
    if (is_owned == 0 || has_trained != 0 || is_own_thread()) return;
    charge();
    thread = PyThread_get_thread_ident();
    stack[0] = kOther;
    depth = 1;
  }

  // A backward pass trains on the samples of the delivered batches.
  void use_samples() {
    has_trained = 1;
    ++passes;
    samples += delivered;
    delivered = 0;
  }

  // The call on top of the stack is from here on of another phase, if it is of `phase` now.
  void turn(int phase, int into) {
    if (this->phase() != phase || is_owned == 0) return;
    charge();
    stack[depth - 1] = static_cast<unsigned char>(into);
  }

  int64_t total(int phase) const { return totals[phase] + (phase == this->phase() ? now() - since : 0); }

  int find(int phase) const {  // the lowest call of this phase, 0 without one
    const auto* found = std::find(stack + std::min(depth, 1), stack + depth, phase);
    return found == stack + depth ? 0 : static_cast<int>(found - stack);
  }
};

inline Clock* clock_of(PyObject* self) { return reinterpret_cast<Clock*>(self); }

inline PyObject* none() {
  Py_INCREF(Py_None);
  return Py_None;
}

inline bool is_error(long long value) { return value == -1 && PyErr_Occurred() != nullptr; }

inline PyObject* argument(PyObject* arguments, Py_ssize_t index) { return PyTuple_GetItem(arguments, index); }

inline bool has_arguments(PyObject* arguments, Py_ssize_t least, Py_ssize_t most) {
  const Py_ssize_t count = PyTuple_Size(arguments);
  if (count < least || count > most) {
    PyErr_Format(PyExc_TypeError, "expected %zd to %zd arguments, got %zd", least, most, count);
    return false;
  }
  return true;
}

// The number in `value` is stored in `number`; False with an exception if it is none.
inline bool read_number(PyObject* value, long long& number) {
  number = PyLong_AsLongLong(value);
  return !is_error(number);
}

// Keeps the exception that is set, if one is, while its lifetime calls functions of Python. One that they
// raise replaces it, as in `finally`.
class ErrorKept {
 public:
  // PyErr_Fetch is deprecated since 3.12, the first version that has another function for it.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  ErrorKept() { PyErr_Fetch(&type_, &error_, &trace_); }
  ~ErrorKept() {
    if (PyErr_Occurred() == nullptr) {
      PyErr_Restore(type_, error_, trace_);
    } else {
      Py_XDECREF(type_);
      Py_XDECREF(error_);
      Py_XDECREF(trace_);
    }
  }
#pragma GCC diagnostic pop
  ErrorKept(const ErrorKept&) = delete;
  ErrorKept& operator=(const ErrorKept&) = delete;

 private:
  PyObject* type_ = nullptr;
  PyObject* error_ = nullptr;
  PyObject* trace_ = nullptr;
};

// What the result of a call says: false with an exception. It takes the result.
inline bool is_good(PyObject* result) {
  Py_XDECREF(result);
  return result != nullptr;
}

// A function of C whose `self` is the tuple; it takes the tuple, which may be null.
inline PyObject* function_of(PyMethodDef& definition, PyObject* given) {
  PyObject* function = given != nullptr ? PyCFunction_NewEx(&definition, given, nullptr) : nullptr;
  Py_XDECREF(given);
  return function;
}

// Two functions of C with one `self`, as a tuple. It takes the tuple `given`, which may be null.
inline PyObject* functions_of(PyMethodDef& first, PyMethodDef& second, PyObject* given) {
  Py_XINCREF(given);
  PyObject* one = function_of(first, given);
  PyObject* other = function_of(second, given);
  if (one != nullptr && other != nullptr) return Py_BuildValue("NN", one, other);
  Py_XDECREF(one);
  Py_XDECREF(other);
  return nullptr;
}

// The first item of a list or tuple that has one, else the object. Borrowed.
inline PyObject* first_of(PyObject* object) {
  if (PyList_Check(object) && PyList_Size(object) > 0) return PyList_GetItem(object, 0);
  return PyTuple_Check(object) && PyTuple_Size(object) > 0 ? PyTuple_GetItem(object, 0) : object;
}

// clock.cc
PyObject* count_step(PyObject* clock, PyObject* optimizer);
// fetches.cc
PyObject* thread_counts(PyObject* module, PyObject* arguments);
extern PyType_Spec fetches_spec;
extern PyType_Spec counting_spec;
extern PyTypeObject* counting_type;
// hooks.cc, passes.cc, batches.cc: methods of the clock, but for the first
PyObject* hook_that_calls(PyObject* module, PyObject* arguments);
PyObject* optimizer_hooks(PyObject* clock, PyObject* arguments);
PyObject* passes(PyObject* clock, PyObject* arguments);
PyObject* around_next(PyObject* clock, PyObject* arguments);
extern PyType_Spec source_spec;

}  // namespace smdp::timing
