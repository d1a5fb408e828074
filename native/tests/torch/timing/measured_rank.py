"""Runs a script as a measured rank, without an entrypoint: the script reads the events that it writes."""

import importlib.util
import textwrap
from typing import Dict, Optional

import pytest
import ranks

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")

#: ``event()`` ends the window and returns its event; None if nothing was written. ``phase()`` is the current phase.
PREAMBLE = """
import json
from smdp_engine.timing import clock as phases, emission, torch_hooks
reading, writing = os.pipe()
os.set_blocking(reading, False)
status = os.fstat(writing)
os.environ["SMDP_EVENT_PIPE"] = f"{writing}:{status.st_dev}:{status.st_ino}"
os.environ.setdefault("SMDP_TIMING_S", "10000")
torch_hooks.install()
own = emission.start()
clock = own.clock if own else None
def phase(): return phases.PHASES[clock.phase]
def event():
    own.emit()
    try: return json.loads(os.read(reading, 65536))
    except BlockingIOError: return None
def total(fields): return sum(fields[name + "_s"] for name in phases.PHASES)
from torch.utils.data import DataLoader, Dataset, IterableDataset
class Numbers(Dataset):
    # `wait`: seconds that an item takes
    def __init__(self, count, wait=0.0): self.count, self.wait = count, wait
    def __len__(self): return self.count
    def __getitem__(self, index):
        time.sleep(self.wait)
        return torch.full((3,), float(index)), index
"""


def run(body: str, env: Optional[Dict[str, str]] = None, size: int = 1, preamble: str = PREAMBLE) -> str:
    """Run the body on one host and return the output of rank 0; it must exit with 0."""
    return ranks.run([size], preamble + textwrap.dedent(body), env=env)[0].out
