// Hooks that torch calls in every step: a function in Python takes about ten times as long there as it does
// in a loop. (The optimizer's hooks are called from one line of Python, which torch.compile can skip.)
#include "clock.h"

namespace smdp::timing {
namespace {

// hook_that_calls: a hook that calls the function of the pair with its argument, whatever it is called with.
PyObject* call_from_hook(PyObject* pair, PyObject*) {
  return PyObject_CallFunctionObjArgs(argument(pair, 0), argument(pair, 1), nullptr);
}

// What optimizer_hooks was called with, after the clock: the tuple that both hooks have as their `self`.
enum Given { kClock, kLeaveLoop, kEnterLoop, kWithClosure, kAllGiven };

// Calls the function if no loader has delivered a batch yet. False with an exception.
bool call_without_loader(PyObject* given, Given function) {
  return clock_of(argument(given, kClock))->workers >= 0 ||
         is_good(PyObject_CallFunctionObjArgs(argument(given, function), nullptr));
}

RunningStep* find(Clock& clock, const PyObject* optimizer) {
  RunningStep* end = clock.running_steps + clock.running;
  return std::find_if(clock.running_steps, end,
                      [optimizer](const RunningStep& step) { return step.optimizer == optimizer; });
}

// Takes a step out of the running ones, of which it is one.
void remove(Clock& clock, RunningStep* step) {
  std::copy(step + 1, clock.running_steps + clock.running, step);
  --clock.running;
}

// before(optimizer, args, kwargs) of an optimizer's step: None, or other arguments for it.
PyObject* before_step(PyObject* given, PyObject* arguments) {
  Clock& clock = *clock_of(argument(given, kClock));
  if (!has_arguments(arguments, 3, 3)) return nullptr;
  if (!clock.is_own_thread()) return none();
  const PyObject* optimizer = argument(arguments, 0);
  PyObject* args = argument(arguments, 1);
  PyObject* kwargs = argument(arguments, 2);
  const Py_ssize_t positional = PyTuple_Size(args);
  const Py_ssize_t named = positional < 0 ? -1 : PyDict_Size(kwargs);
  if (named < 0 || !call_without_loader(given, kLeaveLoop)) return nullptr;
  RunningStep* step = find(clock, optimizer);  // an exception has ended it
  if (step != clock.running_steps + clock.running) {
    remove(clock, step);
  } else if (clock.running == kRunningSteps) {
    remove(clock, clock.running_steps);
  }
  clock.running_steps[clock.running++] = {optimizer, clock.enter(kOptimizer)};
  if (positional <= 1 && named == 0) return none();
  return PyObject_CallFunctionObjArgs(argument(given, kWithClosure), args, kwargs, nullptr);
}

// after(optimizer, ...) of an optimizer's step.
PyObject* after_step(PyObject* given, PyObject* arguments) {
  Clock& clock = *clock_of(argument(given, kClock));
  if (!has_arguments(arguments, 1, 3)) return nullptr;
  PyObject* optimizer = argument(arguments, 0);
  RunningStep* step = find(clock, optimizer);
  if (step == clock.running_steps + clock.running) return none();
  clock.leave(step->mark, kOther);
  remove(clock, step);
  PyObject* identity = PyLong_FromVoidPtr(optimizer);  // as id()
  PyObject* counted = identity != nullptr ? count_step(argument(given, kClock), identity) : nullptr;
  Py_XDECREF(identity);
  if (counted == nullptr || !call_without_loader(given, kEnterLoop)) {
    Py_XDECREF(counted);
    return nullptr;
  }
  return counted;
}

PyMethodDef hook = {"hook", call_from_hook, METH_O, nullptr};
PyMethodDef before = {"before", before_step, METH_VARARGS, nullptr};
PyMethodDef after = {"after", after_step, METH_VARARGS, nullptr};

}  // namespace

PyObject* hook_that_calls(PyObject*, PyObject* arguments) {
  return has_arguments(arguments, 2, 2) ? PyCFunction_NewEx(&hook, arguments, nullptr) : nullptr;
}

// clock.optimizer_hooks(leave_loop, enter_loop, with_closure) -> (before, after), as those in
// smdp_engine/timing/torch_hooks.py.
PyObject* optimizer_hooks(PyObject* clock, PyObject* arguments) {
  if (!has_arguments(arguments, kAllGiven - 1, kAllGiven - 1)) return nullptr;
  return functions_of(
      before, after,
      PyTuple_Pack(kAllGiven, clock, argument(arguments, 0), argument(arguments, 1), argument(arguments, 2)));
}

}  // namespace smdp::timing
