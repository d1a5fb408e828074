// The fetches of a thread, as Fetches in smdp_engine/timing/loader_work.py, and the system's counters of a
// thread.
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "clock.h"

namespace smdp::timing {
namespace {

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

// The fetches of one thread, as Fetches in smdp_engine/timing/loader_work.py.
struct Fetches {
  PyObject_HEAD int descriptor;  // of the thread's `schedstat`, -1 without it
  char has_queued;
  int64_t sample_ns;
  int64_t last_read;
  int64_t due;
  int64_t queued;   // of the last fetches that were read
  int64_t off_cpu;  // of the last fetches that were read
  long long work[4];
  unsigned long thread;  // that has created it; 0 in a forked child
};

// The beginning of a fetch.
struct Start {
  int64_t wall;
  int64_t cpu;
  int64_t queued;  // kNotRead: the counter was not read for this fetch
};
constexpr int64_t kNotRead = -2;

// The base class of BytesRead in smdp_engine/timing/loader_work.py.
struct Counting {
  PyObject_HEAD char is_counting;
  long long until;
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
  fetches.thread = PyThread_get_thread_ident();
  return self;
}

void destroy_fetches(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  if (fetches_of(self).descriptor >= 0) close(fetches_of(self).descriptor);
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

Start begin(Fetches& fetches) {
  Start start{now(), 0, kNotRead};
  if (start.wall >= fetches.due && fetches.has_queued != 0) {
    fetches.due = start.wall + fetches.sample_ns;
    start.queued = queued_of(fetches);
    start.wall = now();
  }
  start.cpu = now_of(CLOCK_THREAD_CPUTIME_ID);
  return start;
}

// Returns the time.
int64_t end(Fetches& fetches, const Start& start, long long batches) {
  const int64_t cpu = now_of(CLOCK_THREAD_CPUTIME_ID) - start.cpu;
  const int64_t time = now();
  const int64_t wall = time - start.wall;
  const int64_t off_cpu = std::max<int64_t>(0, wall - cpu);
  int64_t queued = 0;
  if (start.queued == kNotRead) {
    // Not an integer product: it has more than 64 bits after a fetch of minutes.
    const double part =
        fetches.off_cpu > 0 ? static_cast<double>(fetches.queued) / static_cast<double>(fetches.off_cpu) : 0;
    queued = static_cast<int64_t>(static_cast<double>(off_cpu) * part);
  } else {
    queued = std::max<int64_t>(0, queued_of(fetches) - start.queued);
    fetches.queued += queued - fetches.queued / fetches.last_read;
    fetches.off_cpu += off_cpu - fetches.off_cpu / fetches.last_read;
  }
  fetches.work[0] += batches;
  fetches.work[1] += wall;
  fetches.work[2] += cpu;
  fetches.work[3] += std::min(queued, off_cpu);
  return time;
}

PyObject* begin_fetch(PyObject* self, PyObject*) {
  const Start start = begin(fetches_of(self));
  PyObject* queued = start.queued == kNotRead ? none() : PyLong_FromLongLong(start.queued);
  return Py_BuildValue("LLN", static_cast<long long>(start.wall), static_cast<long long>(start.cpu), queued);
}

PyObject* end_fetch(PyObject* self, PyObject* arguments) {
  long long batches = 0;
  std::array<long long, 3> fields{0, 0, kNotRead};
  if (!has_arguments(arguments, 2, 2) || !read_number(argument(arguments, 1), batches)) return nullptr;
  for (size_t index = 0; index < fields.size(); ++index) {
    PyObject* field = PyTuple_GetItem(argument(arguments, 0), static_cast<Py_ssize_t>(index));
    if (field == nullptr || (!(index == 2 && field == Py_None) && !read_number(field, fields[index]))) {
      return nullptr;
    }
  }
  return PyLong_FromLongLong(end(fetches_of(self), {fields[0], fields[1], fields[2]}, batches));
}

PyObject* stop_fetches(PyObject* self, PyObject*) {
  fetches_of(self).thread = 0;
  return none();
}

// What Fetches.around was called with: the tuple that its function has as `self`.
enum Given { kFetches, kBytesRead, kFetch, kOtherwise, kAllGiven };

bool call_method(PyObject* object, const char* name) {
  return is_good(PyObject_CallMethod(object, name, nullptr));
}

PyObject* measured_fetch(PyObject* given, PyObject* arguments) {
  Fetches& fetches = fetches_of(argument(given, kFetches));
  const auto& bytes_read = *reinterpret_cast<Counting*>(argument(given, kBytesRead));
  if (fetches.thread != PyThread_get_thread_ident()) {
    return PyObject_CallObject(argument(given, kOtherwise), arguments);
  }
  if (bytes_read.is_counting == 0 && !call_method(argument(given, kBytesRead), "begin")) return nullptr;
  const Start start = begin(fetches);
  PyObject* batch = PyObject_CallObject(argument(given, kFetch), arguments);
  if (end(fetches, start, batch != nullptr ? 1 : 0) < bytes_read.until) return batch;
  bool is_ended = false;
  {
    const ErrorKept kept;
    is_ended = call_method(argument(given, kBytesRead), "end");
  }
  if (is_ended) return batch;
  Py_XDECREF(batch);
  return nullptr;
}
PyMethodDef measured = {"measured_fetch", measured_fetch, METH_VARARGS, nullptr};

// fetches.around(bytes_read, fetch, otherwise): `fetch`, measured. A call in another thread, or after stop(),
// is one of `otherwise`.
PyObject* around(PyObject* self, PyObject* arguments) {
  if (!has_arguments(arguments, kAllGiven - 1, kAllGiven - 1)) return nullptr;
  if (PyObject_IsInstance(argument(arguments, 0), reinterpret_cast<PyObject*>(counting_type)) != 1) {
    PyErr_SetString(PyExc_TypeError, "bytes_read is not of the class Counting");
    return nullptr;
  }
  return function_of(measured, PyTuple_Pack(kAllGiven, self, argument(arguments, 0), argument(arguments, 1),
                                            argument(arguments, 2)));
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
    {"begin", begin_fetch, METH_NOARGS, nullptr}, {"end", end_fetch, METH_VARARGS, nullptr},
    {"take", take_work, METH_NOARGS, nullptr},    {"around", around, METH_VARARGS, nullptr},
    {"stop", stop_fetches, METH_NOARGS, nullptr}, {nullptr, nullptr, 0, nullptr},
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

PyMemberDef counting_members[] = {
    {"is_counting", T_BOOL, offsetof(Counting, is_counting), 0, nullptr},
    {"until", T_LONGLONG, offsetof(Counting, until), 0, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyType_Slot counting_slots[] = {
    {Py_tp_members, counting_members},
    {0, nullptr},
};

}  // namespace

PyTypeObject* counting_type = nullptr;

PyType_Spec fetches_spec = {"smdp_engine._clock.Fetches", sizeof(Fetches), 0,
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, fetches_slots};

PyType_Spec counting_spec = {"smdp_engine._clock.Counting", sizeof(Counting), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, counting_slots};

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

}  // namespace smdp::timing
