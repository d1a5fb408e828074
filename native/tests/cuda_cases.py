"""What scripts do with CUDA, on a host that imitates two GPUs. Run as a program: each function is a case, and how it
ended is printed as one JSON document a line. test_cuda_on_cpu.py asks for it."""

import copy
import io
import json
import os
import sys
import threading
import traceback
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, TensorDataset

from smdp_engine import cuda_on_cpu

cuda_on_cpu.install()
CPU = torch.device("cpu")


def _refused(call: Any, *words: str) -> None:
    try:
        call()
    except Exception as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError("nothing was raised")


def there_are_as_many_gpus_as_workers() -> None:
    assert torch.cuda.is_available()
    assert torch.cuda.device_count() == 2
    assert len(torch.cuda.default_generators) == 2


def visible_devices_hide_some() -> None:
    for visible, count in (("1", 1), ("0,1", 2), ("", 0), ("-1", 0), ("1,7,0", 1), ("no", 0)):
        os.environ["CUDA_VISIBLE_DEVICES"] = visible
        assert torch.cuda.device_count() == count, visible
        assert torch.cuda.is_available() == (count > 0)
    _refused(lambda: torch.zeros(1).cuda(), "No CUDA GPUs are available")
    del os.environ["CUDA_VISIBLE_DEVICES"]


def a_gpu_is_chosen_by_thread() -> None:
    torch.cuda.set_device("cuda:1")
    found = []
    thread = threading.Thread(target=lambda: found.append(torch.cuda.current_device()))
    thread.start()
    thread.join()
    assert (torch.cuda.current_device(), found) == (1, [0])
    with torch.cuda.device(0):
        assert torch.zeros(1, device="cuda").get_device() == 0
    assert torch.zeros(1, device="cuda").get_device() == 1
    torch.cuda.set_device(torch.device("cuda", 0))


def a_gpu_that_is_not_there_is_refused() -> None:
    for call in (
        lambda: torch.cuda.set_device(2),
        lambda: torch.zeros(1).cuda(2),
        lambda: torch.zeros(1).to("cuda:2"),
        lambda: torch.zeros(1, device=torch.device("cuda", 2)),
        lambda: torch.cuda.get_device_properties(2),
        lambda: nn.Linear(1, 1).cuda(2),
        lambda: torch.cuda.Stream(2),
    ):
        _refused(call, "invalid device ordinal", "imitates 2 GPUs")


def tensors_are_made_on_gpus() -> None:
    made = [
        torch.zeros(2, device="cuda"),
        torch.tensor([1, 2], device="cuda:1"),
        torch.as_tensor([1.0], device=torch.device("cuda")),
        torch.randn(2, device=0),
        torch.arange(3, device="cuda"),
        torch.randperm(3, device="cuda"),
        torch.zeros(2).new_ones(3, device="cuda"),
        torch.zeros_like(torch.ones(2), device="cuda"),
        torch.linspace(0, 1, 3, device="cuda"),
        nn.Parameter(torch.ones(2, device="cuda")),
        nn.Linear(2, 2, device="cuda").weight,
        nn.LSTM(2, 2, device="cuda").weight_hh_l0,
    ]
    assert [one.is_cuda for one in made] == [True] * len(made)
    assert {one.device for one in made} == {CPU}
    assert not torch.zeros(1).is_cuda
    assert torch.zeros(1).get_device() == -1


def what_moves_to_a_gpu_is_a_copy() -> None:
    for move in (
        lambda x: x.cuda(),
        lambda x: x.cuda(0, non_blocking=True),
        lambda x: x.to("cuda"),
        lambda x: x.to(torch.device("cuda", 0), non_blocking=True),
        lambda x: x.to(0),
        lambda x: x.to(device="cuda", dtype=torch.float32),
        lambda x: x.to(torch.zeros(1, device="cuda")),
        lambda x: x.type("torch.cuda.FloatTensor"),
        lambda x: x.pin_memory().cuda(),
    ):
        before = torch.zeros(3)
        after = move(before)
        after.add_(1)
        assert after.is_cuda
        assert before.tolist() == [0, 0, 0]
        assert after.cuda() is after


def a_tensors_device_leads_to_its_gpu() -> None:
    """It is the CPU, whatever is asked of it; but what goes to it goes to where the tensor is."""
    weight = nn.Linear(2, 2).cuda(1).weight
    assert weight.device == CPU
    assert repr(weight.device) == "device(type='cpu')"
    before = torch.zeros(2)
    after = before.to(weight.device)
    after.add_(1)
    assert before.sum() == 0
    assert after.get_device() == torch.ones(1, device=weight.device).get_device() == 1
    assert after.to(weight.device) is after
    assert not after.to("cpu").is_cuda
    torch.cuda.synchronize(weight.device)


