"""The first generation's DistributedDataParallel: gradients, buffers and parameters."""

import re
import textwrap
from pathlib import Path

import pytest
from first_generation_ranks import launched, needs
from torch_version import needs_torch

pytestmark = [pytest.mark.torch, needs_torch]


TRAINING = """
def build():
    torch.manual_seed(3 + rank)  # wrapping copies rank 0's values
    return torch.nn.Sequential(
        torch.nn.Conv2d(2, 6, 3).to(memory_format=torch.channels_last), torch.nn.Tanh(), torch.nn.Flatten(),
        torch.nn.Linear(96, 40), torch.nn.Tanh(), torch.nn.Linear(40, 5)).double()

torch.manual_seed(9)
data, wanted = torch.randn(10, 32, 2, 6, 6).double(), torch.randn(10, 32, 5).double()

def train(model, part=slice(None), set_to_none=True):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for x, y in zip(data, wanted):
        optimizer.zero_grad(set_to_none=set_to_none)
        mse_loss(model(x[part]), y[part]).backward()
        optimizer.step()
    return torch.cat([one.detach().reshape(-1) for one in model.parameters()])
"""


def test_training_equals_torchs_wrapper_and_one_process_with_the_whole_batch() -> None:
    outcomes = launched(
        TRAINING
        + textwrap.dedent("""
        mine = slice(rank, None, size)
        whole = build(); [dist.broadcast(one.data, 0) for one in whole.parameters()]
        whole = train(whole)
        torchs = train(torch.nn.parallel.DistributedDataParallel(build()), mine)
        for settings in ({}, {"bucket_cap_mb": 0.002}, {"set_to_none": False}):
            ours = DistributedDataParallel(build(), bucket_cap_mb=settings.pop("bucket_cap_mb", None))
            ours = train(ours, mine, **settings)
            differ = (ours - torchs).abs().max().item(), (ours - whole).abs().max().item()
            print("largest difference", *differ)
            assert max(differ) <= 1e-6 and ours.abs().max() > 0.1
            everyones = [torch.empty_like(ours) for _ in range(size)]
            dist.all_gather(everyones, ours)
            assert all(torch.equal(one, ours) for one in everyones)
        """)
    )
    print(outcomes[0].out)


@pytest.mark.runs
@needs(2, 3, "multiplies no float16 on CPUs")
def test_gradients_are_averaged_in_their_own_type() -> None:
    launched(
        """
        class Mixed(torch.nn.Module):
            def __init__(self):
                super().__init__()
                types = 2 * [torch.float32, torch.float16, torch.bfloat16]
                self.parts = torch.nn.ModuleList(torch.nn.Linear(30, 30, dtype=dtype) for dtype in types)
            def forward(self, x):
                return sum(part(x.to(part.weight.dtype)).float().square().sum() for part in self.parts)
        torch.manual_seed(5); x = torch.randn(4, 8, 30)[rank]
        alone, model = Mixed(), Mixed(); model.load_state_dict(alone.state_dict())
        model = DistributedDataParallel(model, bucket_cap_mb=0.003)
        alone.load_state_dict(model.module.state_dict())
        alone(x).backward()
        model(x).backward()
        for (name, ours), theirs in zip(model.named_parameters(), alone.parameters()):
            dist.all_reduce(theirs.grad, dist.ReduceOp.AVG)
            assert ours.grad.dtype == ours.dtype == theirs.dtype
            assert torch.equal(ours.grad, theirs.grad), name
        """
    )


def test_complex_gradients_are_averaged() -> None:
    launched(
        """
        class Two(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b, self.c = (torch.nn.Linear(3, 3, dtype=torch.complex64) for _ in range(3))
            def forward(self, x):
                return self.b(self.a(x)) if rank == 0 else self.a(x)
        x = torch.full((2, 3), rank + 1j)
        model = DistributedDataParallel(Two())
        alone = Two(); alone.load_state_dict(model.module.state_dict())
        for one in (alone, model):
            one(x).abs().square().sum().backward()
        for (name, ours), theirs in zip(model.module.named_parameters(), alone.parameters()):
            wanted = torch.zeros_like(theirs) if theirs.grad is None else theirs.grad
            dist.all_reduce(wanted, dist.ReduceOp.AVG)
            assert (ours.grad is None) == name.startswith("c."), name
            assert ours.grad is None or torch.allclose(ours.grad, wanted), name
        """
    )


def test_autocast_trains_float32_parameters() -> None:
    launched(
        """
        torch.manual_seed(0)
        model = DistributedDataParallel(torch.nn.Linear(20, 20))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(torch.full((2, 20), float(rank)))
        assert out.dtype == torch.bfloat16
        out.float().sum().backward()
        assert (model.module.weight.grad == 1).all() and (model.module.bias.grad == 2).all()
        """,
        hosts=(1, 1),
    )


@pytest.mark.runs
def test_ranks_may_compute_gradients_in_different_orders() -> None:
    outcomes = launched(
        """
        class Crossed(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.parts = torch.nn.ModuleList(torch.nn.Linear(50, 50) for _ in range(6))
            def forward(self, x):
                order = list(range(6)); order = order[rank:] + order[:rank]
                for number in order:
                    x = self.parts[number](x)
                return x.sum()
        torch.manual_seed(0)
        model = DistributedDataParallel(Crossed(), bucket_cap_mb=0.01)
        arrived = []
        for number, part in enumerate(model.module.parts):
            part.weight.register_hook(lambda _, number=number: arrived.append(number))
        for step in range(3):
            model.zero_grad()
            x = torch.randn(4, 50)
            local = torch.autograd.grad(model.module(x), list(model.parameters()))
            [dist.all_reduce(one, dist.ReduceOp.AVG) for one in local]
            model(x).backward()
            assert all(torch.equal(ours.grad, theirs) for ours, theirs in zip(model.parameters(), local))
        print("order", arrived[:6])
        """
    )
    assert len({re.search(r"order .*", outcome.out)[0] for outcome in outcomes}) == 4  # type: ignore[index]


