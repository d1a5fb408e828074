"""Scripts that end while the backend is at work: no thread of ours may need the interpreter after it began to end."""

from typing import List

import pytest
import ranks

pytestmark = pytest.mark.torch

# DDP keeps its process group for ever. Tensors that nobody waits for are under way when the script ends, and the last
# one who holds them is the backend: it is that reference that must not be let go of in an ending interpreter.
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
    """Jobs at the same time: each is the load under which the threads of the others are interrupted anywhere."""
    jobs = [
        ranks.start([1, 1], SCRIPT + ("" if ENDINGS[ending] == 0 else f"{ending}\n"), cold=True) for ending in endings
    ]
    for ending, job in zip(endings, jobs):
        for outcome in job.finish(200):
            assert outcome.code == ENDINGS[ending], (ending, outcome)
            assert "terminate called" not in outcome.err, (ending, outcome.err)


@pytest.mark.runs
def test_scripts_may_end_with_their_group_alive_and_operations_under_way() -> None:
    _end_together(list(ENDINGS))


def test_a_forked_child_may_end_as_it_likes() -> None:
    ranks.run(
        [2],
        """
        dist.init_process_group("smddp")
        dist.all_reduce(torch.ones(10))
        child = os.fork()
        if child == 0: sys.exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        dist.all_reduce(torch.ones(10))
        """,
    )


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_two_hundred_processes_end_well_under_load() -> None:
    for _ in range(34):
        _end_together(list(ENDINGS))
    print("204 processes ended as they should")
