"""The CUDA emulation with two GPUs: devices, tensors, modules, threads and files. Run as a program by
test_cuda_on_cpu.py."""

import copy
import io
import os
import threading
from typing import Any

import torch
from case_runner import refused, run_cases
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, TensorDataset

from smdp_engine import cuda_on_cpu

cuda_on_cpu.install()
CPU = torch.device("cpu")


def one_gpu_per_worker() -> None:
    assert torch.cuda.is_available()
    assert torch.cuda.device_count() == 2
    assert len(torch.cuda.default_generators) == 2


def cuda_visible_devices_hides_gpus() -> None:
    for visible, count in (("1", 1), ("0,1", 2), ("", 0), ("-1", 0), ("1,7,0", 1), ("no", 0)):
        os.environ["CUDA_VISIBLE_DEVICES"] = visible
        assert torch.cuda.device_count() == count, visible
        assert torch.cuda.is_available() == (count > 0)
    refused(lambda: torch.zeros(1).cuda(), "No CUDA GPUs are available")
    del os.environ["CUDA_VISIBLE_DEVICES"]


def each_thread_has_a_current_gpu() -> None:
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


def missing_gpu_is_refused() -> None:
    for call in (
        lambda: torch.cuda.set_device(2),
        lambda: torch.zeros(1).cuda(2),
        lambda: torch.zeros(1).to("cuda:2"),
        lambda: torch.zeros(1, device=torch.device("cuda", 2)),
        lambda: torch.cuda.get_device_properties(2),
        lambda: nn.Linear(1, 1).cuda(2),
        lambda: torch.cuda.Stream(2),
    ):
        refused(call, "invalid device ordinal", "emulates 2 GPUs")


def tensors_are_created_on_gpus() -> None:
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


def moving_to_a_gpu_copies() -> None:
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


def tensors_device_identifies_its_gpu() -> None:
    """The device of a tensor on a GPU behaves as the CPU, but tensors moved to it are on the GPU."""
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


def moving_back_copies() -> None:
    weight = nn.Linear(2, 2).cuda().weight
    for kept in (weight.detach().cpu(), weight.data.to("cpu"), weight.detach().to(CPU)):
        before = kept.clone()
        weight.data.add_(1)
        assert torch.equal(kept, before)
        assert not kept.is_cuda
    plain = torch.zeros(2)
    assert plain.cpu() is plain


def results_stay_on_the_gpu() -> None:
    x = torch.ones(4, device="cuda:1")
    parts = x.chunk(2)
    assert all(one.is_cuda for one in (x + 1, x.view(2, 2), x[1:], *parts, torch.cat([x, x]), copy.deepcopy(x)))
    assert (x * 2).get_device() == 1
    here = torch.zeros(4)
    here.copy_(x)
    assert not here.is_cuda


def freed_storage_is_forgotten() -> None:
    from smdp_engine.cuda_on_cpu.placement import placement

    for _ in range(10_000):
        torch.ones(3, device="cuda")
    assert len(placement._gpu) < 5000
    assert not any(torch.empty(3).is_cuda for _ in range(100))


def module_moves_with_its_parameters() -> None:
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


def trained_leaf_stays_a_leaf() -> None:
    weight = torch.randn(3, device="cuda", requires_grad=True).cuda()
    weight.sum().backward()
    assert weight.grad.tolist() == [1, 1, 1]


def autograd_functions_and_hooks_use_gpus() -> None:
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


def threads_use_gpus() -> None:
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


class _Samples(Dataset):  # type: ignore[misc, type-arg, unused-ignore]
    def __len__(self) -> int:
        return 4

    def __getitem__(self, at: int) -> Any:
        return torch.full((2,), float(at), device="cuda").cpu()


def data_loaders_pin_memory_and_start_workers() -> None:
    for settings in ({}, {"num_workers": 1}, {"num_workers": 1, "multiprocessing_context": "spawn"}):
        batches = list(DataLoader(_Samples(), batch_size=2, pin_memory=True, **settings))
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


def the_tensor_types_of_a_gpu_make_tensors_there() -> None:
    numbers = torch.cuda.FloatTensor([1, 2])
    assert numbers.tolist() == [1, 2]
    assert numbers.is_cuda
    assert torch.cuda.LongTensor(2, 3).shape == (2, 3)
    with torch.cuda.device(1):
        assert torch.cuda.HalfTensor(2).get_device() == 1
    on_cpu = numbers.cpu()
    on_cpu[0] = 5
    assert numbers.tolist() == [1, 2]
    assert isinstance(numbers, torch.cuda.FloatTensor)
    assert not isinstance(on_cpu, torch.cuda.FloatTensor)
    assert not isinstance(numbers, torch.cuda.LongTensor)
    assert on_cpu.type(torch.cuda.IntTensor).is_cuda
    torch.set_default_tensor_type(torch.cuda.DoubleTensor)
    assert torch.zeros(1).dtype == torch.float64
    torch.set_default_tensor_type(torch.FloatTensor)


def checkpoints_go_to_gpus() -> None:
    file = io.BytesIO()
    torch.save({"weight": torch.arange(3.0, device="cuda")}, file)
    for where in ("cuda", "cuda:1", torch.device("cuda", 1), {"cpu": "cuda:1"}, lambda s, _: s.cuda(1)):
        file.seek(0)
        weight = torch.load(file, map_location=where)["weight"]
        assert weight.is_cuda
        assert weight.tolist() == [0, 1, 2]
    file.seek(0)
    assert not torch.load(file)["weight"].is_cuda  # the file stores the tensors' device, which was the CPU
    file.seek(0)
    refused(lambda: torch.load(file, map_location="cuda:5"), "invalid device ordinal")


def file_from_a_gpu_can_be_loaded() -> None:
    file = io.BytesIO()
    tag = torch.serialization.location_tag
    torch.serialization.location_tag = lambda storage: "cuda:1"
    torch.save(torch.arange(3.0), file)
    torch.serialization.location_tag = tag
    file.seek(0)
    assert torch.load(file).get_device() == 1
    file.seek(0)
    assert not torch.load(file, map_location="cpu").is_cuda


if __name__ == "__main__":
    run_cases(globals())
