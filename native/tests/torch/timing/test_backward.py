"""The backward pass and, at its end, the wait for the exchange of gradients."""

import measured_rank
import pytest

pytestmark = [pytest.mark.torch, measured_rank.needs_torch]

# The hook of the last gradient queues a final callback, as DistributedDataParallel does.
PASSES = """
queue = torch.autograd.Variable._execution_engine.queue_callback
first, last = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)
seen = []
def ready(*_):
    seen.append(phase())
    queue(lambda: seen.append(phase()))
first.weight.register_hook(ready)
def loss(): return last(first(torch.ones(2, 3)).relu() + 1).sum()
def passed():
    result, seen[:] = list(seen), []
    assert phase() == "other", phase()
    return result
"""


def test_time_after_the_last_gradient_is_exchange() -> None:
    measured_rank.run(
        PASSES
        + """
dist.init_process_group("gloo")
whole = ["backward", "exchange"]
loss().backward()
assert passed() == whole
one = loss()
one.backward(retain_graph=True)
one.backward()
assert passed() == whole + whole
assert not one._backward_hooks
torch.autograd.backward([loss(), loss()])
assert passed() == whole
two = loss()
two.backward(create_graph=True)
assert passed() == whole
first.zero_grad(); last.zero_grad()
scaler = torch.amp.GradScaler("cpu")
scaler.scale(loss()).backward()
assert passed() == whole
torch.ones(2, requires_grad=True).backward(torch.ones(2))  # a leaf
assert passed() == []
loss().backward(inputs=[last.weight])
assert passed() == []
try: torch.ones(1).sum().backward()
except RuntimeError as error: assert "does not require grad" in str(error)
else: assert False
assert passed() == []
one = loss()
one.backward()
passed()
try: one.backward()
except RuntimeError as error: assert "second time" in str(error)
else: assert False
assert passed() == []
class Failing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x
    @staticmethod
    def backward(ctx, grad): raise ArithmeticError("in backward")
try: Failing.apply(loss()).backward()
except ArithmeticError: pass
else: assert False
assert passed() == []
loss().backward(gradient=torch.tensor(2.0))
assert passed() == whole
dist.destroy_process_group()
loss().backward()
assert passed() == ["backward", "backward"]  # without a group nothing is exchanged
"""
    )


def test_checkpointed_model_whose_backward_pass_runs_another_one() -> None:
    measured_rank.run(
        """
        from torch.utils.checkpoint import checkpoint
        dist.init_process_group("gloo")
        seen = []
        for reentrant in (True, False):
            model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 1))
            model[0].weight.register_hook(lambda _: seen.append(phase()))
            x = torch.ones(2, 3, requires_grad=True)
            checkpoint(model, x, use_reentrant=reentrant).sum().backward()
            assert phase() == "other"
        assert seen == ["backward", "backward"], seen
        dist.destroy_process_group()
        """
    )


@pytest.mark.runs
def test_pass_that_the_compiler_traces_has_no_hook() -> None:
    measured_rank.run(
        """
        dist.init_process_group("gloo")
        from torch._dynamo import compiled_autograd
        model = torch.nn.Linear(3, 1)
        seen = []
        with compiled_autograd._enable(lambda graph: seen.append("traced") or graph):
            loss = model(torch.ones(2, 3)).sum()
            loss.backward()
        assert seen == ["traced"] and loss._backward_hooks is None, (seen, loss._backward_hooks)
        assert model.weight.grad.tolist() == [[2, 2, 2]] and phase() == "other"
        dist.destroy_process_group()
        """
    )


WAITS = """
dist.init_process_group({backend!r})
model = {wrapper}(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
model(torch.ones(2, 3)).sum().backward()
event()
meet("begin")
for step in range(4):
    with model.no_sync() if step == 1 else open("/dev/null"):
        output = model(torch.ones(2, 3)).sum()
        if rank == 1 and step != 1: time.sleep(0.1)
        output.backward()
    optimizer.step()
fields = event()
assert abs(total(fields) - fields["window"]) < 1e-6
if rank == 0: assert fields["exchange_s"] >= 0.15 and fields["exchange_s"] > fields["backward_s"], fields
assert fields["steps"] == 4
dist.barrier()
if rank == 1: time.sleep(0.1)
dist.all_reduce(torch.ones(2))
fields = event()
if rank == 0: assert fields["exchange_s"] >= 0.05, fields
dist.destroy_process_group()
"""
TORCHS = "torch.nn.parallel.DistributedDataParallel"


@pytest.mark.parametrize(
    ("backend", "wrapper"),
    [
        ("smddp", TORCHS),
        pytest.param("gloo", TORCHS, marks=pytest.mark.runs),
        ("smddp", "first_generation"),
    ],
)
def test_rank_that_waits_for_another_one_shows_it_as_exchange(backend: str, wrapper: str) -> None:
    """Rank 1 sleeps for 0.3 s in total before its passes."""
    begin = ""
    if wrapper == "first_generation":
        begin = "import smdistributed.dataparallel.torch.parallel as parallel\n"
        wrapper = "parallel.DistributedDataParallel"
    measured_rank.run(begin + WAITS.format(backend=backend, wrapper=wrapper), size=2)
