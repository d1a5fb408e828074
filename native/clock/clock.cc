// The module smdp_engine._clock: the clock of smdp_engine/timing/clock.py.
//
// A training step that fills the processor's caches makes each Python function of the measurement about ten
// times as slow as it is in a loop, and a step needs some forty of them. Here they read and write one object
// of a few cache lines. Each method runs to its end under Python's lock, so a reader in another thread sees
// no half of a change.
#include "clock.h"

#include <cstddef>

namespace smdp::timing {
namespace {

// A phase; -1 with an exception for another value.
int phase_from(PyObject* value) {
  const long phase = PyLong_AsLong(value);
  if (!is_error(phase) && (phase < 0 || phase >= kPhases)) {
    PyErr_SetString(PyExc_ValueError, "the phase does not exist");
    return -1;
  }
  return static_cast<int>(phase);
}

PyObject* create(PyTypeObject* type, PyObject*, PyObject*) {
  auto* allocate = reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc));
  PyObject* self = allocate(type, 0);  // filled with zeros
  if (self == nullptr) return nullptr;
  Clock& clock = *clock_of(self);
  clock.thread = PyThread_get_thread_ident();
  clock.is_owned = 1;
  clock.stack[0] = kOther;
  clock.depth = 1;
  clock.workers = -1;
  clock.steps = PyDict_New();
  clock.moves = PyDict_New();
  clock.since = now();
  if (clock.steps == nullptr || clock.moves == nullptr) {
    Py_DECREF(self);
    return nullptr;
  }
  return self;
}

void destroy(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  Py_XDECREF(clock_of(self)->steps);
  Py_XDECREF(clock_of(self)->moves);
  Py_XDECREF(clock_of(self)->last);
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

PyObject* enter(PyObject* self, PyObject* value) {
  const int phase = phase_from(value);
  return phase < 0 ? nullptr : PyLong_FromLong(clock_of(self)->enter(phase));
}

PyObject* leave(PyObject* self, PyObject* arguments) {
  Clock& clock = *clock_of(self);
  if (!has_arguments(arguments, 1, 2)) return nullptr;
  const long mark = PyLong_AsLong(argument(arguments, 0));
  if (is_error(mark)) return nullptr;
  PyObject* last = PyTuple_Size(arguments) == 2 ? argument(arguments, 1) : Py_None;
  const int base = last == Py_None ? clock.stack[0] : phase_from(last);
  if (base < 0) return nullptr;
  clock.leave(mark, base);
  return none();
}

PyObject* rest(PyObject* self, PyObject* value) {
  Clock& clock = *clock_of(self);
  const int base = phase_from(value);
  if (base < 0) return nullptr;
  if (!clock.is_own_thread()) return none();
  clock.charge();
  clock.stack[0] = static_cast<unsigned char>(base);
  return none();
}

PyObject* turn(PyObject* self, PyObject* arguments) {
  if (!has_arguments(arguments, 2, 2)) return nullptr;
  const int phase = phase_from(argument(arguments, 0));
  const int into = phase < 0 ? -1 : phase_from(argument(arguments, 1));
  if (into < 0) return nullptr;
  clock_of(self)->turn(phase, into);
  return none();
}

PyObject* gradients_are_ready(PyObject* self, PyObject*) {
  clock_of(self)->turn(kBackward, kExchange);
  return none();
}

PyObject* is_within(PyObject* self, PyObject* value) {
  const int phase = phase_from(value);
  return phase < 0 ? nullptr : PyBool_FromLong(clock_of(self)->find(phase));
}

PyObject* end_calls(PyObject* self, PyObject* value) {
  Clock& clock = *clock_of(self);
  const int phase = phase_from(value);
  if (phase < 0) return nullptr;
  const int found = clock.is_own_thread() ? clock.find(phase) : 0;
  if (found != 0) {
    clock.charge();
    clock.depth = found;
  }
  return none();
}

PyObject* adopt(PyObject* self, PyObject*) {
  clock_of(self)->adopt();
  return none();
}

PyObject* deliver(PyObject* self, PyObject* value) {
  long long samples = 0;
  if (!read_number(value, samples)) return nullptr;
  ++clock_of(self)->batches;
  clock_of(self)->delivered += samples;
  return none();
}

PyObject* deliver_unloaded(PyObject* self, PyObject* value) {
  long long samples = 0;
  if (!read_number(value, samples)) return nullptr;
  if (clock_of(self)->delivered == 0) clock_of(self)->delivered = samples;
  return none();
}

PyObject* use_samples(PyObject* self, PyObject*) {
  clock_of(self)->use_samples();
  return none();
}

PyObject* wait_with(PyObject* self, PyObject* value) {
  long long samples = 0;
  if (!read_number(value, samples)) return nullptr;
  clock_of(self)->delivered += samples;
  return none();
}

PyObject* drop_samples(PyObject* self, PyObject* arguments) {
  Clock& clock = *clock_of(self);
  if (!has_arguments(arguments, 0, 1)) return nullptr;
  long long samples = clock.delivered;
  if (PyTuple_Size(arguments) == 1 && argument(arguments, 0) != Py_None &&
      !read_number(argument(arguments, 0), samples)) {
    return nullptr;
  }
  clock.delivered = std::max(0LL, clock.delivered - samples);
  return none();
}

// Adds the number to the dictionary's entry. It takes the key, which may be null.
PyObject* add_to(PyObject* dictionary, PyObject* key, long long number) {
  if (key == nullptr) return nullptr;
  PyObject* before = PyDict_GetItemWithError(dictionary, key);
  long long sum = number;
  bool is_good = PyErr_Occurred() == nullptr;
  if (is_good && before != nullptr) is_good = read_number(before, sum);
  if (is_good && before != nullptr) sum += number;
  PyObject* value = is_good ? PyLong_FromLongLong(sum) : nullptr;
  is_good = value != nullptr && PyDict_SetItem(dictionary, key, value) == 0;
  Py_XDECREF(value);
  Py_DECREF(key);
  return is_good ? none() : nullptr;
}

PyObject* move(PyObject* self, PyObject* arguments) {
  long long nanoseconds = 0;
  if (!has_arguments(arguments, 3, 3) || !read_number(argument(arguments, 2), nanoseconds)) return nullptr;
  if (nanoseconds <= 0) return none();
  return add_to(clock_of(self)->moves, PyTuple_Pack(2, argument(arguments, 0), argument(arguments, 1)),
                nanoseconds);
}

}  // namespace

