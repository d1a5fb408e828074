"""Training loops as people write them: which phase is each moment, and what is counted."""

import measured_rank
import pytest

pytestmark = [pytest.mark.torch, measured_rank.needs_torch]

MODEL = """
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
def train(batch):
    assert phase() == "forward", phase()
    loss = model(batch[0]).sum()
    loss.backward()
    assert phase() == "other", phase()
    optimizer.step()
    assert phase() == "other", phase()
    optimizer.zero_grad()
"""


def test_loop_without_workers() -> None:
    measured_rank.run(
        MODEL
        + """
assert event() is None  # a process that does not train writes no events
loader = DataLoader(Numbers(10, wait=0.004), batch_size=5)
for batch in loader: train(batch)
assert phase() == "other"
fields = event()
assert [fields[name] for name in ("rank", "steps", "samples", "batches", "load_batches")] == [0, 2, 10, 2, 2]
assert fields["load_workers"] == 0
assert abs(total(fields) - fields["window"]) < 1e-6, fields
assert fields["input_s"] >= 0.04, fields
assert fields["input_s"] >= fields["load_s"] >= 0.04, fields
assert fields["load_s"] >= fields["load_cpu_s"] + fields["load_queued_s"], fields
assert fields["exchange_s"] == fields["copy_s"] == fields["evaluation_s"] == 0
time.sleep(0.01)
fields = event()
assert fields["window"] >= 0.01
assert fields["steps"] == fields["batches"] == fields["load_batches"] == 0
"""
    )


def test_first_window_begins_when_the_training_begins() -> None:
    measured_rank.run(
        """
time.sleep(0.05)
start, first = time.monotonic(), own._before
while own._before is first and time.monotonic() < start + 60: time.sleep(0.01)
assert event() is None
for batch, _ in DataLoader(Numbers(4), batch_size=2):
    torch.nn.Linear(3, 1)(batch).sum().backward()
fields = event()
assert fields["window"] <= time.monotonic() - start, fields
assert abs(total(fields) - fields["window"]) < 1e-6, fields
assert (fields["batches"], fields["load_batches"], fields["samples"]) == (2, 2, 4), fields
"""
    )


def test_evaluation_is_no_training() -> None:
    measured_rank.run(
        MODEL
        + """
loader = DataLoader(Numbers(10), batch_size=5)
for batch in loader: train(batch)
with torch.no_grad():
    for batch in loader:
        assert phase() == "evaluation"
        time.sleep(0.002)
assert phase() == "other"
for batch in loader:  # gradients are off only for the model
    with torch.no_grad(): model(batch[0])
fields = event()
assert (fields["batches"], fields["samples"], fields["steps"]) == (6, 10, 2), fields
assert fields["evaluation_s"] >= 0.004
"""
    )


def test_batches_of_all_forms_and_the_samples_in_them() -> None:
    measured_rank.run(
        """
        from collections import UserDict, namedtuple
        from smdp_engine.timing.torch_loaders import samples_of
        x = torch.ones(7, 2)
        Pair = namedtuple("Pair", "name x")
        class Own: pass
        for batch, samples in [
            (x, 7), ((x, 1), 7), ([["a"], x], 7), ({"name": "a", "x": x}, 7), (UserDict(x=x), 7), (Pair("a", x), 7),
            (Own(), 0), (None, 0), (torch.tensor(1.0), 0), ([[[[x]]]], 0), ([], 0), ({}, 0), ("text", 0),
        ]:
            assert samples_of(batch) == samples, batch
        """
    )


