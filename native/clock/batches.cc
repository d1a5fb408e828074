// The wait for a loader's batch, as Loaders.measured_next in smdp_engine/timing/torch_loaders.py, where most
// batches take the same way.
#include <cstddef>
#include <utility>

#include "clock.h"

namespace smdp::timing {
namespace {

// What Clock.around_next was called with, after the clock, and what it calls often.
enum Given {
  kClock,
  kRead,
  kOtherwise,
  kEnd,
  kSamplesOf,
  kIsGradEnabled,
  kTensor,
  kLastGiven = kTensor,
  kSource,
  kSize,
  kZero,
  kAllGiven
};

// The length of the tensor that is the batch, or that the batch begins with; else what samples_of says. -1
// with an exception.
long long samples_of(PyObject* given, PyObject* batch) {
  PyObject* first = first_of(batch);
  PyObject* length = nullptr;
  if (reinterpret_cast<PyObject*>(Py_TYPE(first)) == argument(given, kTensor)) {
    Py_INCREF(first);
    length = PyObject_CallMethodObjArgs(first, argument(given, kSize), argument(given, kZero), nullptr);
    Py_DECREF(first);
    const long long samples = length != nullptr ? PyLong_AsLongLong(length) : -1;
    Py_XDECREF(length);
    if (samples > 0) return samples;
    // It has no dimension, or a symbolic one. A signal's exception is none of these.
    const bool has_failed = PyErr_Occurred() != nullptr;
    if (has_failed && PyErr_ExceptionMatches(PyExc_IndexError) == 0 &&
        PyErr_ExceptionMatches(PyExc_TypeError) == 0) {
      return -1;
    }
    PyErr_Clear();
  }
  length = PyObject_CallFunctionObjArgs(argument(given, kSamplesOf), batch, nullptr);
  const long long samples = length != nullptr ? PyLong_AsLongLong(length) : -1;
  Py_XDECREF(length);
  return is_error(samples) ? -1 : std::max(0LL, samples);
}

// The iterator's source, if this batch needs no more than measured_batch does. Null without an exception: it
// does.
PyObject* source_of(PyObject* given, PyObject* iterator) {
  const Clock& clock = *clock_of(argument(given, kClock));
  if (!clock.is_own_thread() || clock.depth != 1 || clock.workers < 0 || clock.left != 0) return nullptr;
  PyObject* found = PyObject_GetAttr(iterator, argument(given, kSource));
  if (found == nullptr) {
    if (PyErr_ExceptionMatches(PyExc_AttributeError) != 0) PyErr_Clear();
    return nullptr;
  }
  const auto* source = reinterpret_cast<Source*>(found);
  const bool is_next = Py_TYPE(found) == source_type && source->first == 0 &&
                       (source->batches == 0 || source->passes != clock.passes);
  PyObject* is_grad_enabled =
      is_next ? PyObject_CallFunctionObjArgs(argument(given, kIsGradEnabled), nullptr) : none();
  Py_XDECREF(is_grad_enabled);
  if (is_grad_enabled == Py_True) return found;
  Py_DECREF(found);
  return nullptr;
}

PyObject* measured_batch(PyObject* given, PyObject* iterator) {
  Clock& clock = *clock_of(argument(given, kClock));
  PyObject* held = source_of(given, iterator);
  if (held == nullptr) {
    if (PyErr_Occurred() != nullptr) return nullptr;
    return PyObject_CallFunctionObjArgs(argument(given, kOtherwise), iterator, nullptr);
  }
  auto* source = reinterpret_cast<Source*>(held);
  if (source->batches != 0) {
    source->batches = source->samples = 0;
    source->has_trained = 1;
    source->evaluates = 0;
  }
  const int mark = clock.enter(kInput);
  PyObject* batch = PyObject_CallFunctionObjArgs(argument(given, kRead), iterator, nullptr);
  const long long samples = batch != nullptr ? samples_of(given, batch) : -1;
  if (samples < 0) {  // the end of the data, or a failure
    clock.leave(mark, kOther);
    const ErrorKept kept;
    Py_XDECREF(batch);
    (void)is_good(PyObject_CallFunctionObjArgs(argument(given, kEnd), held, nullptr));
    Py_DECREF(held);
    return nullptr;
  }
  if (source->batches == 0) source->forward = clock.total(kForward);
  ++source->batches;
  source->samples += samples;
  source->passes = clock.passes;
  ++clock.batches;
  clock.delivered += source->evaluates != 0 ? 0 : samples;
  std::swap(clock.last, held);
  clock.leave(mark, source->evaluates != 0 ? kEvaluation : kForward);
  Py_XDECREF(held);  // the source before
  return batch;
}

PyMethodDef measured = {"measured_batch", measured_batch, METH_O, nullptr};

// Source(workers)
PyObject* create_source(PyTypeObject* type, PyObject* arguments, PyObject*) {
  long long workers = 0;
  if (!has_arguments(arguments, 1, 1) || !read_number(argument(arguments, 0), workers)) return nullptr;
  PyObject* self =
      reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc))(type, 0);  // filled with zeros
  if (self != nullptr) reinterpret_cast<Source*>(self)->workers = workers;
  return self;
}

PyMemberDef source_members[] = {
    {"workers", T_LONGLONG, offsetof(Source, workers), READONLY, nullptr},
    {"batches", T_LONGLONG, offsetof(Source, batches), 0, nullptr},
    {"samples", T_LONGLONG, offsetof(Source, samples), 0, nullptr},
    {"passes", T_LONGLONG, offsetof(Source, passes), 0, nullptr},
    {"forward", T_LONGLONG, offsetof(Source, forward), 0, nullptr},
    {"moved", T_LONGLONG, offsetof(Source, moved), 0, nullptr},
    {"evaluation", T_LONGLONG, offsetof(Source, evaluation), 0, nullptr},
    {"first", T_LONGLONG, offsetof(Source, first), 0, nullptr},
    {"used", T_LONGLONG, offsetof(Source, used), 0, nullptr},
    {"each", T_LONGLONG, offsetof(Source, each), 0, nullptr},
    {"has_trained", T_BOOL, offsetof(Source, has_trained), 0, nullptr},
    {"evaluates", T_BOOL, offsetof(Source, evaluates), 0, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyType_Slot source_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(create_source)},
    {Py_tp_members, source_members},
    {0, nullptr},
};

}  // namespace

PyTypeObject* source_type = nullptr;

PyType_Spec source_spec = {"smdp_engine._clock.Source", sizeof(Source), 0, Py_TPFLAGS_DEFAULT, source_slots};

// clock.around_next(read, otherwise, end, samples_of, is_grad_enabled, tensor): `read(iterator)`, measured. A
// batch that needs more is one of `otherwise(iterator)`. At the end of the data, and after a failure, it
// calls `end(source)`.
PyObject* around_next(PyObject* clock, PyObject* arguments) {
  if (!has_arguments(arguments, kLastGiven, kLastGiven)) return nullptr;
  PyObject* source = PyUnicode_InternFromString("_smdp_source");
  PyObject* size = PyUnicode_InternFromString("size");
  PyObject* zero = PyLong_FromLong(0);
  PyObject* given = nullptr;
  if (source != nullptr && size != nullptr && zero != nullptr) {
    given = PyTuple_Pack(kAllGiven, clock, argument(arguments, 0), argument(arguments, 1),
                         argument(arguments, 2), argument(arguments, 3), argument(arguments, 4),
                         argument(arguments, 5), source, size, zero);
  }
  Py_XDECREF(source);
  Py_XDECREF(size);
  Py_XDECREF(zero);
  return function_of(measured, given);
}

}  // namespace smdp::timing
