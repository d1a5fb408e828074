"""The CUDA emulation with two GPUs: autocast, streams, statistics and other parts of torch. Run by
test_cuda_on_cpu.py."""

import os
import threading
from typing import Any

import torch
from case_runner import refused, run_cases
from torch import nn

from smdp_engine import cuda_on_cpu

cuda_on_cpu.install()
CPU = torch.device("cpu")


def autocast_uses_the_requested_type() -> None:
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


def scaler_skips_a_step_with_overflow() -> None:
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
    refused(lambda: start.elapsed_time(end), "recorded")
    start.record()
    threading.Event().wait(0.02)
    end.record(side)
    side.synchronize()
    assert 20 <= start.elapsed_time(end) < 10_000
    assert end.query()
    refused(lambda: torch.cuda.Event().elapsed_time(end), "enable_timing=True")


def statistics_are_of_the_host_or_zero() -> None:
    free, total = torch.cuda.mem_get_info()
    assert 0 < free <= total == torch.cuda.get_device_properties(0).total_memory
    assert total == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert "CPU" in torch.cuda.get_device_name(torch.zeros(1, device="cuda").device)
    assert torch.cuda.get_device_capability() == (0, 0)
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
        assert getattr(torch.cuda, name)() == getattr(torch.cuda.memory, name)("cuda:1") == 0
    assert torch.cuda.memory_stats()["allocated_bytes.all.peak"] == 0
    assert "no GPU memory" in torch.cuda.memory_summary()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.empty_cache()
    torch.cuda.synchronize()


def random_numbers_are_the_cpus() -> None:
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


def cudnn_settings_are_accepted() -> None:
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cuda.matmul.allow_tf32 = True
    assert torch.backends.cudnn.enabled
    assert torch.version.cuda is None or isinstance(torch.version.cuda, str)


def profilers_record_the_cpu() -> None:
    from torch.profiler import ProfilerActivity, profile

    with torch.cuda.nvtx.range("step"):
        torch.cuda.nvtx.range_push("inner")
        torch.cuda.nvtx.range_pop()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        torch.mm(torch.ones(2, 2, device="cuda"), torch.ones(2, 2, device="cuda"))
    assert any(one.key == "aten::mm" for one in seen.key_averages())


def a_profiler_of_the_gpu_alone_records_the_cpu() -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        torch.mm(torch.ones(2, 2, device="cuda"), torch.ones(2, 2, device="cuda"))
    assert any(one.key == "aten::mm" for one in seen.key_averages())


def settings_that_change_nothing_are_accepted() -> None:
    torch.cuda.set_sync_debug_mode("default")
    torch.cuda.set_sync_debug_mode(0)
    refused(lambda: torch.cuda.set_sync_debug_mode("warn"), "set_sync_debug_mode('warn') is not emulated")
    torch.cuda.set_per_process_memory_fraction(1.0, 0)
    assert torch.cuda.get_per_process_memory_fraction() == 1.0
    refused(lambda: torch.cuda.set_per_process_memory_fraction(0.5), "is not emulated by --cuda-on-cpu")
    refused(lambda: torch.cuda.set_per_process_memory_fraction(1.5), "Allowed range: 0~1")


def the_version_of_cudnn_is_that_of_torch() -> None:
    installed = torch._C._cudnn.getVersionInt() if torch.backends.cudnn.is_available() else None
    assert torch.backends.cudnn.version() == installed


def unsupported_functions_name_the_page() -> None:
    for call in (
        torch.cuda.CUDAGraph,
        lambda: torch.cuda.graph(None),
        lambda: torch.cuda.make_graphed_callables(None, ()),
        torch.cuda.memory_snapshot,
        torch.cuda.memory._record_memory_history,
        torch.cuda.utilization,
        torch.cuda.cudart,
        lambda: torch.cuda.ExternalStream(0),
        lambda: torch.cuda.Event().ipc_handle(),
        lambda: nn.DataParallel(nn.Linear(1, 1)),
        lambda: torch.compile(nn.Linear(1, 1)),
        torch.compile(refused),
    ):
        refused(call, "is not emulated by --cuda-on-cpu", "docs/how-to/cuda-on-cpu.md")


def nccl_is_another_backend_under_its_name() -> None:
    dist = torch.distributed
    assert dist.is_nccl_available()
    assert torch.cuda.nccl.version() == (0, 0, 0)
    for backend in ("nccl", "NCCL", "cpu:gloo,cuda:nccl", "cuda:nccl"):
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
        assert dist.get_backend() == "nccl", backend
        assert dist.distributed_c10d.get_backend() == "gloo", backend
        assert dist.get_backend(dist.new_group([0], backend="gloo")) == "gloo"
        assert dist.get_backend(dist.new_group([0], backend="nccl")) == "nccl"
        ones = torch.ones(3, device="cuda")
        dist.all_reduce(ones)
        assert ones.tolist() == [1, 1, 1]
        dist.destroy_process_group()


def every_public_function_is_emulated_or_refused() -> None:
    """No function of torch.cuda may use a driver, also in new releases of torch."""
    from smdp_engine.cuda_on_cpu.patches import _CUDA, _UNCHANGED

    for name in set(torch.cuda.__all__) - set(_CUDA) - _UNCHANGED:
        value = getattr(torch.cuda, name)
        if callable(value):
            refused(value, f"torch.cuda.{name} is not emulated")


def second_install_has_no_effect() -> None:
    before = torch.cuda.is_available, torch.Tensor.record_stream, torch.autocast.__init__
    cuda_on_cpu.install()
    assert before == (torch.cuda.is_available, torch.Tensor.record_stream, torch.autocast.__init__)


if __name__ == "__main__":
    run_cases(globals())
