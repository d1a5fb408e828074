"""The first generation's DistributedDataParallel: errors, unusual models and failed ranks."""

import textwrap

import pytest
import ranks
from first_generation_ranks import IMPORTS, INIT, launched, meets_twice, needs
from torch_version import needs_torch

pytestmark = [pytest.mark.torch, needs_torch]


@pytest.mark.runs
def test_different_models_error_has_the_first_difference() -> None:
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
        assert "omit it" in raised(ValueError, lambda: DistributedDataParallel(linear, device_ids=[0]))
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
        dist.barrier()  # a rank that ends closes connections that Gloo still makes on the other
        """,
        hosts=(2,),
    )


@pytest.mark.runs
@needs(2, 3, "has no GradScaler for CPUs")
def test_infinite_gradient_of_one_rank_skips_the_step_on_all() -> None:
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
def test_recomputed_parts_and_several_models_are_averaged_in_one_pass() -> None:
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


def test_unknown_output_type_is_averaged_from_the_first_gradient() -> None:
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


KEPT = """
class Answer:
    def __init__(self, loss): self.loss = loss
class Kept(torch.nn.Module):  # returns a tensor with a gradient, but its losses do not depend on this tensor
    def __init__(self):
        super().__init__()
        self.body, self.head = torch.nn.Linear(3, 3), torch.nn.Linear(3, 2)
    def forward(self, x, through=lambda part, x: part(x)):
        hidden = through(self.body, x)
        self.loss = hidden.sum()
        return {"logits": self.head(hidden.detach()), "answer": Answer(hidden.sum())}
x = torch.full((1, 3), float(rank), requires_grad=True)
"""


def test_loss_that_depends_on_no_output_is_averaged() -> None:
    launched(
        KEPT
        + textwrap.dedent("""
        kept = lambda out: model.module.loss
        for loss in (kept, lambda out: out["answer"].loss, lambda out: kept(out) + out["logits"].sum()):
            model = DistributedDataParallel(Kept(), bucket_cap_mb=0.00001)
            body = model.module.body
            for step in range(2):
                model.zero_grad()
                loss(model(x)).backward()
                assert (body.weight.grad == 0.5).all() and (body.bias.grad == 1).all(), body.weight.grad
                model.zero_grad()
                loss(model.module(x)).backward()  # past the wrapper
                assert (body.weight.grad == rank).all()
                model(x)  # no pass follows it
                with model.no_sync():
                    loss(model(x)).backward()
                assert (body.weight.grad == 2 * rank).all()
        """),
        hosts=(1, 1),
    )


def test_loss_of_an_outputs_gradient_is_averaged() -> None:
    launched(
        """
        class Square(torch.nn.Linear):
            def forward(self, x): return super().forward(super().forward(x).square())
        for clears in (True, False):
            torch.manual_seed(0)
            model, alone = DistributedDataParallel(Square(3, 3)), Square(3, 3)
            alone.load_state_dict(model.module.state_dict())
            for step in range(2):
                for one in (model, alone):
                    one.zero_grad(set_to_none=clears)
                    x = torch.full((1, 3), rank + 1.0, requires_grad=True)
                    slope, = torch.autograd.grad(one(x).sum(), x, create_graph=True)
                    slope.square().sum().backward()
                dist.all_reduce(alone.weight.grad, dist.ReduceOp.AVG)
                assert torch.allclose(model.module.weight.grad, alone.weight.grad), (clears, step)
        """,
        hosts=(1, 1),
    )


@pytest.mark.runs
@pytest.mark.parametrize("recomputed", ["(0, 1)", "(1,)"])
def test_recomputed_part_whose_loss_is_no_output_is_an_error(recomputed: str) -> None:
    launched(
        """
        from torch.utils.checkpoint import checkpoint
        class Recomputed(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.parts = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(2))
            def forward(self, x, reentrant):
                for number, part in enumerate(self.parts):
                    x = checkpoint(part, x, use_reentrant=reentrant) if number in RECOMPUTED else part(x)
                self.loss = x.sum()
        model = DistributedDataParallel(Recomputed())
        x = torch.full((1, 3), float(rank), requires_grad=True)
        model(x, reentrant=True)
        text = raised(RuntimeError, lambda: model.module.loss.backward())  # a part of the pass, which ends before it
        assert "gradient of parts.1" in text and "use_reentrant=False" in text, text
        model.zero_grad()
        model(x, reentrant=False)
        model.module.loss.backward()
        assert (model.module.parts[1].bias.grad == 1).all()
        # The wrapper itself within a checkpoint.
        model.zero_grad()
        checkpoint(lambda x: (model(x, False), model.module.loss)[1], x, use_reentrant=True).backward()
        assert (model.module.parts[1].bias.grad == 1).all()
        """.replace("RECOMPUTED", recomputed),
        hosts=(1, 1),
    )


def test_copy_of_a_wrapped_model_evaluates_but_does_not_train() -> None:
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


def test_model_refuses_to_continue_after_a_failed_backward_pass() -> None:
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
def test_model_without_its_process_group_is_an_error() -> None:
    launched(
        """
        model = DistributedDataParallel(torch.nn.Linear(3, 3))
        model(torch.ones(1, 3)).sum().backward()
        dist.destroy_process_group()
        assert "no longer exists" in raised(RuntimeError, model(torch.ones(1, 3)).sum().backward)
        sdp.init_process_group()
        model = DistributedDataParallel(model.module)
        model.zero_grad()
        model(torch.full((1, 3), float(rank))).sum().backward()
        assert (model.module.weight.grad == 0.5).all()
        """,
        hosts=(1, 1),
    )


def test_backward_raises_when_another_rank_dies() -> None:
    body = """
    model = DistributedDataParallel(torch.nn.Linear(300, 300), broadcast_buffers=False)
    model(torch.ones(1, 300)).sum().backward()
    out = model(torch.ones(1, 300)).sum()
    meet("ready")
    if rank == 2: os._exit(9)
    print("raised", raised(dist.DistBackendError, out.backward), flush=True)
    time.sleep(600)  # a rank that exits after its error would raise an error on ranks without one
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


def test_rank_without_a_backward_pass_is_named_at_the_deadline() -> None:
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
def test_wrapper_works_with_torchs_debug_checks() -> None:
    launched(
        """
        model = DistributedDataParallel(torch.nn.Linear(3, 2))
        model(torch.full((1, 3), float(rank))).sum().backward()
        assert (model.module.weight.grad == 0.5).all()
        """,
        hosts=(1, 1),
        TORCH_DISTRIBUTED_DEBUG="DETAIL",
    )


def test_batches_have_one_type_and_even_sizes_within_the_limit() -> None:
    import torch

    from smdp_engine.first_generation.fusion import batches  # imports torch

    def sizes(tensors: "list[torch.Tensor]", most: int) -> "list[list[int]]":
        return [
            [tensors[place].numel() * tensors[place].element_size() for place in one] for one in batches(tensors, most)
        ]

    ten = [torch.empty(10) for _ in range(9)]
    assert sizes(ten, 160) == [[40, 40, 40], [40, 40, 40], [40, 40, 40]]  # not 4, 4 and 1
    assert sizes(ten, 10) == [[40]] * 9
    assert sizes([*ten[:2], torch.empty(1000), *ten[:2]], 200) == [[40, 40], [4000], [40, 40]]
    mixed = [torch.empty(4, dtype=torch.float16 if number % 2 else torch.float32) for number in range(6)]
    assert sorted(sizes(mixed, 1000)) == [[8, 8, 8], [16, 16, 16]]
    every = [place for one in batches(mixed, 1) for place in one]
    assert sorted(every) == list(range(6))