def what_moves_back_is_a_copy() -> None:
    weight = nn.Linear(2, 2).cuda().weight
    for kept in (weight.detach().cpu(), weight.data.to("cpu"), weight.detach().to(CPU)):
        before = kept.clone()
        weight.data.add_(1)
        assert torch.equal(kept, before)
        assert not kept.is_cuda
    plain = torch.zeros(2)
    assert plain.cpu() is plain


def what_is_computed_stays_on_the_gpu() -> None:
    x = torch.ones(4, device="cuda:1")
    parts = x.chunk(2)
    assert all(one.is_cuda for one in (x + 1, x.view(2, 2), x[1:], *parts, torch.cat([x, x]), copy.deepcopy(x)))
    assert (x * 2).get_device() == 1
    here = torch.zeros(4)
    here.copy_(x)
    assert not here.is_cuda


def a_storage_that_is_gone_leaves_nothing() -> None:
    from smdp_engine.cuda_on_cpu.placement import placement

    for _ in range(10_000):
        torch.ones(3, device="cuda")
    assert len(placement._gpu) < 5000
    assert not any(torch.empty(3).is_cuda for _ in range(100))


def a_module_moves_with_its_parameters() -> None:
    host = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    before = dict(host.state_dict())
    first = host[0].weight
    model = host.cuda()
    assert model[0].weight is first
    assert all(one.is_cuda for one in (*model.parameters(), *model.buffers()))
    model(torch.randn(4, 2).cuda()).sum().backward()
    assert first.grad.is_cuda
    with torch.no_grad():
        first.add_(1)
    assert not torch.equal(before["0.weight"], first)
    assert not any(one.is_cuda for one in model.cpu().parameters())


def a_leaf_that_is_trained_stays_a_leaf() -> None:
    weight = torch.randn(3, device="cuda", requires_grad=True).cuda()
    weight.sum().backward()
    assert weight.grad.tolist() == [1, 1, 1]


def functions_and_hooks_of_autograd_find_gpus() -> None:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * torch.full((1,), 2.0, device="cuda")

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient * torch.full((1,), 2.0, device="cuda")

    x = torch.ones(2, device="cuda", requires_grad=True)
    x.register_hook(lambda gradient: gradient + torch.ones(1, device="cuda"))
    Twice.apply(x).sum().backward()
    assert x.grad.tolist() == [3, 3]
    assert torch.autograd.grad(Twice.apply(x).sum(), x)[0].is_cuda
    for reentrant in (True, False):
        checkpoint(lambda y: (y * torch.ones(1, device="cuda")).cos(), x, use_reentrant=reentrant).sum().backward()


def threads_find_gpus() -> None:
    found = []

    class Subclass(threading.Thread):
        def run(self) -> None:
            found.append(torch.ones(1, device="cuda").is_cuda)

    threads = [Subclass(), threading.Thread(target=lambda: found.append(torch.ones(1).cuda().is_cuda))]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert found == [True, True]


class _Made(Dataset):  # type: ignore[misc, type-arg, unused-ignore]
    def __len__(self) -> int:
        return 4

    def __getitem__(self, at: int) -> Any:
        return torch.full((2,), float(at), device="cuda").cpu()


def loaders_pin_and_start_workers() -> None:
    for settings in ({}, {"num_workers": 1}, {"num_workers": 1, "multiprocessing_context": "spawn"}):
        batches = list(DataLoader(_Made(), batch_size=2, pin_memory=True, **settings))
        assert [one.tolist() for one in batches] == [[[0, 0], [1, 1]], [[2, 2], [3, 3]]], settings
    data = torch.zeros(4)
    for (batch,) in DataLoader(TensorDataset(data), batch_size=2, pin_memory=True):
        batch.cuda().add_(1)
    assert data.sum() == 0
    assert torch.zeros(2, pin_memory=True).tolist() == [0, 0]


