"""Callbacks on futures: they may wait for other operations, and may still run when the script ends."""

import re
import textwrap
from typing import Dict, List

import pytest
import ranks
from torch_version import torch_version

pytestmark = pytest.mark.torch

INIT = """
import datetime, threading
dist.init_process_group("smddp", timeout=datetime.timedelta(seconds=60))
def future_of(value): return dist.all_reduce(torch.full((1000,), float(value)), async_op=True).get_future()
store = dist.distributed_c10d._get_default_store()
def held(name, callback):
    # Rank 0 adds its callback before its operation can end: torch runs a later callback on the thread that adds it.
    if rank == 1:
        store.wait([name])
        return future_of(1)
    future = future_of(1).then(callback)
    store.set(name, "attached")
    return future
"""


def _run(hosts: List[int], body: str) -> List[ranks.Outcome]:
    outcomes = ranks.start(hosts, INIT + textwrap.dedent(body)).finish()
    for outcome in outcomes:
        assert outcome.code == 0, f"rank {outcome.rank}:\n{outcome.out}\n{outcome.err}"
    return outcomes


NESTED = {
    "calls a collective that waits": "(dist.all_reduce(x := torch.ones(3)), x)[1]",
    "waits for another future": "future_of(1).wait()[0]",
    "asks until another work is complete": "poll(dist.all_reduce(x := torch.ones(3), async_op=True)) or x",
    "waits for a future whose callback waits": "future_of(1).then(lambda f: future_of(1).wait()[0]).wait()",
}


def _nested(code: str) -> str:
    return textwrap.dedent(
        f"""
        def poll(work):
            while not work.is_completed(): time.sleep(0.001)
        # Large, so that the callback is added first and runs on the thread that completes futures.
        first = dist.all_reduce(torch.ones(4_000_000), async_op=True).get_future()
        seen = first.then(lambda future: {code}).wait()
        assert (seen == 3).all(), seen
        """
    )


@pytest.fixture(scope="module")
def waiting_callbacks() -> List[ranks.Outcome]:
    """The outcomes of the ranks of one job."""
    cases = {name: _nested(code) for name, code in NESTED.items()}
    return ranks.start([2, 1], INIT + ranks.in_turn(cases)).finish()


@pytest.mark.parametrize("nested", NESTED)
def test_callback_may_wait(nested: str, waiting_callbacks: List[ranks.Outcome]) -> None:
    for outcome in waiting_callbacks:
        assert f"passed {nested}\n" in outcome.out, f"rank {outcome.rank}:\n{outcome.err}"


def test_script_with_waiting_callbacks_exits_successfully(waiting_callbacks: List[ranks.Outcome]) -> None:
    assert [outcome.code for outcome in waiting_callbacks] == [0, 0, 0], waiting_callbacks


def test_many_callbacks_may_wait_for_a_later_operation() -> None:
    _run(
        [1, 1],
        """
        released = threading.Event()
        waiting = [held(str(number), lambda future: released.wait(60)) for number in range(12)]
        last = held("last", lambda future: released.set() or future.value())
        assert (last.wait()[0] == 2).all()
        assert all(future.wait() for future in waiting)
        """,
    )


def test_slow_callback_delays_no_wait_and_no_deadline() -> None:
    _run(
        [1, 1],
        """
        release = threading.Event()
        slow = held("slow", lambda future: release.wait(60))
        x = torch.ones(10)
        work = dist.all_reduce(x, async_op=True)
        future = work.get_future()
        assert work.wait() and work.is_completed() and future.done() and (future.value()[0] == 2).all()
        assert dist.all_reduce(x, async_op=True).wait() and (x == 4).all()
        assert rank == 1 or not slow.done()
        release.set()
        assert slow.wait()
        """,
    )


def test_wait_in_a_callback_ends_at_its_deadline() -> None:
    outcomes = _run(
        [1, 1],
        """
        group = dist.new_group([0, 1], timeout=datetime.timedelta(seconds=1))
        if rank == 0:
            try:
                future_of(1).then(lambda future: dist.all_reduce(torch.ones(3), group=group)).wait()
                print("no error")
            except RuntimeError as error:
                print(error)
        else:
            future_of(1).wait()
        dist.barrier()
        """,
    )
    assert "the deadline passed" in outcomes[0].out and "rank 1 (host algo-2)" in outcomes[0].out, outcomes[0]


def test_future_is_complete_after_wait() -> None:
    _run(
        [2],
        """
        for _ in range(200):
            work = dist.all_reduce(torch.ones(100), async_op=True)
            early = work.get_future()
            work.wait()
            assert early.done() and (early.value()[0] == 2).all()
            work = dist.all_reduce(torch.ones(100), async_op=True)
            work.wait()
            late = work.get_future()
            assert late.done() and (late.value()[0] == 2).all()
        """,
    )


POWER_SGD = """
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
ddp = torch.nn.parallel.DistributedDataParallel(model)
state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
generator = torch.Generator().manual_seed(100 + rank)
for step in range(12):
    x = torch.randn(16, 64, generator=generator)
    loss = torch.nn.functional.cross_entropy(ddp(x), x[:, :10].argmax(1))
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    dist.all_reduce(loss.detach_())
    if rank == 0: print(f"loss {loss.item() / size:.9f}", flush=True)
"""


def test_power_sgd_training_has_the_loss_curve_of_gloo() -> None:
    losses: Dict[str, List[float]] = {}
    # Gloo's threads may abort while the interpreter ends.
    for backend, ending in {"smddp": "", "gloo": "os._exit(0)"}.items():
        script = f"dist.init_process_group({backend!r})\n{POWER_SGD}{ending}"
        outcomes = ranks.start([1, 1], script).finish()
        assert [outcome.code for outcome in outcomes] == [0, 0], outcomes
        losses[backend] = [float(value) for value in re.findall(r"loss ([\d.]+)", outcomes[0].out)]
    worst = max(abs(a - b) / b for a, b in zip(losses["smddp"], losses["gloo"]))
    print(f"largest relative difference of the loss: {worst:.2e}")
    assert len(losses["smddp"]) == len(losses["gloo"]) == 12 and worst <= 1e-5


