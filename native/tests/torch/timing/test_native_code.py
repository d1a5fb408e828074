"""The counts of a run are the same with the native module and without it."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any, List

import measured_rank
import pytest

from smdp_engine.timing import clock, native

pytestmark = [pytest.mark.torch, measured_rank.needs_torch]

WITHOUT = "import sys; sys.modules['smdp_engine._clock'] = None\n"
TRAINS = """
import io, threading
from smdp_engine.timing import loader_work
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(model)
for workers in (0, 2):
    for batch, _ in DataLoader(Numbers(6, wait=0.002), batch_size=2, num_workers=workers):
        model(batch).sum().backward()
        optimizer.step()
    with torch.no_grad():
        for batch, _ in DataLoader(Numbers(2)): model(batch)
    torch.save({}, io.BytesIO())
fields = event()
assert abs(total(fields) - fields["window"]) < 1e-6, fields
assert fields["load_s"] >= fields["load_cpu_s"] > 0, fields
assert fields["load_s"] - fields["load_cpu_s"] >= 10 * 0.002 * 0.5, fields  # the items sleep
assert all(fields[name + "_s"] > 0 for name in ("input", "backward", "optimizer", "checkpoint", "evaluation")), fields
counted = {name: fields[name] for name in ("steps", "samples", "batches", "checkpoints", "load_workers")}
counted["fetches_here"] = own.loading.fetches_here().work[0]
counted["is_native"] = type(clock).__name__ == "NativeClock" and "Native" in type(own.loading.fetches_here()).__name__
dist.destroy_process_group()
print(json.dumps(counted))
"""


STEPS = """
import importlib
def optimizer(class_):
    return class_([torch.ones(2, requires_grad=True)], 0.1)
class Fails(torch.optim.SGD):
    def step(self, closure=None):
        raise ArithmeticError
class Steps(torch.optim.SGD):
    def step(self, closure=None):
        inner.step()
        phases.append(clock.phase)
def closure():
    phases.append(clock.phase)
    return 0.5
def fail(failing):
    try:
        failing.step()
    except ArithmeticError:
        phases.append(clock.phase)
phases = []
inner, outer = optimizer(torch.optim.SGD), optimizer(Steps)
outer.step()
phases.append(clock.phase)
assert inner.step(closure) == inner.step(closure=closure) == 0.5
failing = [optimizer(Fails) for _ in range(20)]
for each in failing:
    fail(each)
