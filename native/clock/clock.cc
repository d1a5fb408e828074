// The module smdp_engine._clock: the clock of smdp_engine/timing/clock.py, and the system's counters of a
// thread.
//
// A training step that fills the processor's caches makes each Python function of the measurement about ten
// times as slow as it is in a loop, and a step needs some forty of them. Here they read and write one object
// of a few cache lines. Python's limited API: one file serves Python 3.8 and later. Each method runs to its
// end under Python's lock, so a reader in another thread sees no half of a change.
#define Py_LIMITED_API 0x03080000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {

// In the order of smdp_engine/phases.py.
constexpr int kPhases = 10;
constexpr int kBackward = 3;
constexpr int kExchange = 4;
constexpr int kOther = 9;
constexpr int kDeepest = 256;  // calls within each other: a deeper one counts for the one below
constexpr long kNotMeasured = 0;

int64_t now_of(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

int64_t now() { return now_of(CLOCK_MONOTONIC); }

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

  int phase() const { return stack[depth - 1]; }
  bool is_own_thread() const { return is_owned != 0 && PyThread_get_thread_ident() == thread; }

  // Between two calls the time is that of the phase on top of the stack.
  void charge() {
    const int64_t time = now();
    totals[phase()] += time - since;
    since = time;
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

Clock* clock_of(PyObject* self) { return reinterpret_cast<Clock*>(self); }

PyObject* none() {
  Py_INCREF(Py_None);
  return Py_None;
}

bool is_error(long long value) { return value == -1 && PyErr_Occurred() != nullptr; }

// A phase; -1 with an exception for another value.
int phase_from(PyObject* value) {
  const long phase = PyLong_AsLong(value);
  if (!is_error(phase) && (phase < 0 || phase >= kPhases)) {
    PyErr_SetString(PyExc_ValueError, "the phase does not exist");
    return -1;
  }
  return static_cast<int>(phase);
}

PyObject* argument(PyObject* arguments, Py_ssize_t index) { return PyTuple_GetItem(arguments, index); }

bool has_arguments(PyObject* arguments, Py_ssize_t least, Py_ssize_t most) {
  const Py_ssize_t count = PyTuple_Size(arguments);
  if (count < least || count > most) {
    PyErr_Format(PyExc_TypeError, "expected %zd to %zd arguments, got %zd", least, most, count);
    return false;
  }
  return true;
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
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

PyObject* enter(PyObject* self, PyObject* value) {
  Clock& clock = *clock_of(self);
  const int phase = phase_from(value);
  if (phase < 0) return nullptr;
  if (!clock.is_own_thread() || clock.depth == kDeepest) return PyLong_FromLong(kNotMeasured);
  clock.charge();
  clock.stack[clock.depth] = static_cast<unsigned char>(phase);
  return PyLong_FromLong(clock.depth++);
}

PyObject* leave(PyObject* self, PyObject* arguments) {
  Clock& clock = *clock_of(self);
  if (!has_arguments(arguments, 1, 2)) return nullptr;
  const long mark = PyLong_AsLong(argument(arguments, 0));
  if (is_error(mark)) return nullptr;
  PyObject* last = PyTuple_Size(arguments) == 2 ? argument(arguments, 1) : Py_None;
  const int base = last == Py_None ? clock.stack[0] : phase_from(last);
  if (base < 0) return nullptr;
  if (mark == kNotMeasured) return none();
  clock.charge();
  if (mark > 0 && mark < clock.depth) clock.depth = static_cast<int>(mark);
  clock.stack[0] = static_cast<unsigned char>(base);
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
  Clock& clock = *clock_of(self);
  if (clock.is_owned != 0 && clock.has_trained == 0 && !clock.is_own_thread()) {
    clock.charge();
    clock.thread = PyThread_get_thread_ident();
    clock.stack[0] = kOther;
    clock.depth = 1;
  }
  return none();
}

// The number in `value` is stored in `number`; False with an exception if it is none.
bool read_number(PyObject* value, long long& number) {
  number = PyLong_AsLongLong(value);
  return !is_error(number);
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
  Clock& clock = *clock_of(self);
  clock.has_trained = 1;
  ++clock.passes;
  clock.samples += clock.delivered;
  clock.delivered = 0;
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

PyObject* count_step(PyObject* self, PyObject* optimizer) {
  Py_INCREF(optimizer);
  return add_to(clock_of(self)->steps, optimizer, 1);
}

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

// A descriptor's second word: the run delay in `schedstat`, and `rchar` in `io`. -1 if it cannot be read.
// `length`: the bytes that were read.
int64_t second_word(int descriptor, ssize_t& length) {
  length = 0;
  if (descriptor < 0) return -1;
  std::array<char, 257> text{};
  length = std::max<ssize_t>(0, pread(descriptor, text.data(), text.size() - 1, 0));
  const char* space = std::strpbrk(text.data(), " \t\n");
  if (space == nullptr) return -1;
  char* end = nullptr;
  const int64_t number = std::strtoll(space, &end, 10);
  return end == space ? -1 : number;
}

// thread_counts(schedstat, io) -> (time, CPU time, queue time, bytes, bytes of this read, major faults)
PyObject* thread_counts(PyObject*, PyObject* arguments) {
  long long schedule = -1;
  long long io = -1;
  if (!has_arguments(arguments, 2, 2) || !read_number(argument(arguments, 0), schedule) ||
      !read_number(argument(arguments, 1), io)) {
    return nullptr;
  }
  ssize_t of_schedule = 0;
  ssize_t of_io = 0;
  const int64_t queued = second_word(static_cast<int>(schedule), of_schedule);
  const int64_t bytes = second_word(static_cast<int>(io), of_io);
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  const int64_t cpu = now_of(CLOCK_THREAD_CPUTIME_ID);
  return Py_BuildValue("LLLLnL", static_cast<long long>(now()), static_cast<long long>(cpu),
                       static_cast<long long>(queued),
                       static_cast<long long>(bytes - (bytes >= 0 ? of_schedule : 0)),
                       static_cast<Py_ssize_t>(of_schedule + of_io), static_cast<long long>(usage.ru_majflt));
}

// hook_that_calls(function, argument): a hook that calls function(argument), whatever it is called with.
PyObject* call_from_hook(PyObject* pair, PyObject*) {
  return PyObject_CallFunctionObjArgs(argument(pair, 0), argument(pair, 1), nullptr);
}
PyMethodDef hook = {"hook", call_from_hook, METH_O, nullptr};

PyObject* hook_that_calls(PyObject*, PyObject* arguments) {
  return has_arguments(arguments, 2, 2) ? PyCFunction_NewEx(&hook, arguments, nullptr) : nullptr;
}

// The fetches of one thread, as Fetches in smdp_engine/timing/loading.py.
struct Fetches {
  PyObject_HEAD int descriptor;  // of the thread's `schedstat`, -1 without it
  char has_queued;
  int64_t sample_ns;
  int64_t last_read;
  int64_t due;
  int64_t queued;   // of the last fetches that were read
  int64_t off_cpu;  // of the last fetches that were read
  long long work[4];
};

Fetches& fetches_of(PyObject* self) { return *reinterpret_cast<Fetches*>(self); }

int64_t queued_of(const Fetches& fetches) {
  ssize_t length = 0;
  return second_word(fetches.descriptor, length);
}

// Fetches(descriptor, sample_ns, last_read). The object closes the descriptor.
PyObject* create_fetches(PyTypeObject* type, PyObject* arguments, PyObject*) {
  std::array<long long, 3> given{};
  if (!has_arguments(arguments, 3, 3)) return nullptr;
  for (size_t index = 0; index < given.size(); ++index) {
    if (!read_number(argument(arguments, static_cast<Py_ssize_t>(index)), given[index])) return nullptr;
  }
  PyObject* self = reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc))(type, 0);
  if (self == nullptr) return nullptr;
  Fetches& fetches = fetches_of(self);
  fetches.descriptor = static_cast<int>(given[0]);
  fetches.sample_ns = given[1];
  fetches.last_read = std::max(1LL, given[2]);
  fetches.has_queued = queued_of(fetches) >= 0 ? 1 : 0;
  return self;
}

void destroy_fetches(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  if (fetches_of(self).descriptor >= 0) close(fetches_of(self).descriptor);
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

PyObject* begin_fetch(PyObject* self, PyObject*) {
  Fetches& fetches = fetches_of(self);
  int64_t wall = now();
  PyObject* queued = nullptr;
  if (wall >= fetches.due && fetches.has_queued != 0) {
    fetches.due = wall + fetches.sample_ns;
    queued = PyLong_FromLongLong(queued_of(fetches));
    if (queued == nullptr) return nullptr;
    wall = now();
  }
  return Py_BuildValue("LLN", static_cast<long long>(wall),
                       static_cast<long long>(now_of(CLOCK_THREAD_CPUTIME_ID)),
                       queued != nullptr ? queued : none());
}

PyObject* end_fetch(PyObject* self, PyObject* arguments) {
  Fetches& fetches = fetches_of(self);
  const int64_t cpu_now = now_of(CLOCK_THREAD_CPUTIME_ID);
  const int64_t wall_now = now();
  long long batches = 0;
  long long wall = 0;
  long long cpu = 0;
  if (!has_arguments(arguments, 2, 2) || !read_number(argument(arguments, 1), batches)) return nullptr;
  PyObject* start = argument(arguments, 0);
  PyObject* queued_before = PyTuple_GetItem(start, 2);
  if (queued_before == nullptr || !read_number(PyTuple_GetItem(start, 0), wall) ||
      !read_number(PyTuple_GetItem(start, 1), cpu)) {
    return nullptr;
  }
  wall = wall_now - wall;
  cpu = cpu_now - cpu;
  const long long off_cpu = std::max(0LL, wall - cpu);
  long long queued = 0;
  if (queued_before == Py_None) {
    // Not an integer product: it has more than 64 bits after a fetch of minutes.
    const double part =
        fetches.off_cpu > 0 ? static_cast<double>(fetches.queued) / static_cast<double>(fetches.off_cpu) : 0;
    queued = static_cast<long long>(static_cast<double>(off_cpu) * part);
  } else {
    if (!read_number(queued_before, queued)) return nullptr;
    queued = std::max<long long>(0, queued_of(fetches) - queued);
    fetches.queued += queued - fetches.queued / fetches.last_read;
    fetches.off_cpu += off_cpu - fetches.off_cpu / fetches.last_read;
  }
  fetches.work[0] += batches;
  fetches.work[1] += wall;
  fetches.work[2] += cpu;
  fetches.work[3] += std::min(queued, off_cpu);
  return PyLong_FromLongLong(wall_now);
}

PyObject* get_work(PyObject* self, void*) {
  const long long* work = fetches_of(self).work;
  return Py_BuildValue("LLLLi", work[0], work[1], work[2], work[3], 0);
}

PyObject* take_work(PyObject* self, PyObject*) {
  PyObject* work = get_work(self, nullptr);
  if (work != nullptr) std::fill_n(fetches_of(self).work, 4, 0);
  return work;
}

PyObject* get_has_queued(PyObject* self, void*) { return PyBool_FromLong(fetches_of(self).has_queued); }

PyMethodDef fetches_methods[] = {
    {"begin", begin_fetch, METH_NOARGS, nullptr},
    {"end", end_fetch, METH_VARARGS, nullptr},
    {"take", take_work, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyGetSetDef fetches_attributes[] = {
    {"work", get_work, nullptr, nullptr, nullptr},
    {"has_queued", get_has_queued, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyType_Slot fetches_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(create_fetches)},
    {Py_tp_dealloc, reinterpret_cast<void*>(destroy_fetches)},
    {Py_tp_methods, fetches_methods},
    {Py_tp_getset, fetches_attributes},
    {0, nullptr},
};
PyType_Spec fetches_spec = {"smdp_engine._clock.Fetches", sizeof(Fetches), 0,
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, fetches_slots};

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
    {"total", total, METH_O, nullptr},
    {"stop", stop, METH_NOARGS, nullptr},
    {"totals", totals, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyMemberDef clock_members[] = {
    {"batches", T_LONGLONG, offsetof(Clock, batches), 0, nullptr},
    {"checkpoints", T_LONGLONG, offsetof(Clock, checkpoints), 0, nullptr},
    {"passes", T_LONGLONG, offsetof(Clock, passes), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyGetSetDef clock_attributes[] = {
    {"owner", get_owner, nullptr, nullptr, nullptr},
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

int add_type(PyObject* module, const char* name, PyType_Spec& spec) {
  PyObject* type = PyType_FromSpec(&spec);
  if (type == nullptr) return -1;
  if (PyModule_AddObject(module, name, type) == 0) return 0;
  Py_DECREF(type);
  return -1;
}

int execute(PyObject* module) {
  return add_type(module, "Clock", clock_spec) == 0 ? add_type(module, "Fetches", fetches_spec) : -1;
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

PyMODINIT_FUNC PyInit__clock() { return PyModuleDef_Init(&module); }