ENDINGS = {"falls off its end": ("", 0), "leaves": ("sys.exit(3)", 3), "raises": ("raise ValueError('a bug')", 1)}


@pytest.mark.parametrize("ending", ENDINGS)
def test_script_exits_while_callbacks_run_or_wait(ending: str) -> None:
    last, code = ENDINGS[ending]
    body = """
    begun = threading.Semaphore(0)
    def run(future):
        begun.release()
        time.sleep(0.5)
        print("after all", flush=True)
    running = [future_of(1).then(run) for _ in range(3)]
    # No other rank makes this call: it ends with the script.
    alone = future_of(1).then(lambda future: (begun.release(), rank == 0 and dist.all_reduce(torch.ones(3))))
    for _ in range(4): begun.acquire()
    time.sleep(0.1)  # usually enough for the last callback to begin its call
    """
    for outcome in ranks.start([2], INIT + textwrap.dedent(body) + last).finish():
        assert outcome.code == code, outcome
        assert "terminate called" not in outcome.err, outcome.err
        assert outcome.out.count("after all") == 3, outcome


# torch's own functions refuse such mixtures, the backend's method does not.
REFUSED = {
    "a device": "torch.ones(3, device='meta')",
    "a layout": "torch.ones(3).to_sparse()",
    "a type": "torch.ones(3).to(torch.float8_e4m3fn) if hasattr(torch, 'float8_e4m3fn') "
    "else torch.quantize_per_tensor(torch.ones(3), 1.0, 0, torch.quint8)",
    "a reduction": "torch.ones(3, dtype=torch.bool)",
}


def _refused(tensor: str) -> str:
    return textwrap.dedent(
        f"""
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        options = dist.AllreduceCoalescedOptions()
        options.reduceOp = dist.ReduceOp.AVG
        for _ in range(10):
            # Not contiguous: the engine uses a copy that belongs to the call.
            first = torch.ones(2000, 2000).t()
            try:
                backend.allreduce_coalesced([first, {tensor}], options)
                raise SystemExit("not refused")
            except (RuntimeError, ValueError) as error:
                assert "smddp" in str(error), error
            del first
        x = torch.ones(4)
        dist.all_reduce(x)
        assert (x == 2).all()
        """
    )


@pytest.fixture(scope="module")
def refusals() -> List[ranks.Outcome]:
    """The outcomes of the ranks of one job."""
    cases = {name: _refused(tensor) for name, tensor in REFUSED.items()}
    return ranks.start([2], INIT + ranks.in_turn(cases)).finish()


@pytest.mark.parametrize("what", REFUSED)
def test_refused_tensor_does_not_free_earlier_tensors(what: str, refusals: List[ranks.Outcome]) -> None:
    for outcome in refusals:
        assert f"passed {what}\n" in outcome.out, f"rank {outcome.rank}:\n{outcome.err}"


def test_script_with_refused_tensors_exits_successfully(refusals: List[ranks.Outcome]) -> None:
    assert [outcome.code for outcome in refusals] == [0, 0], refusals


def test_other_threads_run_while_one_waits() -> None:
    ranks.run(
        [1, 1],
        """
        import threading
        dist.init_process_group("smddp")
        dist.all_reduce(torch.ones(1))
        store = dist.distributed_c10d._get_default_store()
        waits_in, over = None, False
        def tick():
            seen, ticks = None, 0
            while not over:
                ticks = ticks + 1 if seen == waits_in else 0
                seen = waits_in
                if seen is not None and ticks == 20: store.set(f"ran during {seen}", "")
                time.sleep(0.01)
        thread = threading.Thread(target=tick); thread.start()
        waiting = [lambda: dist.all_reduce(torch.ones(1)), lambda: dist.all_reduce(torch.ones(1), async_op=True).wait(),
                   lambda: dist.all_reduce(torch.ones(1), async_op=True).get_future().wait(),
                   lambda: dist.recv(torch.ones(1), 1) if rank == 0 else dist.send(torch.ones(1), 0)]
        for number, wait in enumerate(waiting):
            # Rank 0's wait ends when rank 1 makes the call, after rank 0's other thread has run.
            if rank == 1: store.wait([f"ran during {number}"])
            else: waits_in = number
            wait()
        over = True; thread.join()
        dist.destroy_process_group()
        """,
    )


STAGGERED = """
dist.barrier()
if rank == 1:
    store.wait(["waits"])
    for _ in range(3):
        time.sleep(2)
        dist.send(torch.ones(2), 0)
if rank == 0:
    cpu = torch.device("cpu")
    dist.group.WORLD._start_coalescing(cpu)
    for _ in range(3): dist.group.WORLD.recv([torch.empty(2)], 1, 0)
    works = dist.group.WORLD._end_coalescing(cpu)
    store.set("waits", "")
    try:
        works.wait(datetime.timedelta(seconds=3))
        print("waited for all", flush=True)
    except dist.DistBackendError as error:
        print("raised", error, flush=True)
    assert works.wait()
"""


@pytest.mark.skipif(torch_version() < (2, 1), reason="torch does not end coalesced calls with one work")
@pytest.mark.runs
def test_limit_of_a_wait_for_coalesced_calls_is_for_all_of_them() -> None:
    assert "raised smddp: wait() gave up" in _run([2], STAGGERED)[0].out