def default_devices_and_contexts() -> None:
    with torch.device("cuda"):
        assert torch.zeros(1).is_cuda
        assert nn.Linear(2, 2).weight.is_cuda
        assert not torch.zeros(1, device="cpu").is_cuda
    assert not torch.zeros(1).is_cuda
    torch.set_default_device("cuda:1")
    assert torch.zeros(1).get_device() == 1
    torch.set_default_device(None)
    torch.set_default_tensor_type("torch.cuda.FloatTensor")
    assert torch.zeros(1).dtype == torch.float32
    torch.set_default_tensor_type(torch.FloatTensor)
    assert torch.cuda.HalfTensor([1]).dtype == torch.float16


def checkpoints_go_to_gpus() -> None:
    file = io.BytesIO()
    torch.save({"weight": torch.arange(3.0, device="cuda")}, file)
    for where in ("cuda", "cuda:1", torch.device("cuda", 1), {"cpu": "cuda:1"}, lambda s, _: s.cuda(1)):
        file.seek(0)
        weight = torch.load(file, map_location=where)["weight"]
        assert weight.is_cuda
        assert weight.tolist() == [0, 1, 2]
    file.seek(0)
    assert not torch.load(file)["weight"].is_cuda  # a file says where tensors lay, and that was the CPU
    file.seek(0)
    _refused(lambda: torch.load(file, map_location="cuda:5"), "invalid device ordinal")


def a_file_from_a_gpu_can_be_read() -> None:
    file = io.BytesIO()
    tag = torch.serialization.location_tag
    torch.serialization.location_tag = lambda storage: "cuda:1"
    torch.save(torch.arange(3.0), file)
    torch.serialization.location_tag = tag
    file.seek(0)
    assert torch.load(file).get_device() == 1
    file.seek(0)
    assert not torch.load(file, map_location="cpu").is_cuda


def autocast_lowers_as_asked() -> None:
    a = torch.randn(4, 4, device="cuda")
    for context, dtype in (
        (torch.autocast("cuda"), torch.float16),
        (torch.autocast(device_type="cuda", dtype=torch.bfloat16), torch.bfloat16),
        (torch.amp.autocast("cuda", torch.float16), torch.float16),
        (torch.autocast("cuda", enabled=False), torch.float32),
    ):
        with context:
            assert (a @ a).dtype == dtype
            assert torch.is_autocast_enabled() == (dtype != torch.float32)
            if dtype != torch.float32:
                assert torch.get_autocast_gpu_dtype() == dtype
    assert not torch.is_autocast_enabled()
    assert torch.get_autocast_gpu_dtype() == torch.float16


def custom_functions_cast_their_inputs() -> None:
    from torch.amp import custom_bwd, custom_fwd

    class Product(torch.autograd.Function):
        @staticmethod
        @custom_fwd(device_type="cuda", cast_inputs=torch.float32)
        def forward(ctx: Any, a: Any) -> Any:
            assert a.dtype == torch.float32
            assert not torch.is_autocast_enabled()
            return a * 2

        @staticmethod
        @custom_bwd(device_type="cuda")
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient * 2

    a = torch.randn(2, 2, device="cuda", requires_grad=True)
    with torch.autocast("cuda"):
        Product.apply(a @ a).sum().backward()
    assert a.grad is not None


def a_scaler_skips_a_step_that_overflowed() -> None:
    weight = nn.Parameter(torch.ones(1, device="cuda"))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = torch.amp.GradScaler("cuda", init_scale=4.0, growth_interval=1)
    assert scaler.is_enabled()
    for factor, value, scale in ((1.0, 0.0, 8.0), (float("inf"), 0.0, 4.0)):
        optimizer.zero_grad()
        scaler.scale((weight * factor).sum()).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        assert (weight.item(), scaler.get_scale()) == (value, scale)


def optimizers_step() -> None:
    for kind in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW):
        for setting in ({}, {"foreach": True}, {"fused": True}):
            weight = nn.Parameter(torch.ones(3, device="cuda"))
            optimizer = kind([weight], lr=0.1, **setting)
            weight.sum().backward()
            optimizer.step()
            assert weight[0].item() < 1, (kind, setting)


def streams_keep_order_and_events_measure() -> None:
    side = torch.cuda.Stream(priority=-1)
    with torch.cuda.stream(side):
        assert torch.cuda.current_stream() is side
        x = torch.ones(2, device="cuda")
    assert torch.cuda.current_stream() is torch.cuda.default_stream()
    torch.cuda.current_stream().wait_stream(side)
    x.record_stream(torch.cuda.current_stream())
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    _refused(lambda: start.elapsed_time(end), "recorded")
    start.record()
    threading.Event().wait(0.02)
    end.record(side)
    side.synchronize()
    assert 20 <= start.elapsed_time(end) < 10_000
    assert end.query()
    _refused(lambda: torch.cuda.Event().elapsed_time(end), "enable_timing=True")