def test_loader_ends_and_fails_as_without_measurement() -> None:
    measured_rank.run(
        """
        import gc, inspect, weakref
        class Stream(IterableDataset):
            def __iter__(self): return iter(range(5))
        assert [batch.tolist() for batch in DataLoader(Stream(), batch_size=2)] == [[0, 1], [2, 3], [4]]
        iterator = iter(DataLoader(Numbers(2)))
        next(iterator), next(iterator)
        for _ in range(2):
            try: next(iterator)
            except StopIteration: pass
            else: assert False
        class Broken(Numbers):
            def __getitem__(self, index): raise KeyError("no such item")
        for workers in (0, 1):
            try: next(iter(DataLoader(Broken(2), num_workers=workers)))
            except KeyError as error: assert "no such item" in str(error) and error.__context__ is None
            else: assert False
            assert phase() == "other"
        iterator = iter(DataLoader(Numbers(2)))
        batch = next(iterator)
        kept = weakref.ref(batch[0])
        del batch
        assert kept() is None  # no cycle and no reference
        assert not inspect.isgeneratorfunction(DataLoader.__iter__)
        assert iter(iterator) is iterator
        """
    )


def test_optimizers() -> None:
    measured_rank.run(
        MODEL
        + """
other = torch.optim.Adam(model.parameters())
for number in range(4):  # as a GAN's: one of them steps more often
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    if number % 2: other.step()
class Failing(torch.optim.SGD):
    def step(self, closure=None): raise ArithmeticError
try: Failing(model.parameters(), 0.1).step()
except ArithmeticError: pass
next(iter(DataLoader(Numbers(2))))
assert phase() == "forward"
assert event()["steps"] == 4
def closure():
    optimizer.zero_grad()
    loss = model(torch.ones(1, 3)).sum()
    loss.backward()
    assert phase() == "optimizer"
    return loss
torch.optim.LBFGS(model.parameters(), max_iter=2).step(closure)
assert phase() == "other"
fields = event()
assert fields["steps"] == 1 and fields["backward_s"] > 0, fields
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
optimizer.step(); schedule.step()
assert event()["steps"] == 1
"""
    )


def test_saves_prints_and_logs(tmp_path: object) -> None:
    measured_rank.run(
        f"""
        import builtins, io, logging, pickle
        folder = {str(tmp_path)!r}
        torch.save({{"a": 1}}, folder + "/a.pt")
        assert torch.load(folder + "/a.pt") == {{"a": 1}}
        from smdp_engine.checkpoint import Checkpoints
        Checkpoints(folder).save(1, weights=torch.ones(3))  # calls torch.save
        class Text(io.StringIO):
            def write(self, text): assert phase() == "logging"; return super().write(text)
        text = Text()
        print("a", 1, sep="-", end="!", file=text)
        handler = logging.StreamHandler(text)
        logger = logging.getLogger("own")
        logger.addHandler(handler)
        logger.warning("hot")
        assert text.getvalue() == "a-1!hot\\n"
        assert print is builtins.print and print.__name__ == "print" and pickle.loads(pickle.dumps(print)) is print
        try: print(nothing=1)
        except TypeError: pass
        assert phase() == "other"
        fields = event()
        assert fields["checkpoints"] == 2 and fields["checkpoint_s"] > 0 and fields["logging_s"] > 0, fields
        import torch.distributed.checkpoint as dcp
        dcp.save({{"a": torch.ones(2)}}, checkpoint_id=folder + "/dcp", no_dist=True)
        assert event()["checkpoints"] == 1
        """
    )


def test_model_without_a_loader_begins_the_forward_pass() -> None:
    measured_rank.run(
        """
        dist.init_process_group("gloo")
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1))
        for _ in range(2):
            output = model(torch.ones(6, 3))
            assert phase() == "forward"
            output.sum().backward()
        with torch.no_grad(): model(torch.ones(6, 3))
        assert phase() == "other"
        fields = event()
        assert fields["samples"] == 12 and fields["batches"] == 0 and fields["evaluation_s"] > 0, fields
        dist.destroy_process_group()
        """
    )


def test_training_in_another_thread() -> None:
    measured_rank.run(
        MODEL
        + """
import threading
def run():
    model(torch.ones(1, 3)).sum().backward()
    for batch in DataLoader(Numbers(4, wait=0.002)): train(batch)
thread = threading.Thread(target=run)
thread.start()
thread.join()
fields = event()
assert (fields["steps"], fields["samples"]) == (4, 4), fields
assert fields["input_s"] >= 0.008, fields
"""
    )
