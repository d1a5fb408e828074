"""The first generation of SageMaker's data parallel library, as scripts of its time use it."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import List

import pytest
import ranks

torch = pytest.importorskip("torch")

from smdp_engine.first_generation.fusion import batches  # noqa: E402

pytestmark = pytest.mark.torch


def needs(major: int, minor: int, reason: str) -> pytest.MarkDecorator:
    """For what an older torch cannot do, whatever its backend."""
    here = tuple(int(part) for part in torch.__version__.split(".")[:2])
    return pytest.mark.skipif(here < (major, minor), reason=f"torch {torch.__version__} {reason}")


meets_twice = needs(2, 1, "cannot meet a second time at one port, on Gloo neither")

IMPORTS = """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
import smdistributed.dataparallel.torch.distributed as sdp
from smdistributed.dataparallel.torch.parallel.distributed import DistributedDataParallel
from torch.nn.functional import mse_loss

def raised(kind, call):
    try:
        call()
    except kind as error:
        return str(error)
    raise SystemExit(f"no {kind.__name__}")
"""
INIT = IMPORTS + "\nsdp.init_process_group()\n"


def launched(body: str, hosts: "tuple[int, ...]" = (2, 2), **env: str) -> List[ranks.Outcome]:
    return ranks.run(hosts, INIT + textwrap.dedent(body), env=env)


def alone(body: str) -> "subprocess.CompletedProcess[str]":
    """As somebody runs a script to try it, without a launch."""
    launch = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK")
    env = {name: value for name, value in os.environ.items() if name not in launch}
    command = [sys.executable, "-c", textwrap.dedent(body)]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)


def test_both_import_paths_lead_to_one_class_and_a_script_that_asks_trains_alone() -> None:
    ran = alone(
        """
        import torch
        import smdistributed.dataparallel.torch.distributed as dist
        from smdistributed.dataparallel.torch.parallel import DistributedDataParallel as short
        from smdistributed.dataparallel.torch.parallel.distributed import DistributedDataParallel
        assert short is DistributedDataParallel
        model = torch.nn.Linear(2, 1)
        distributed = dist.is_available()
        if distributed:
            dist.init_process_group()
            model = DistributedDataParallel(model)
        model(torch.ones(1, 2)).sum().backward()
        assert not distributed and not dist.is_initialized() and model.weight.grad is not None
        """
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.runs
def test_outside_a_launch_the_first_call_says_so() -> None:
    ran = alone(
        """
        import smdistributed.dataparallel.torch.distributed as dist
        from smdistributed.dataparallel.torch.parallel import DistributedDataParallel
        import torch
        for call in (dist.init_process_group, dist.get_local_rank, lambda: DistributedDataParallel(torch.nn.ReLU())):
            try:
                call()
            except RuntimeError as error:
                print(error)
        """
    )
    init, local_rank, wrapper = ran.stdout.splitlines()
    assert "RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT not set" in init and "is_available()" in init
    assert "LOCAL_RANK is not set" in local_rank
    assert "init_process_group() before" in wrapper


@pytest.mark.runs
def test_what_the_module_never_had_is_refused_with_where_it_is() -> None:
    ran = alone(
        """
        import smdistributed.dataparallel.torch.distributed as dist
        for name in ("new_group", "reduce_scatter_tensor", "destroy_process_group", "get_local_size", "nonsense"):
            assert not hasattr(dist, name)
            try:
                getattr(dist, name)
            except AttributeError as error:
                print(error)
        """
    )
    lines = ran.stdout.splitlines()
    for name, line in zip(("new_group", "reduce_scatter_tensor", "destroy_process_group"), lines):
        assert f"use torch.distributed.{name}" in line
    assert "LOCAL_WORLD_SIZE" in lines[3]
    assert "no attribute nonsense" in lines[4]


def test_every_entry_warns_once_and_names_its_replacement() -> None:
    ran = ranks.run(
        [1],
        """
        import warnings
        import smdistributed.dataparallel.torch.distributed as sdp
        from smdistributed.dataparallel.torch.parallel import DistributedDataParallel
        t = torch.ones(1)
        calls = {
            "distributed.is_available": sdp.is_available, "distributed.is_initialized": sdp.is_initialized,
            "distributed.get_world_size": sdp.get_world_size, "distributed.get_rank": sdp.get_rank,
            "distributed.get_local_rank": sdp.get_local_rank, "distributed.barrier": sdp.barrier,
            "distributed.all_reduce": lambda: sdp.all_reduce(t), "distributed.broadcast": lambda: sdp.broadcast(t),
            "distributed.all_gather": lambda: sdp.all_gather([t], t),
            "parallel.DistributedDataParallel": lambda: DistributedDataParallel(torch.nn.Linear(1, 1)),
        }
        def told(call):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                call()
            return [(str(one.message), one.filename) for one in caught if one.category is DeprecationWarning]
        assert "distributed.init_process_group is deprecated" in told(sdp.init_process_group)[0][0]
        for name, call in calls.items():
            ((text, place),) = told(call)
            print(name, text)
            assert text.startswith(f"smdistributed.dataparallel.torch.{name} is deprecated: use "), text
            assert place == "<string>", place
            assert told(call) == []
        """,
    )
    assert "use torch.distributed.all_reduce" in ran[0].out
    assert "use torch.nn.parallel.DistributedDataParallel with the backend smddp" in ran[0].out


def test_the_functions_give_what_they_promise_and_mix_with_torchs() -> None:
    launched(
        """
        assert sdp.is_available() and sdp.is_initialized() and dist.get_backend() == "smddp"
        assert (sdp.get_rank(), sdp.get_world_size()) == (rank, 4) == (dist.get_rank(), size)
        assert sdp.get_local_rank() == rank % 2
        for op, wanted in ((sdp.ReduceOp.AVERAGE, 1.5), (sdp.ReduceOp.SUM, 6), (None, 6), (sdp.ReduceOp.MIN, 0),
                           (sdp.ReduceOp.MAX, 3), (dist.ReduceOp.SUM, 6)):
            t = torch.full((7,), float(rank))
            assert sdp.all_reduce(t, op) is None and (t == wanted).all(), (op, t)
        t = torch.full((7,), float(rank)); dist.all_reduce(t, sdp.ReduceOp.AVERAGE, group=sdp.group.WORLD)
        assert (t == 1.5).all()
        t = torch.full((7,), float(rank)); sdp.broadcast(t); assert (t == 0).all()
        t = torch.full((7,), float(rank)); sdp.broadcast(t, 2, dist.group.WORLD); assert (t == 2).all()
        outs = [torch.empty(3) for _ in range(size)]
        sdp.all_gather(outs, torch.full((3,), float(rank)), group=sdp.group.WORLD)
        assert [o[0].item() for o in outs] == [0, 1, 2, 3]
        assert sdp.barrier() is None
        t, zeros = torch.ones(7), torch.full((7,), float(rank))
        for work in (sdp.all_reduce(t, async_op=True), sdp.broadcast(zeros, async_op=True), sdp.barrier(async_op=True)):
            work.wait()
        assert (t == 4).all() and (zeros == 0).all()
        some = dist.new_group([0, 1])
        for call in (sdp.get_rank, sdp.get_world_size, sdp.barrier):
            assert "only group.WORLD" in raised(ValueError, lambda: call(group=object()))
        assert "only group.WORLD" in raised(ValueError, lambda: sdp.all_reduce(t, group=some))
        assert "takes the others" in raised(ValueError, lambda: sdp.all_reduce(t, dist.ReduceOp.PRODUCT))
        linear = torch.nn.Linear(1, 1)
        assert "only group.WORLD" in raised(ValueError, lambda: DistributedDataParallel(linear, process_group=some))
        DistributedDataParallel(linear, process_group=sdp.group.WORLD)
        """
    )


@pytest.mark.runs
def test_all_to_all_single_splits_and_joins() -> None:
    launched(
        """
        out = torch.empty(4)
        sdp.all_to_all_single(out, torch.arange(4.0) + 10 * rank)
        assert out.tolist() == [10.0 * other + rank for other in range(4)]
        counts = [other + 1 for other in range(4)]
        out = torch.empty(4 * (rank + 1))
        sdp.all_to_all_single(out, torch.full((10,), float(rank)), [rank + 1] * 4, counts)
        assert out.tolist() == [float(other) for other in range(4) for _ in range(rank + 1)]
        """
    )


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
@needs(2, 1, "multiplies no float16 on CPUs")
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
def test_ranks_may_finish_their_gradients_in_different_orders() -> None:
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


def test_a_full_buffer_goes_out_while_the_pass_goes_on(tmp_path: Path) -> None:
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
            assert sent == [0, 1, 2], sent  # of four, a layer each; the first layer's gradient is being computed
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
        # Part 0: all ranks; part 1: rank 2 alone; part 2: none; part 3: all but rank 0. In the second step rank 1 uses
        # nothing, in the third all use all.
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
def test_no_sync_adds_up_what_the_next_pass_averages() -> None:
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


def test_buffers_follow_rank_0_unless_told_otherwise() -> None:
    launched(
        """
        for follows in (True, False):
            model = DistributedDataParallel(torch.nn.BatchNorm1d(1), broadcast_buffers=follows)
            norm = model.module
            batch = torch.tensor([[rank - 1.0], [rank + 1.0]])
            for step in range(3):
                model(batch).sum().backward()
            # Each pass moves the mean by a tenth towards the batch's, from where rank 0's was: at 0.
            wanted = 0.1 * rank if follows else (1 - 0.9**3) * rank
            assert abs(norm.running_mean.item() - wanted) < 1e-6, (norm.running_mean, wanted)
            model.eval()
            with torch.no_grad():
                model(batch)
            assert abs(norm.running_mean.item() - (0 if follows else wanted)) < 1e-6
            if rank == 0:
                with torch.no_grad():
                    model(batch)  # alone: nothing is broadcast but after a pass that was reduced
        """,
        hosts=(1, 1),
    )


def test_rank_0s_parameters_and_buffers_are_everyones_from_the_start() -> None:
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


@pytest.mark.runs
def test_ranks_with_different_models_hear_what_differs_first() -> None:
    launched(
        """
        cases = [
            (torch.nn.Linear(4, 3 if rank == 2 else 2), "parameter weight: float32 [2, 4]", "[3, 4]", "rank 2"),
            (torch.nn.Linear(4, 2).to(torch.float64 if rank == 1 else torch.float32), "float32", "float64", "rank 1"),
            (torch.nn.Linear(4, 2, bias=rank != 3), "parameter bias: float32 [2]", "bucket_cap_mb", "rank 3"),
            (torch.nn.BatchNorm1d(2, track_running_stats=rank < 1), "buffer running_mean", "bucket_cap_mb", "rank 1"),
        ]
        for module, zeros, theirs, who in cases:
            text = raised(RuntimeError, lambda: DistributedDataParallel(module))
            assert "on rank 0" in text and zeros in text and theirs in text and text.endswith(who), text
        text = raised(RuntimeError, lambda: DistributedDataParallel(torch.nn.Linear(1, 1), bucket_cap_mb=rank + 1))
        assert "bucket_cap_mb 1" in text and "bucket_cap_mb 2 on rank 1" in text, text
        """
    )


@meets_twice
def test_wrong_arguments_are_refused_with_the_reason() -> None:
    launched(
        """
        linear = torch.nn.Linear(1, 1)
        assert "leave it out" in raised(ValueError, lambda: DistributedDataParallel(linear, device_ids=[0]))
        DistributedDataParallel(linear, device_ids=[])
        assert "output_device" in raised(ValueError, lambda: DistributedDataParallel(linear, output_device=0))
        assert "above 0" in raised(ValueError, lambda: DistributedDataParallel(linear, bucket_cap_mb=0))
        assert "trained" in raised(RuntimeError, lambda: DistributedDataParallel(linear.requires_grad_(False)))
        sparse = DistributedDataParallel(torch.nn.Embedding(3, 2, sparse=True))
        assert "weight is sparse" in raised(RuntimeError, sparse(torch.tensor([1])).sum().backward)
        dist.destroy_process_group()
        dist.init_process_group("gloo")
        linear.requires_grad_(True)
        assert "the process group has gloo" in raised(RuntimeError, lambda: DistributedDataParallel(linear))
        """,
        hosts=(2,),
    )


@pytest.mark.runs
@needs(2, 3, "has no GradScaler for CPUs")
def test_an_infinite_gradient_of_one_rank_makes_all_skip_the_step() -> None:
    launched(
        """
        torch.manual_seed(0)
        model = DistributedDataParallel(torch.nn.Linear(4, 4))
        scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        skipped, scales = [], []
        for step in range(4):
            before = [one.detach().clone() for one in model.parameters()]
            optimizer.zero_grad()
            x = torch.ones(1, 4)
            if (step, rank) == (1, 2):
                x[0, 0] = float("inf")
            with torch.autocast("cpu", dtype=torch.float16):
                loss = model(x).float().sum()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            skipped.append(all(torch.equal(a, b) for a, b in zip(before, model.parameters())))
            scales.append(scaler.get_scale())
        assert skipped == [False, True, False, False] and scales == [64, 32, 32, 32], (skipped, scales)
        half = DistributedDataParallel(torch.nn.Linear(4, 4).half())
        half(torch.full((1, 4), float("inf") if rank == 2 else 1.0).half()).float().sum().backward()
        assert not torch.isfinite(half.module.weight.grad).any()
        """
    )


@pytest.mark.runs
def test_recomputed_parts_and_several_models_in_one_backward_pass() -> None:
    launched(
        """
        from torch.utils.checkpoint import checkpoint
        class Recomputed(torch.nn.Module):
            def __init__(self, reentrant):
                super().__init__()
                self.parts = torch.nn.ModuleList(torch.nn.Linear(6, 6) for _ in range(4))
                self.reentrant = reentrant
            def forward(self, x):
                for number, part in enumerate(self.parts):
                    x = checkpoint(part, x, use_reentrant=self.reentrant) if number % 2 else part(x)
                return {"loss": x.tanh().sum(), "unused": [x]}
        for reentrant in (True, False):
            torch.manual_seed(0)
            one, two = (DistributedDataParallel(Recomputed(reentrant), bucket_cap_mb=0.0001) for _ in range(2))
            both = list(one.parameters()) + list(two.parameters())
            for step in range(2):
                x = torch.randn(2, 6) + rank
                one.zero_grad(); two.zero_grad()
                loss = one.module(x)["loss"] + two.module(x)["loss"]
                wanted = torch.autograd.grad(loss, both) if not reentrant else None
                if reentrant:
                    loss.backward()
                    wanted = [p.grad.clone() for p in both]
                    one.zero_grad(); two.zero_grad()
                [dist.all_reduce(g, dist.ReduceOp.AVG) for g in wanted]
                (one(x)["loss"] + two(x)["loss"]).backward()
                assert all(torch.equal(p.grad, g) for p, g in zip(both, wanted))
                # The wrapper itself within a checkpoint.
                one.zero_grad()
                checkpoint(lambda x: one(x)["loss"], x.requires_grad_(), use_reentrant=reentrant).backward()
                assert all(torch.allclose(p.grad, g) for p, g in zip(one.parameters(), wanted))
        """,
        hosts=(1, 1),
    )


def test_an_output_of_an_unknown_kind_is_averaged_at_the_first_gradient() -> None:
    launched(
        """
        class Answer:
            def __init__(self, loss): self.loss = loss
        class Answers(torch.nn.Linear):
            def forward(self, x): return Answer(super().forward(x).sum())
        model = DistributedDataParallel(Answers(3, 2))
        x = torch.full((1, 3), float(rank))
        for step in range(2):
            model.zero_grad()
            model(x).loss.backward()
            assert (model.module.weight.grad == 0.5).all()
        with model.no_sync():
            model.zero_grad()
            model(x).loss.backward()
        assert (model.module.weight.grad == rank).all()
        """,
        hosts=(1, 1),
    )


def test_a_copy_evaluates_and_does_not_train() -> None:
    launched(
        """
        import copy, io, pickle
        model = DistributedDataParallel(torch.nn.Linear(3, 2))
        model(torch.ones(1, 3)).sum().backward()
        twin = copy.deepcopy(model)
        assert list(twin.state_dict()) == list(model.state_dict())
        with torch.no_grad():
            assert torch.equal(twin(torch.ones(1, 3)), model(torch.ones(1, 3)))
        assert "wrap its .module" in raised(RuntimeError, lambda: twin(torch.ones(1, 3)))
        twin = DistributedDataParallel(pickle.loads(pickle.dumps(model)).module)
        twin(torch.full((1, 3), float(rank))).sum().backward()
        assert (twin.module.weight.grad == 0.5).all()
        """,
        hosts=(1, 1),
    )


def test_after_a_backward_pass_that_failed_the_model_says_so() -> None:
    launched(
        """
        model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)))
        def fail(_): raise ValueError("a bug of the script")
        out = model(torch.ones(1, 3))
        handle = model.module[0].weight.register_hook(fail)
        assert "a bug" in raised(ValueError, out.sum().backward)
        handle.remove()
        assert "the last backward()" in raised(RuntimeError, lambda: model(torch.ones(1, 3)))
        with torch.no_grad():
            model(torch.ones(1, 3))
        """,
        hosts=(1, 1),
    )


@meets_twice
def test_a_model_does_not_outlive_its_process_group() -> None:
    launched(
        """
        model = DistributedDataParallel(torch.nn.Linear(3, 3))
        model(torch.ones(1, 3)).sum().backward()
        dist.destroy_process_group()
        assert "is gone" in raised(RuntimeError, model(torch.ones(1, 3)).sum().backward)
        sdp.init_process_group()
        model = DistributedDataParallel(model.module)
        model.zero_grad()
        model(torch.full((1, 3), float(rank))).sum().backward()
        assert (model.module.weight.grad == 0.5).all()
        """,
        hosts=(1, 1),
    )


def test_a_rank_that_dies_is_raised_by_backward_on_the_others() -> None:
    body = """
    model = DistributedDataParallel(torch.nn.Linear(300, 300), broadcast_buffers=False)
    model(torch.ones(1, 300)).sum().backward()
    out = model(torch.ones(1, 300)).sum()
    meet("ready")
    if rank == 2: os._exit(9)
    print("raised", raised(dist.DistBackendError, out.backward), flush=True)
    time.sleep(600)  # the loss of one that has raised would be raised on those that have not
    """
    job = ranks.start([2, 2], INIT + textwrap.dedent(body))
    job.wait_for(r"raised .*\n", of=[0, 1, 3])
    job.kill()
    outcomes = job.finish()
    assert outcomes[2].code == 9
    for outcome in outcomes:
        if outcome.rank != 2:
            assert "rank 2" in outcome.out, (outcome.out, outcome.err)
            assert "group 'gradients of model 0'" in outcome.out, outcome.out


def test_a_rank_without_a_backward_pass_is_named_when_the_others_time_is_over() -> None:
    body = """
    from datetime import timedelta
    sdp.init_process_group(timeout=timedelta(seconds=5))
    meet("initialized")
    model = DistributedDataParallel(torch.nn.Linear(3, 3))
    out = model(torch.ones(1, 3)).sum()
    if rank == 0:
        print("raised", raised(dist.DistBackendError, out.backward), flush=True)
    time.sleep(600)
    """
    job = ranks.start([1, 1], IMPORTS + textwrap.dedent(body))
    job.wait_for(r"raised .*\n", of=[0])
    job.kill()
    said = job.finish()[0].out
    assert "rank 1 (host algo-2)" in said and "group 'gradients of model 0'" in said


@pytest.mark.runs
def test_it_works_under_torchs_debugging() -> None:
    launched(
        """
        model = DistributedDataParallel(torch.nn.Linear(3, 2))
        model(torch.full((1, 3), float(rank))).sum().backward()
        assert (model.module.weight.grad == 0.5).all()
        """,
        hosts=(1, 1),
        TORCH_DISTRIBUTED_DEBUG="DETAIL",
    )


def test_batches_are_of_one_type_even_and_within_the_limit() -> None:
    def sizes(tensors: "list[torch.Tensor]", most: int) -> "list[list[int]]":
        return [
            [tensors[place].numel() * tensors[place].element_size() for place in one] for one in batches(tensors, most)
        ]

    ten = [torch.empty(10) for _ in range(9)]
    assert sizes(ten, 160) == [[40, 40, 40], [40, 40, 40], [40, 40, 40]]  # and not 4, 4 and 1
    assert sizes(ten, 10) == [[40]] * 9
    assert sizes([*ten[:2], torch.empty(1000), *ten[:2]], 200) == [[40, 40], [4000], [40, 40]]
    mixed = [torch.empty(4, dtype=torch.float16 if number % 2 else torch.float32) for number in range(6)]
    assert sorted(sizes(mixed, 1000)) == [[8, 8, 8], [16, 16, 16]]
    every = [place for one in batches(mixed, 1) for place in one]
    assert sorted(every) == list(range(6))
