"""A rank in an exchange that lasts reports the operation, and the ranks that it waits for."""

from pathlib import Path

import measured_rank
import pytest

pytestmark = [pytest.mark.torch, measured_rank.needs_torch]

# Rank 1 makes its call once another thread of rank 0 has read three events of rank 0, which is in that call.
WAITS = """
import pathlib, threading
go = pathlib.Path(os.environ["GO"])
dist.init_process_group("smddp")
dist.all_reduce(torch.ones(3))
torch.nn.Linear(3, 1)(torch.ones(2, 3)).sum().backward()
events = []
if rank == 0:
    def look():
        while phase() != "exchange":
            time.sleep(0.01)
        while not events or "waits_for" not in events[-1]:
            events.append(event())
            time.sleep(0.05)
        go.touch()
    watching = threading.Thread(target=look)
    watching.start()
    dist.all_reduce(torch.ones(5))
    watching.join()
    assert events[-1]["operation"] == "all_reduce", events
    assert events[-1]["waits_for"] == [1], events
    assert "waits_for" not in events[0]  # the exchange may just have begun
    assert "waits_for" not in event()
else:
    while not go.exists():
        time.sleep(0.01)
    dist.all_reduce(torch.ones(5))
dist.destroy_process_group()
print("done")
"""


def test_unfinished_exchange_names_the_awaited_ranks(tmp_path: Path) -> None:
    assert "done" in measured_rank.run(WAITS, env={"GO": str(tmp_path / "go")}, size=2)
