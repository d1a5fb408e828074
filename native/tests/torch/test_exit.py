"""Scripts that exit while the backend works: no thread of the engine may need the interpreter after its exit begins."""

from typing import List

import pytest
import ranks

pytestmark = pytest.mark.torch

# DDP keeps its process group forever. Operations without a wait are in progress when the script exits, and the backend
# has the last reference to their tensors: it must not release that reference during the interpreter's exit.
SCRIPT = """
dist.init_process_group("smddp")
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
ddp = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.002)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    ddp(torch.randn(8, 64)).sum().backward()
    optimizer.step()
for size in (10, 1000, 300_000):
    dist.all_reduce(torch.ones(size), async_op=True).get_future().then(lambda future: future.value()[0] * 2)
"""

ENDINGS = {"falls off its end": 0, "raise ValueError('a bug of the script')": 1, "sys.exit(3)": 3}


def _end_together(endings: List[str]) -> None:
    """Run jobs at the same time: each is the load that interrupts the other jobs' threads at random places."""
    jobs = [
        ranks.start([1, 1], SCRIPT + ("" if ENDINGS[ending] == 0 else f"{ending}\n"), cold=True) for ending in endings
    ]
    for ending, job in zip(endings, jobs):
        for outcome in job.finish(200):
            assert outcome.code == ENDINGS[ending], (ending, outcome)
            assert "terminate called" not in outcome.err, (ending, outcome.err)


@pytest.mark.runs
def test_script_exits_with_a_live_group_and_running_operations() -> None:
    _end_together(list(ENDINGS))


def test_forked_child_exits_without_effect_on_the_job() -> None:
    ranks.run(
        [2],
        """
        dist.init_process_group("smddp")
        dist.all_reduce(torch.ones(10))
        for _ in range(10):
            child = os.fork()
            if child == 0: sys.exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        dist.all_reduce(torch.ones(10))
        """,
    )


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_two_hundred_processes_exit_successfully_under_load() -> None:
    for _ in range(34):
        _end_together(list(ENDINGS))
    print("204 processes ended as they should")
