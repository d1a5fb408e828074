"""Loops of libraries: batches that are fetched ahead, evaluation with gradients on, closures, threads, no loader."""

import measured_rank
import pytest

pytestmark = [pytest.mark.torch, measured_rank.needs_torch]

LOOP = """
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
def train(batch):
    model(batch[0]).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
def ahead(loader):  # as the loaders of Accelerate and timm
    iterator = iter(loader)
    try: batch = next(iterator)
    except StopIteration: return
    for following in iterator:
        yield batch
        batch = following
    yield batch
def accumulated(batches, count):  # as the Trainer: it fetches all batches of a step before the first pass
    group = []
    for batch in batches:
        group.append(batch)
        if len(group) == count:
            yield group
            group = []
    if group: yield group
def counts(fields): return fields["steps"], fields["batches"], fields["samples"]
"""


def test_batches_that_are_fetched_ahead_count_once() -> None:
    measured_rank.run(
        LOOP
        + """
for count in (10, 5, 2, 1):
    for epoch in range(2):
        for batch in ahead(DataLoader(Numbers(count), batch_size=2)): train(batch)
    fields = event()
    assert counts(fields) == (2 * -(-count // 2), 2 * -(-count // 2), 2 * count), (count, fields)
"""
    )


@pytest.mark.parametrize("fetch", ["iter", "ahead"])
def test_accumulated_batches_count_once(fetch: str) -> None:
    measured_rank.run(
        LOOP
        + f"""
dist.init_process_group("gloo")
wrapped = torch.nn.parallel.DistributedDataParallel(model)
for count in (1, 2, 3, 4, 8):
    for epoch in range(2):
        for group in accumulated({fetch}(DataLoader(Numbers(24), batch_size=2)), count):
            for batch, _ in group:
                wrapped(batch).sum().backward()
            optimizer.step()
    fields = event()
    assert counts(fields) == (2 * -(-12 // count), 24, 48), (count, fields)
dist.destroy_process_group()
"""
    )


def test_one_pass_of_many_batches_trains_on_all_of_them() -> None:
    measured_rank.run(
        LOOP
        + """
iterator = iter(DataLoader(Numbers(24), batch_size=2))
for step in range(2):
    sum(model(next(iterator)[0]).sum() for _ in range(6)).backward()
    optimizer.step()
assert counts(event()) == (2, 12, 24)
"""
    )


@pytest.mark.parametrize(("count", "summed"), [(1, False), (4, False), (4, True)])
def test_batches_that_a_resumed_script_skips_have_no_samples(count: int, summed: bool) -> None:
    measured_rank.run(
        LOOP
        + f"""
groups = iter(accumulated(DataLoader(Numbers(160), batch_size=2), {count}))
for _ in range(10): next(groups)
for group in groups:
    losses = [model(batch).sum() for batch, _ in group]
    if {summed}: losses = [sum(losses)]
    for loss in losses: loss.backward()
    optimizer.step()
steps = 80 // {count} - 10
assert counts(event()) == (steps, 80, 2 * {count} * steps)
"""
    )


def test_two_loaders_of_one_step() -> None:
    measured_rank.run(
        LOOP
        + """
pairs = zip(DataLoader(Numbers(10), batch_size=2), DataLoader(Numbers(15), batch_size=3))
for one, other in pairs:
    (model(one[0]).sum() + model(other[0]).sum()).backward()
    optimizer.step()
fields = event()
assert counts(fields) == (5, 10, 25), fields
assert fields["evaluation_s"] == 0, fields
"""
    )


EVALUATION = """
dist.init_process_group("gloo")
wrapped = torch.nn.parallel.DistributedDataParallel(model)
def evaluate(called, batches, loader=None):
    for batch in fetch(loader or DataLoader(Numbers(2 * batches), batch_size=2)):
        with torch.no_grad(): called(batch[0])
        time.sleep(0.01)
data = DataLoader(Numbers(8), batch_size=2)
for fetch in (iter, ahead):
    for called, batches in ((model, 6), (wrapped, 6), (wrapped, 1), (wrapped, 2), (model, 1)):
        event()
        for batch in fetch(data): train(batch)
        evaluate(called, batches)
        for batch in fetch(data): train(batch)
        fields = event()
        assert counts(fields) == (8, 8 + batches, 16), (called, batches, fields)
        # Of an iterator that is one ahead, the last batch is used after the end of the data.
        least = batches if fetch is iter else batches - 1
        assert fields["evaluation_s"] >= 0.01 * least, (called, batches, fields)
"""


def test_evaluation_with_gradients_off_only_for_the_model() -> None:
    measured_rank.run(LOOP + EVALUATION + "dist.destroy_process_group()")


def test_evaluation_after_each_step_of_a_loop_that_fetches_ahead() -> None:
    measured_rank.run(
        LOOP
        + """
for batch in ahead(DataLoader(Numbers(10), batch_size=2)):
    train(batch)
    for other in ahead(DataLoader(Numbers(3), batch_size=3)):  # a single batch
        with torch.no_grad(): model(other[0])
assert counts(event()) == (5, 10, 10)
"""
    )


def test_evaluation_within_a_step_and_with_an_iterator_that_is_left() -> None:
    measured_rank.run(
        LOOP
        + """
import itertools
held = DataLoader(Numbers(100), batch_size=2, num_workers=1, persistent_workers=True)
for batch in DataLoader(Numbers(8), batch_size=2):
    loss = model(batch[0]).sum()
    with torch.no_grad():  # a part of the data
        for other in itertools.islice(held, 4): model(other[0]); time.sleep(0.01)
    for other in held:
        with torch.no_grad(): model(other[0])
    loss.backward()
    optimizer.step()
fields = event()
assert counts(fields) == (4, 4 + 4 * 54, 8), fields
assert fields["evaluation_s"] >= 0.16, fields
"""
    )


