"""The counts of a run are the same with the native module and without it."""

import json
from typing import Any, Dict

import measured_rank
import pytest

from smdp_engine.timing import native

pytestmark = [pytest.mark.torch, measured_rank.needs_torch]

WITHOUT = "import sys; sys.modules['smdp_engine._clock'] = None\n"
TRAINS = """
import io, threading
from smdp_engine.timing import loading
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


def counted(preamble: str) -> Dict[str, Any]:
    out: Dict[str, Any] = json.loads(measured_rank.run(TRAINS, preamble=preamble + measured_rank.PREAMBLE))
    return out


def test_run_without_the_native_module_counts_the_same() -> None:
    without = counted(WITHOUT)
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
        with_it = counted("")
        assert with_it.pop("is_native")
        assert with_it == without


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
