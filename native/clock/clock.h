// What the files of the module smdp_engine._clock share: the clock, and how they read arguments.
#pragma once

// Python's limited API: one file serves Python 3.8 and later.
#define Py_LIMITED_API 0x03080000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace smdp::timing {

// In the order of smdp_engine/phases.py.
constexpr int kPhases = 10;
constexpr int kBackward = 3;
constexpr int kExchange = 4;
constexpr int kOptimizer = 5;
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

PyObject* count_step(PyObject* clock, PyObject* optimizer);        // clock.cc
PyObject* thread_counts(PyObject* module, PyObject* arguments);    // fetches.cc
PyObject* hook_that_calls(PyObject* module, PyObject* arguments);  // hooks.cc
PyObject* optimizer_hooks(PyObject* clock, PyObject* arguments);   // hooks.cc
extern PyType_Spec fetches_spec;                                   // fetches.cc
extern PyType_Spec counting_spec;                                  // fetches.cc

}  // namespace smdp::timing
