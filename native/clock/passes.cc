// The measurement of a backward pass, as Passes in smdp_engine/timing/torch_backward.py.
#include "clock.h"

namespace smdp::timing {
namespace {

// What Clock.passes_measured was called with, after the clock, and the names of attributes.
enum Given {
  kClock,
  kTrain,
  kEnterLoop,
  kGroups,
  kHasGroup,
  kCompiler,
  kTensor,
  kOrderedDict,
  kHook,
  kKey,
  kLastGiven = kKey,
  kWorld,
  kDefaultGroup,
  kIsCompiled,
  kFunction,
  kHooks,
  kRegister,
  kAllGiven
};

// As Loaders.train, which is called where more is to do. False with an exception.
bool train(PyObject* given, Clock& clock) {
  const auto* last = reinterpret_cast<Source*>(clock.last);
  const bool is_first = last != nullptr && last->passes == clock.passes;
  if (clock.workers < 0 || (is_first && (last->evaluates != 0 || last->first != 0))) {
    return is_good(PyObject_CallFunctionObjArgs(argument(given, kTrain), nullptr));
  }
  if (is_first) clock.workers = static_cast<int>(last->workers);
  clock.left = 0;
  clock.use_samples();
  return true;
}

// The attribute; `otherwise` if there is none. A new reference, null with an exception.
PyObject* attribute(PyObject* object, PyObject* name, PyObject* otherwise) {
  PyObject* value = PyObject_GetAttr(object, name);
  if (value != nullptr || PyErr_ExceptionMatches(PyExc_AttributeError) == 0) return value;
  PyErr_Clear();
  Py_INCREF(otherwise);
  return otherwise;
}

// 1: true; 0: false; -1 with an exception. It takes the object, which may be null.
int truth(PyObject* object) {
  const int is_true = object != nullptr ? PyObject_IsTrue(object) : -1;
  Py_XDECREF(object);
  return is_true;
}

// Whether the process has a default group, and so may exchange gradients.
int has_group(PyObject* given) {
  PyObject* groups = argument(given, kGroups);
  if (groups == Py_None) return truth(PyObject_CallFunctionObjArgs(argument(given, kHasGroup), nullptr));
  PyObject* world = attribute(groups, argument(given, kWorld), Py_None);
  PyObject* group = world != nullptr ? attribute(world, argument(given, kDefaultGroup), Py_None) : nullptr;
  Py_XDECREF(world);
  if (group == nullptr) return -1;
  Py_DECREF(group);
  return group != Py_None ? 1 : 0;
}

// Whether torch.compile traces the pass.
int is_compiled(PyObject* given) {
  PyObject* compiler = argument(given, kCompiler);
  if (PyList_Size(compiler) == 0) return 0;
  return truth(attribute(PyList_GetItem(compiler, 0), argument(given, kIsCompiled), Py_False));
}

// Adds the hook to the tensor of this function, as Tensor.register_hook does. Returns the dictionary with it.
PyObject* add_hook(PyObject* given, PyObject* tensor, PyObject* function) {
  PyObject* hooks = PyObject_GetAttr(tensor, argument(given, kHooks));
  if (hooks == Py_None) {
    Py_DECREF(hooks);
    hooks = PyObject_CallObject(argument(given, kOrderedDict), nullptr);
    if (hooks != nullptr &&
        (PyObject_SetAttr(tensor, argument(given, kHooks), hooks) != 0 ||
         !is_good(PyObject_CallMethodObjArgs(function, argument(given, kRegister), tensor, nullptr)))) {
      Py_DECREF(hooks);
      return nullptr;
    }
  }
  if (hooks != nullptr && PyObject_SetItem(hooks, argument(given, kKey), argument(given, kHook)) != 0) {
    Py_DECREF(hooks);
    return nullptr;
  }
  return hooks;
}

// The hook runs at the beginning of the pass. Returns the dictionary with it, None without one.
PyObject* hook_beginning(PyObject* given, PyObject* tensors) {
  const int may_exchange = has_group(given);
  if (may_exchange <= 0) return may_exchange < 0 ? nullptr : none();
  PyObject* first = first_of(tensors);
  if (reinterpret_cast<PyObject*>(Py_TYPE(first)) != argument(given, kTensor)) return none();
  const int is_traced = is_compiled(given);
  if (is_traced != 0) return is_traced < 0 ? nullptr : none();
  Py_INCREF(first);
  PyObject* function = PyObject_GetAttr(first, argument(given, kFunction));
  PyObject* hooks = nullptr;
  if (function != nullptr) hooks = function != Py_None ? add_hook(given, first, function) : none();
  Py_XDECREF(function);
  Py_DECREF(first);
  return hooks;
}

void leave(Clock& clock, int mark) {
  clock.leave(mark, kOther);
  if (mark > 1) clock.turn(kForward, kOptimizer);  // in the closure of an optimizer's step
}

// begin(tensors): what `end` takes, or None for a pass that is not measured.
PyObject* begin_pass(PyObject* given, PyObject* tensors) {
  Clock& clock = *clock_of(argument(given, kClock));
  if (!clock.is_own_thread()) clock.adopt();
  if (!clock.is_own_thread() || clock.find(kBackward) != 0 || clock.find(kExchange) != 0) return none();
  if (!train(given, clock)) return nullptr;
  const int mark = clock.enter(kBackward);
  PyObject* hooks = hook_beginning(given, tensors);
  if (hooks == nullptr) {
    leave(clock, mark);
    return nullptr;
  }
  return Py_BuildValue("iN", mark, hooks);
}

PyObject* end_pass(PyObject* given, PyObject* begun) {
  Clock& clock = *clock_of(argument(given, kClock));
  PyObject* mark = PyTuple_GetItem(begun, 0);
  PyObject* hooks = mark != nullptr ? PyTuple_GetItem(begun, 1) : nullptr;
  const long number = hooks != nullptr ? PyLong_AsLong(mark) : -1;
  if (hooks == nullptr || is_error(number)) return nullptr;
  leave(clock, static_cast<int>(number));
  if (hooks != Py_None && PyObject_DelItem(hooks, argument(given, kKey)) != 0)
    PyErr_Clear();  // a hook of the script
  if (clock.workers >= 0) return none();
  return PyObject_CallFunctionObjArgs(argument(given, kEnterLoop), nullptr);
}

PyMethodDef begin = {"begin", begin_pass, METH_O, nullptr};
PyMethodDef end = {"end", end_pass, METH_O, nullptr};

}  // namespace

// clock.passes_measured(train, enter_loop, groups, has_group, compiler, tensor, ordered_dict, hook, key) ->
// (begin, end)
PyObject* passes(PyObject* clock, PyObject* arguments) {
  if (!has_arguments(arguments, kLastGiven, kLastGiven)) return nullptr;
  if (!PyList_Check(argument(arguments, kCompiler - 1))) {
    PyErr_SetString(PyExc_TypeError, "the compiler is not in a list");
    return nullptr;
  }
  PyObject* given = PyTuple_New(kAllGiven);
  if (given == nullptr) return nullptr;
  bool is_whole = true;
  const auto set = [given, &is_whole](Py_ssize_t place, PyObject* value) {
    is_whole = value != nullptr && PyTuple_SetItem(given, place, value) == 0 && is_whole;
  };
  Py_INCREF(clock);
  set(kClock, clock);
  for (Py_ssize_t place = kTrain; place <= kLastGiven; ++place) {
    PyObject* value = argument(arguments, place - 1);
    Py_INCREF(value);
    set(place, value);
  }
  set(kWorld, PyUnicode_InternFromString("_world"));
  set(kDefaultGroup, PyUnicode_InternFromString("_default_pg"));
  set(kIsCompiled, PyUnicode_InternFromString("compiled_autograd_enabled"));
  set(kFunction, PyUnicode_InternFromString("grad_fn"));
  set(kHooks, PyUnicode_InternFromString("_backward_hooks"));
  set(kRegister, PyUnicode_InternFromString("_register_hook_dict"));
  if (!is_whole) {
    Py_DECREF(given);
    return nullptr;
  }
  return functions_of(begin, end, given);
}

}  // namespace smdp::timing