fail(failing[0])
outer.step()
next(iter(DataLoader(Numbers(1))))
phases.append(clock.phase)
steps = clock.read().steps
_, hook = importlib.import_module("torch.optim.optimizer")._global_optimizer_pre_hooks.popitem()
print(json.dumps({
    "phases": phases,
    "steps": [steps.pop(id(inner)), steps.pop(id(outer)), list(steps)],
    "is_native": any(type(cell.cell_contents).__name__ == "builtin_function_or_method" for cell in hook.__closure__),
}))
"""


def counted(script: str, preamble: str) -> Any:
    out: Any = json.loads(measured_rank.run(script, preamble=preamble + measured_rank.PREAMBLE))
    return out


def test_run_without_the_native_module_counts_the_same() -> None:
    without = counted(TRAINS, WITHOUT)
    assert not without.pop("is_native")
    assert without == {
        "steps": 6,
        "samples": 12,
        "batches": 10,
        "checkpoints": 2,
        "load_workers": 2,
        "fetches_here": 7,
    }
    if native.MODULE is not None:
        with_it = counted(TRAINS, "")
        assert with_it.pop("is_native")
        assert with_it == without


def test_steps_within_steps_with_closures_and_failing_ones() -> None:
    without = counted(STEPS, WITHOUT)
    assert not without.pop("is_native")
    optimizer, other, forward = clock.OPTIMIZER, clock.OTHER, clock.FORWARD
    assert without == {
        "phases": [optimizer, other, forward, forward, *[optimizer] * 22, forward],
        "steps": [4, 2, []],
    }
    if native.MODULE is not None:
        with_it = counted(STEPS, "")
        assert with_it.pop("is_native")
        assert with_it == without


def test_native_hooks_refuse_other_arguments() -> None:
    if native.MODULE is None:
        pytest.skip("the engine was built without Python's headers")
    own = native.MODULE.Clock()
    with pytest.raises(TypeError):
        own.optimizer_hooks(None)
    before, after = own.optimizer_hooks(list, list, list)
    for arguments in ((), (1,), (1, 2, 3, 4)):
        with pytest.raises(TypeError):
            before(*arguments)
    for arguments in ((1, [], {}), (1, (), [])):
        with pytest.raises(SystemError):
            before(*arguments)
    assert own.phase == clock.OTHER
    with pytest.raises(TypeError):
        after()
    before, after = own.optimizer_hooks(lambda: 1 / 0, list, list)
    with pytest.raises(ZeroDivisionError):
        before(1, (), {})
    assert own.phase == clock.OTHER and after(1) is None and own.totals()[4] == {}


def test_native_fetches_refuse_another_start() -> None:
    if native.MODULE is None:
        pytest.skip("the engine was built without Python's headers")
    fetches = native.MODULE.Fetches(-1, 100, 8)
    assert fetches.begin()[2] is None and not fetches.has_queued
    for start in ((1, 2), "text", None, (1, 2, "x"), ("a", 2, None)):
        with pytest.raises((TypeError, IndexError, SystemError)):
            fetches.end(start, 1)
    fetches.end(fetches.begin(), 1)
    assert fetches.work[0] == 1 and fetches.take()[0] == 1 and fetches.work == (0, 0, 0, 0, 0)


def test_native_fetches_around_a_function() -> None:
    if native.MODULE is None:
        pytest.skip("the engine was built without Python's headers")

    class Counted(native.MODULE.Counting):  # type: ignore[misc, name-defined]
        def begin(self) -> None:
            calls.append("begin")
            self.is_counting, self.until = True, 2**62

        def end(self) -> None:
            calls.append("end")
            self.is_counting = False

    def fetch(*arguments: Any) -> Any:
        calls.append(arguments)
        if arguments == (0,):
            bytes_read.until = 0
            raise ArithmeticError("no batch")
        return arguments

    calls: List[Any] = []
    bytes_read = Counted()
    fetches = native.MODULE.Fetches(-1, 100, 8)
    for arguments in ((), (bytes_read, fetch), (object(), fetch, fetch)):
        with pytest.raises(TypeError):
            fetches.around(*arguments)
    measured = fetches.around(bytes_read, fetch, lambda *arguments: ("otherwise", *arguments))
    assert measured(1, 2) == (1, 2) and measured(3) == (3,)
    with pytest.raises(ArithmeticError, match="no batch"):
        measured(0)
    assert calls == ["begin", (1, 2), (3,), (0,), "end"] and fetches.work[0] == 2
    bytes_read.until = 0
    bytes_read.end = lambda: 1 / 0
    for number in (0, 1):  # the later exception is the one that is raised, as in `finally`
        with pytest.raises(ZeroDivisionError):
            measured(number)
    with ThreadPoolExecutor() as threads:
        assert threads.submit(measured, 5).result() == ("otherwise", 5)
    fetches.stop()
    assert measured(6) == ("otherwise", 6) and fetches.work[0] == 3


BATCHES = """
import json
class Iterator:
    _num_workers = 0
    def __init__(self, *batches): self.batches = list(batches)
    def __next__(self):
        batch = self.batches.pop(0)
        if isinstance(batch, BaseException): raise batch
        return batch
class Strange(dict):
    def values(self): raise LookupError("no values")
from smdp_engine.timing import torch_loaders
loaders = torch_loaders.Loaders(clock, own.loading)
read = loaders.measured_next(Iterator.__next__, torch_hooks.not_compiled)
four, scalar, empty = torch.ones(4, 2), torch.tensor(1.0), torch.ones(0, 2)
batches = [four, [four, scalar], (four,), {"x": four}, [scalar, four], [empty, four], "text", scalar, [], ((), four)]
iterator = Iterator(four, *batches, Strange(), four, StopIteration(), four)
counts, errors = [], []
for _ in range(len(iterator.batches)):
    before = clock.read().samples
    try:
        read(iterator)
    except (LookupError, StopIteration) as error:
        errors.append([type(error).__name__, str(error)])
    assert clock.is_at_base
    loss = torch.ones(2, requires_grad=True).sum()
    loss.backward()
    counts.append(clock.read().samples - before)
Iterator.last = Iterator(four, four, four)
read(Iterator.last)
evaluations = Iterator(*[four] * 6)
phases = []
for _ in range(6):
    read(evaluations)
    phases.append(clock.phase)
with torch.no_grad():
    read(Iterator(four))
phases.append(clock.phase)
class Interrupts(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, arguments=(), named=None):
        if function is torch.Tensor.size: raise KeyboardInterrupt
        return function(*arguments, **(named or {}))