def test_full_buffer_is_sent_during_the_backward_pass(tmp_path: Path) -> None:
    launched(
        """
        from smdp_engine import trace
        model = DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(50, 50) for _ in range(4)]),
                                        bucket_cap_mb=0.01)
        sent = []
        def last(_):
            path = trace.dump(os.environ["FOLDER"])
            entries = trace.read_records(path)["entries"]
            sent[:] = [entry["index"] for entry in entries if entry["step"] == step]
        model.module[0].weight.register_hook(last)
        for step in range(2):
            model(torch.randn(2, 50)).sum().backward()
            assert sent == [0, 1, 2], sent  # of four buffers, one per layer; the first layer's gradient is not complete
        """,
        hosts=(1, 1),
        FOLDER=str(tmp_path),
    )


def test_unused_parameters_neither_hang_nor_diverge() -> None:
    launched(
        """
        class Some(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.parts = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(4))
            def forward(self, x, used):
                return x.sum() * 0 + sum(self.parts[number](x).sum() for number in used)
        # Used by: part 0: all ranks; part 1: rank 2; part 2: none; part 3: all but rank 0. In the second step rank 1
        # uses no part, in the third all ranks use all parts.
        for clears in (True, False):
            torch.manual_seed(0)
            model = DistributedDataParallel(Some(), bucket_cap_mb=0.0001)
            for step in range(3):
                model.zero_grad(set_to_none=clears)
                used = [0] + ([1] if rank == 2 else []) + ([3] if rank else [])
                used = ([] if rank == 1 else used) if step == 1 else [0, 1, 2, 3] if step == 2 else used
                model(torch.ones(1, 4, requires_grad=True), used).backward()
                share = ([1, 0.25, None, 0.75], [0.75, 0.25, None, 0.5], [1, 1, 1, 1])[step]
                for wanted, part in zip(share, model.module.parts):
                    if wanted is None:
                        assert part.weight.grad is None and part.bias.grad is None
                    else:
                        assert (part.weight.grad == wanted).all() and (part.bias.grad == wanted).all(), (step, wanted)
        """
    )


@pytest.mark.runs
def test_no_sync_accumulates_gradients_for_the_next_average() -> None:
    launched(
        """
        model = DistributedDataParallel(torch.nn.Linear(3, 2), bucket_cap_mb=0.00001)
        x = torch.full((1, 3), float(rank))
        for clears in (True, False):
            for _ in range(2):
                model.zero_grad(set_to_none=clears)
                with model.no_sync():
                    model(x).sum().backward()
                    model(x).sum().backward()
                assert (model.module.weight.grad == 2 * rank).all() and (model.module.bias.grad == 2).all()
                model(x).sum().backward()
                assert (model.module.weight.grad == 4.5).all() and (model.module.bias.grad == 3).all()
        class Either(torch.nn.ModuleDict):
            def forward(self, name, x): return self[name](x)
        either = DistributedDataParallel(Either({"a": torch.nn.Linear(3, 2), "b": torch.nn.Linear(3, 2)}))
        with either.no_sync():
            either("a", x).sum().backward()
        either("b", x).sum().backward()
        assert all((part.weight.grad == 1.5).all() for part in either.module.values())
        with model.no_sync():
            out = model(x)
        model.zero_grad()
        out.sum().backward()  # the forward pass decides
        assert (model.module.weight.grad == rank).all()
        model.zero_grad()
        model.module(x).sum().backward()  # past the wrapper
        assert (model.module.weight.grad == rank).all()
        """
    )


def test_buffers_follow_rank_0_unless_disabled() -> None:
    launched(
        """
        for follows in (True, False):
            model = DistributedDataParallel(torch.nn.BatchNorm1d(1), broadcast_buffers=follows)
            norm = model.module
            batch = torch.tensor([[rank - 1.0], [rank + 1.0]])
            for step in range(3):
                model(batch).sum().backward()
            # Each pass moves the mean by a tenth towards the batch's mean, starting at rank 0's value 0.
            wanted = 0.1 * rank if follows else (1 - 0.9**3) * rank
            assert abs(norm.running_mean.item() - wanted) < 1e-6, (norm.running_mean, wanted)
            model.eval()
            with torch.no_grad():
                model(batch)
            assert abs(norm.running_mean.item() - (0 if follows else wanted)) < 1e-6
            if rank == 0:
                with torch.no_grad():
                    model(batch)  # one rank only: buffers are broadcast only after an averaged pass
        """,
        hosts=(1, 1),
    )


def test_wrapping_copies_rank_0s_parameters_and_buffers() -> None:
    launched(
        """
        torch.manual_seed(rank)
        module = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last),
                                     torch.nn.BatchNorm2d(8), torch.nn.Linear(2, 2))
        module[2].weight.requires_grad_(False)
        module[1].running_mean.fill_(rank)
        model = DistributedDataParallel(module, bucket_cap_mb=0.0001)
        torch.manual_seed(0)
        for ours, theirs in zip(module.parameters(), torch.nn.Sequential(
                torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.Linear(2, 2)).parameters()):
            assert torch.equal(ours, theirs)
        assert (module[1].running_mean == 0).all()
        assert list(model.state_dict())[:2] == ["module.0.weight", "module.0.bias"]
        model.load_state_dict(model.state_dict())
        assert not hasattr(model, "nonsense") and model.module is module
        """,
        hosts=(1, 1),
    )