def test_closure_of_an_optimizers_step_is_no_optimizer() -> None:
    """Lightning's training step is a closure."""
    measured_rank.run(
        LOOP
        + """
seen = []
def closure():
    seen.append(phase())
    loss = model(torch.ones(2, 3)).sum()
    optimizer.zero_grad()
    time.sleep(0.01)
    loss.backward()
    seen.append(phase())
    return loss
for call in (lambda: optimizer.step(closure), lambda: optimizer.step(closure=closure)):
    call(), call()
    assert seen == ["forward", "optimizer"] * 2 and phase() == "other", seen
    seen.clear()
fields = event()
assert fields["steps"] == 4 and fields["forward_s"] >= 0.04, fields
class Failing(Exception): pass
def fails(): raise Failing
try: optimizer.step(fails)
except Failing: pass
else: assert False
next(iter(DataLoader(Numbers(2))))
assert phase() == "forward"
"""
    )


def test_workers_are_those_of_the_loader_that_trains() -> None:
    """Also when loaders take turns, and after an evaluation and batches of a thread between them."""
    measured_rank.run(
        LOOP
        + """
import itertools, threading
alone, helped = DataLoader(Numbers(8), batch_size=2), DataLoader(Numbers(8), batch_size=2, num_workers=1)
for loader in (alone, helped, alone):
    for batch in loader: train(batch)
    with torch.no_grad():
        for batch in helped: model(batch[0])
    assert event()["load_workers"] == loader.num_workers
for batch in itertools.chain.from_iterable(zip(helped, alone)): train(batch)
assert event()["load_workers"] == 0
taken = []
thread = threading.Thread(target=lambda: taken.extend(helped))
thread.start(); thread.join()
for batch in alone: train(batch)
fields = event()
assert fields["load_workers"] == 0 and fields["steps"] == 4, fields
"""
    )


def test_fetches_of_nested_loaders_and_of_forked_processes() -> None:
    measured_rank.run(
        LOOP
        + """
import os
class Nested(Numbers):
    def __getitem__(self, index):
        (batch,) = DataLoader(Numbers(1), batch_size=1)
        return super().__getitem__(index)
for batch in DataLoader(Nested(4), batch_size=2): train(batch)
fields = event()
assert (fields["batches"], fields["load_batches"]) == (2, 2 + 4), fields
child = os.fork()
if child == 0:
    os._exit(7 if len(list(DataLoader(Nested(4), batch_size=2))) == 2 else 1)
assert os.waitpid(child, 0)[1] == 7 << 8
for batch in DataLoader(Nested(4), batch_size=2, num_workers=1): train(batch)
fields = event()
assert (fields["batches"], fields["load_batches"]) == (2, 2 + 4), fields
"""
    )


def test_batches_that_a_thread_of_the_script_takes() -> None:
    """The training thread waits for them in a queue, which is input."""
    measured_rank.run(
        LOOP
        + """
import queue, threading
ready = queue.Queue(2)
def load():
    for batch in DataLoader(Numbers(12, wait=0.01), batch_size=2): ready.put(batch)
    ready.put(None)
threading.Thread(target=load).start()
first = ready.get()
train(first)
for batch in iter(ready.get, None):
    assert phase() == "other"
    train(batch)
fields = event()
assert counts(fields) == (6, 6, 12), fields
assert fields["input_s"] >= 0.06, fields
try: queue.Queue().get(timeout=0.001)
except queue.Empty: assert phase() == "other"
else: assert False
"""
    )


def test_wait_for_a_read_of_the_training_thread_is_input() -> None:
    """A script without a loader. A pipe stands for the storage: its other end writes when the thread waits."""
    measured_rank.run(
        LOOP
        + """
import threading
source, sink = os.pipe()
def write():
    for _ in range(6):
        asked.wait(); asked.clear()
        time.sleep(0.05)
        os.write(sink, bytes(8192))
asked = threading.Event()
threading.Thread(target=write).start()
def read():
    asked.set()
    return torch.frombuffer(bytearray(os.read(source, 8192)), dtype=torch.float32)[:6].reshape(2, 3)
def slept(): time.sleep(0.05)
train([read()])
event()
for _ in range(2): train([read()])
for _ in range(2):  # between the forward and the backward pass, as an overlap with a GPU
    loss = model(torch.ones(2, 3)).sum()
    batch = read()
    loss.backward()
    optimizer.step()
fields = event()
assert fields["input_s"] >= 0.15, fields  # of 0.2
assert fields["load_batches"] == 4 and fields["load_bytes"] >= 4 * 8192, fields
assert fields["load_s"] >= 0.15 and "load_workers" not in fields, fields
slept(); train([torch.ones(2, 3)])
slept(); train([torch.ones(2, 3)])
fields = event()
assert fields["input_s"] == 0 and fields["load_batches"] == 0, fields  # it has read nothing
next(iter(DataLoader(Numbers(2))))
event()
train([read()])
assert event()["load_batches"] == 0  # a script with a loader
"""
    )


def test_loader_that_exchanges_its_batches_waits_for_input() -> None:
    measured_rank.run(
        LOOP
        + """
dist.init_process_group("gloo")
class Sent(Numbers):
    def __getitem__(self, index):
        value = torch.full((3,), float(index))
        dist.broadcast(value, 0)
        assert phase() == "input"
        return value, index
for batch in DataLoader(Sent(4), batch_size=2): train(batch)
fields = event()
assert counts(fields) == (2, 2, 4), fields
dist.broadcast(torch.ones(3), 0)
assert event()["exchange_s"] > 0
dist.destroy_process_group()
"""
    )
