"""The first generation of SageMaker's data parallel library: its functions and import paths."""

import pytest
import ranks
from first_generation_ranks import alone, launched
from torch_version import needs_torch

pytestmark = [pytest.mark.torch, needs_torch]


def test_both_import_paths_give_one_class_and_scripts_can_train_alone() -> None:
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
def test_calls_without_a_launcher_are_errors() -> None:
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
def test_missing_functions_name_their_replacement() -> None:
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


def test_every_function_warns_once_on_rank_0_and_names_its_replacement() -> None:
    ran = ranks.run(
        [2],
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
            "distributed.all_gather": lambda: sdp.all_gather([torch.ones(1), torch.ones(1)], t),
            "parallel.DistributedDataParallel": lambda: DistributedDataParallel(torch.nn.Linear(1, 1)),
        }
        def warnings_of(call):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                call()
            return [(str(one.message), one.filename) for one in caught if one.category is DeprecationWarning]
        begun = warnings_of(sdp.init_process_group)
        if os.environ["RANK"] == "1":
            assert begun == []
            for call in calls.values(): assert warnings_of(call) == [] and warnings_of(call) == []
            raise SystemExit
        assert "distributed.init_process_group is deprecated" in begun[0][0]
        for name, call in calls.items():
            ((text, place),) = warnings_of(call)
            print(name, text)
            assert text.startswith(f"smdistributed.dataparallel.torch.{name} is deprecated: use "), text
            assert place == "<string>", place
            assert warnings_of(call) == []
        """,
    )
    assert "use torch.distributed.all_reduce" in ran[0].out
    assert "use torch.nn.parallel.DistributedDataParallel with the backend smddp" in ran[0].out


def test_functions_give_right_results_and_mix_with_torchs() -> None:
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
            assert "must be None or group.WORLD" in raised(ValueError, lambda: call(group=object()))
        assert "must be None or group.WORLD" in raised(ValueError, lambda: sdp.all_reduce(t, group=some))
        assert "for other operations" in raised(ValueError, lambda: sdp.all_reduce(t, dist.ReduceOp.PRODUCT))
        linear = torch.nn.Linear(1, 1)
        wrap = lambda: DistributedDataParallel(linear, process_group=some)
        assert "must be None or group.WORLD" in raised(ValueError, wrap)
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