for _ in range(2):
    torch.ones(2, requires_grad=True).sum().backward()
    try:
        with Interrupts(): read(Iterator.last)
    except KeyboardInterrupt:
        errors.append(["KeyboardInterrupt", phases[-1] != clock.phase])
    assert clock.is_at_base
print(json.dumps([counts, errors, phases, clock.read()[1:4], clock.passes]))
"""


def test_batches_of_all_kinds_and_failing_ones() -> None:
    without = counted(BATCHES, WITHOUT)
    counts, errors, phases, (batches, samples, checkpoints), passes = without
    assert counts == [4, 4, 4, 4, 4, 4, 4, 0, 0, 0, 4, 0, 4, 0, 4]
    assert errors == [["LookupError", "no values"], ["StopIteration", ""], *[["KeyboardInterrupt", True]] * 2]
    assert phases == [clock.FORWARD] * 2 + [clock.EVALUATION] * 5
    assert (batches, samples, checkpoints, passes) == (13 + 1 + 7, sum(counts) + 4, 0, 17)
    if native.MODULE is not None:
        assert counted(BATCHES, "") == without


PASSES = """
import json
from collections import OrderedDict
dist.init_process_group("gloo")
x = torch.ones(2, requires_grad=True)
phases, hooked = [], []
def note(_):
    phases.append(clock.phase)
def passes(tensors, *arguments, **named):
    torch.autograd.backward(tensors, *arguments, **named)
    each = tensors if isinstance(tensors, (list, tuple)) else [tensors]
    hooked.append([len(one._backward_hooks or ()) for one in each])
loss = (x * 2).sum()
handle = loss.register_hook(note)
passes(loss, retain_graph=True)
handle.remove()
passes(loss, retain_graph=True)
later = loss.register_hook(note)
passes([loss, (x * 3).sum()])
passes(((x * 3).sum(),))
passes(x, torch.ones(2))
for wrong, error in ((torch.ones(1), RuntimeError), ("text", Exception), ([], Exception), (None, Exception)):
    try:
        torch.autograd.backward(wrong)
    except error:
        pass
    phases.append(clock.phase)
class Inner(torch.autograd.Function):
    @staticmethod
    def forward(context, y):
        return y * 2
    @staticmethod
    def backward(context, gradient):
        part = torch.ones(1, requires_grad=True)
        with torch.enable_grad():
            torch.autograd.backward((part * 2).sum())
        phases.append(clock.phase)
        return gradient
passes(Inner.apply(x).sum())
dist.destroy_process_group()
passes((x * 2).sum())
fields = event()
assert fields["backward_s"] > 0, fields
print(json.dumps([phases, hooked, clock.passes, clock.phase, x.grad.tolist()]))
"""


def test_passes_of_all_kinds_and_failing_ones() -> None:
    without = counted(PASSES, WITHOUT)
    phases, hooked, passes, phase, gradient = without
    backward, other = clock.BACKWARD, clock.OTHER
    assert phases == [backward, backward, *[other] * 4, backward]
    assert hooked == [[1], [0], [1, 0], [0], [0], [0], [0]]
    assert (passes, phase) == (11, other)
    assert gradient == [2 + 2 + 2 + 3 + 3 + 1 + 1 + 2] * 2
    if native.MODULE is not None:
        assert counted(PASSES, "") == without


def test_native_clock_refuses_other_objects() -> None:
    if native.MODULE is None:
        pytest.skip("the engine was built without Python's headers")
    own = native.MODULE.Clock()
    assert (own.last, own.workers, own.left) == (None, -1, 0)
    source = native.MODULE.Source(2)
    own.last = source
    assert own.last is source and source.workers == 2
    for wrong in (1, "text", object(), own):
        with pytest.raises(TypeError):
            own.last = wrong
    own.last = None
    for arguments in ((), (1, 2), ("text",)):
        with pytest.raises(TypeError):
            native.MODULE.Source(*arguments)
    with pytest.raises(TypeError):
        own.around_next(len)
    with pytest.raises(TypeError):
        own.passes_measured(*[None] * 9)
    begin, end = own.passes_measured(list, list, None, bool, [], int, dict, None, "key")
    for wrong in (None, (), (1,), ("text", None)):
        with pytest.raises((TypeError, IndexError, SystemError)):
            end(wrong)
    begun = begin(5)
    assert begun == (1, None) and own.phase == clock.BACKWARD and own.passes == 0
    assert begin(5) is None
    end(begun)
    assert own.phase == clock.OTHER