def figures_are_of_the_host_or_zero() -> None:
    free, total = torch.cuda.mem_get_info()
    assert 0 < free <= total == torch.cuda.get_device_properties(0).total_memory
    assert total == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert "CPU" in torch.cuda.get_device_name(torch.zeros(1, device="cuda").device)
    assert torch.cuda.get_device_capability() == (0, 0)
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
        assert getattr(torch.cuda, name)() == getattr(torch.cuda.memory, name)("cuda:1") == 0
    assert torch.cuda.memory_stats()["allocated_bytes.all.peak"] == 0
    assert "no memory of a GPU" in torch.cuda.memory_summary()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.empty_cache()
    torch.cuda.synchronize()


def random_numbers_are_those_of_the_cpu() -> None:
    torch.manual_seed(3)
    expected = torch.randn(4).tolist()
    torch.manual_seed(3)
    torch.cuda.manual_seed_all(4)
    assert torch.randn(4, device="cuda").tolist() == expected
    state = torch.cuda.get_rng_state()
    torch.cuda.manual_seed(5)
    assert torch.cuda.initial_seed() == 5
    torch.cuda.set_rng_state(state)
    assert torch.equal(torch.cuda.get_rng_state(), state)
    generator = torch.Generator(device="cuda").manual_seed(3)
    assert torch.randn(4, device="cuda", generator=generator).tolist() == expected
    assert isinstance(torch.default_generator, torch.Generator)
    assert isinstance(generator, torch.Generator)
    with torch.random.fork_rng(devices=[0, 1]):
        torch.manual_seed(1)


def settings_of_cudnn_are_taken() -> None:
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cuda.matmul.allow_tf32 = True
    assert torch.backends.cudnn.enabled
    assert torch.version.cuda is None or isinstance(torch.version.cuda, str)


def ranges_and_profilers_see_the_cpu() -> None:
    from torch.profiler import ProfilerActivity, profile

    with torch.cuda.nvtx.range("step"):
        torch.cuda.nvtx.range_push("inner")
        torch.cuda.nvtx.range_pop()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        torch.mm(torch.ones(2, 2, device="cuda"), torch.ones(2, 2, device="cuda"))
    assert any(one.key == "aten::mm" for one in seen.key_averages())


def what_has_no_imitation_names_the_page() -> None:
    for call in (
        torch.cuda.CUDAGraph,
        lambda: torch.cuda.graph(None),
        lambda: torch.cuda.make_graphed_callables(None, ()),
        torch.cuda.memory_snapshot,
        torch.cuda.memory._record_memory_history,
        torch.cuda.utilization,
        torch.cuda.nccl.version,
        torch.cuda.cudart,
        lambda: torch.cuda.ExternalStream(0),
        lambda: torch.cuda.Event().ipc_handle(),
        lambda: nn.DataParallel(nn.Linear(1, 1)),
        lambda: torch.compile(nn.Linear(1, 1)),
        torch.compile(_refused),
        lambda: torch.distributed.init_process_group("nccl"),
        lambda: torch.distributed.init_process_group(backend="cpu:gloo,cuda:nccl"),
    ):
        _refused(call, "is not imitated by --cuda-on-cpu", "docs/cuda-on-cpu.md")


def everything_public_is_imitated_or_refused() -> None:
    """Whatever a release of torch adds: no function of torch.cuda may be left that reaches for a driver."""
    from smdp_engine.cuda_on_cpu.patches import _CUDA, _KEPT

    for name in set(torch.cuda.__all__) - set(_CUDA) - _KEPT:
        value = getattr(torch.cuda, name)
        if callable(value):
            _refused(value, f"torch.cuda.{name} is not imitated")


def installing_twice_changes_nothing() -> None:
    before = torch.cuda.is_available, torch.Tensor.record_stream, torch.autocast.__init__
    cuda_on_cpu.install()
    assert before == (torch.cuda.is_available, torch.Tensor.record_stream, torch.autocast.__init__)


def main() -> None:
    own = [one for one in globals().values() if getattr(one, "__module__", "") == "__main__"]
    for case in [one for one in own if not one.__name__.startswith("_") and one is not main]:
        try:
            case()
            told = ""
        except Exception:
            told = traceback.format_exc()
        sys.stdout.write(json.dumps({"case": case.__name__, "error": told}) + "\n")


if __name__ == "__main__":
    main()