PyObject* count_step(PyObject* self, PyObject* optimizer) {
  Py_INCREF(optimizer);
  return add_to(clock_of(self)->steps, optimizer, 1);
}

namespace {

PyObject* total(PyObject* self, PyObject* value) {
  const int phase = phase_from(value);
  return phase < 0 ? nullptr : PyLong_FromLongLong(clock_of(self)->total(phase));
}

PyObject* stop(PyObject* self, PyObject*) {
  clock_of(self)->is_owned = 0;
  return none();
}

// The fields of Snapshot.
PyObject* totals(PyObject* self, PyObject*) {
  Clock& clock = *clock_of(self);
  PyObject* phases = PyTuple_New(kPhases);
  if (phases == nullptr) return nullptr;
  const int64_t running = now() - clock.since;
  for (int phase = 0; phase < kPhases; ++phase) {
    PyObject* value = PyLong_FromLongLong(clock.totals[phase] + (phase == clock.phase() ? running : 0));
    if (value == nullptr || PyTuple_SetItem(phases, phase, value) != 0) {
      Py_DECREF(phases);
      return nullptr;
    }
  }
  PyObject* steps = PyDict_Copy(clock.steps);
  PyObject* moves = PyDict_Copy(clock.moves);
  if (steps != nullptr && moves != nullptr) {
    return Py_BuildValue("NLLLNN", phases, clock.batches, clock.samples, clock.checkpoints, steps, moves);
  }
  Py_DECREF(phases);
  Py_XDECREF(steps);
  Py_XDECREF(moves);
  return nullptr;
}

PyObject* get_owner(PyObject* self, void*) {
  return clock_of(self)->is_owned != 0 ? PyLong_FromUnsignedLong(clock_of(self)->thread) : none();
}
PyObject* get_last(PyObject* self, void*) {
  PyObject* last = clock_of(self)->last != nullptr ? clock_of(self)->last : Py_None;
  Py_INCREF(last);
  return last;
}
int set_last(PyObject* self, PyObject* value, void*) {
  if (value != Py_None && (value == nullptr || Py_TYPE(value) != source_type)) {
    PyErr_SetString(PyExc_TypeError, "the last source is not of the class Source");
    return -1;
  }
  PyObject* before = clock_of(self)->last;
  if (value != Py_None) Py_INCREF(value);
  clock_of(self)->last = value != Py_None ? value : nullptr;
  Py_XDECREF(before);
  return 0;
}
PyObject* get_phase(PyObject* self, void*) { return PyLong_FromLong(clock_of(self)->phase()); }
PyObject* get_is_at_base(PyObject* self, void*) { return PyBool_FromLong(clock_of(self)->depth == 1); }
PyObject* get_is_own_thread(PyObject* self, void*) {
  return PyBool_FromLong(clock_of(self)->is_own_thread());
}
PyObject* get_is_used(PyObject* self, void*) {
  const Clock& clock = *clock_of(self);
  return PyBool_FromLong(clock.batches != 0 || clock.checkpoints != 0 || clock.has_trained != 0 ||
                         PyDict_Size(clock.steps) > 0);
}
PyObject* get_has_waiting_samples(PyObject* self, void*) {
  return PyBool_FromLong(clock_of(self)->delivered > 0);
}

PyMethodDef clock_methods[] = {
    {"enter", enter, METH_O, nullptr},
    {"leave", leave, METH_VARARGS, nullptr},
    {"rest", rest, METH_O, nullptr},
    {"turn", turn, METH_VARARGS, nullptr},
    {"gradients_are_ready", gradients_are_ready, METH_NOARGS, nullptr},
    {"is_within", is_within, METH_O, nullptr},
    {"end_calls", end_calls, METH_O, nullptr},
    {"adopt", adopt, METH_NOARGS, nullptr},
    {"deliver", deliver, METH_O, nullptr},
    {"deliver_unloaded", deliver_unloaded, METH_O, nullptr},
    {"use_samples", use_samples, METH_NOARGS, nullptr},
    {"wait_with", wait_with, METH_O, nullptr},
    {"drop_samples", drop_samples, METH_VARARGS, nullptr},
    {"move", move, METH_VARARGS, nullptr},
    {"count_step", count_step, METH_O, nullptr},
    {"optimizer_hooks", optimizer_hooks, METH_VARARGS, nullptr},
    {"passes_measured", passes, METH_VARARGS, nullptr},
    {"around_next", around_next, METH_VARARGS, nullptr},
    {"total", total, METH_O, nullptr},
    {"stop", stop, METH_NOARGS, nullptr},
    {"totals", totals, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyMemberDef clock_members[] = {
    {"batches", T_LONGLONG, offsetof(Clock, batches), 0, nullptr},
    {"checkpoints", T_LONGLONG, offsetof(Clock, checkpoints), 0, nullptr},
    {"passes", T_LONGLONG, offsetof(Clock, passes), READONLY, nullptr},
    {"workers", T_INT, offsetof(Clock, workers), 0, nullptr},
    {"left", T_LONGLONG, offsetof(Clock, left), 0, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyGetSetDef clock_attributes[] = {
    {"owner", get_owner, nullptr, nullptr, nullptr},
    {"last", get_last, set_last, nullptr, nullptr},
    {"phase", get_phase, nullptr, nullptr, nullptr},
    {"is_at_base", get_is_at_base, nullptr, nullptr, nullptr},
    {"is_own_thread", get_is_own_thread, nullptr, nullptr, nullptr},
    {"is_used", get_is_used, nullptr, nullptr, nullptr},
    {"has_waiting_samples", get_has_waiting_samples, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyType_Slot clock_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(create)},
    {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
    {Py_tp_methods, clock_methods},
    {Py_tp_members, clock_members},
    {Py_tp_getset, clock_attributes},
    {0, nullptr},
};
PyType_Spec clock_spec = {"smdp_engine._clock.Clock", sizeof(Clock), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, clock_slots};

PyMethodDef functions[] = {
    {"hook_that_calls", hook_that_calls, METH_VARARGS, nullptr},
    {"thread_counts", thread_counts, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

// The type, which the module keeps; null with an exception.
PyTypeObject* add_type(PyObject* module, const char* name, PyType_Spec& spec) {
  PyObject* type = PyType_FromSpec(&spec);
  if (type != nullptr && PyModule_AddObject(module, name, type) == 0)
    return reinterpret_cast<PyTypeObject*>(type);
  Py_XDECREF(type);
  return nullptr;
}

int execute(PyObject* module) {
  if (source_type != nullptr) {  // of another interpreter, or of an earlier import
    PyErr_SetString(PyExc_ImportError, "smdp_engine._clock can be loaded once in a process");
    return -1;
  }
  counting_type = add_type(module, "Counting", counting_spec);
  source_type = counting_type != nullptr ? add_type(module, "Source", source_spec) : nullptr;
  const bool is_good = source_type != nullptr && add_type(module, "Fetches", fetches_spec) != nullptr &&
                       add_type(module, "Clock", clock_spec) != nullptr;
  return is_good ? 0 : -1;
}

PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, reinterpret_cast<void*>(execute)},
    {0, nullptr},
};
PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    "smdp_engine._clock",
    nullptr,
    0,
    functions,
    module_slots,
    nullptr,
    nullptr,
    nullptr,
};

}  // namespace
}  // namespace smdp::timing

PyMODINIT_FUNC PyInit__clock() { return PyModuleDef_Init(&smdp::timing::module); }
