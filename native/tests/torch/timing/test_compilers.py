"""Measured functions within torch.compile, torch.jit and torch.fx, and the copies of tensors to a GPU."""

from pathlib import Path

import measured_rank
import pytest

pytestmark = [pytest.mark.torch, measured_rank.needs_torch]

# As on a machine with a GPU.
COPIES = """
from smdp_engine.timing import torch_copies
torch_copies.replace_methods(clock, torch_hooks.not_compiled)
"""


def test_compiled_functions_have_the_same_graphs_as_without_measurement() -> None:
    measured_rank.run(
        COPIES
        + """
import io, warnings
from torch._dynamo.utils import counters
warnings.filterwarnings("error", "Dynamo does not know how to trace")
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
def shows(x):
    print("shown", file=text)
    return x.to(torch.float64) + 1
def trains(x):
    loss = model(x).sum()
    loss.backward()
    optimizer.step()
    torch.save({}, io.BytesIO())
    return loss.detach()
def graphs(function):
    torch._dynamo.reset()
    counters.clear()
    compiled = torch.compile(function, backend="eager")
    for _ in range(2): compiled(torch.ones(2, 4))
    return counters["stats"]["calls_captured"], counters["stats"]["unique_graphs"]
text = io.StringIO()
assert graphs(shows) == (2, 1)
assert text.getvalue() == "shown\\n" * 2
assert graphs(lambda x: x.to("cpu").to(torch.float64).sum())[1] == 1
assert torch.compile(lambda x: x.to(torch.float64) + 1, backend="eager", fullgraph=True)(torch.ones(2)).sum() == 4
calls, _ = graphs(trains)
assert calls >= 3
fields = event()
assert (fields["steps"], fields["checkpoints"]) == (2, 2), fields
assert fields["backward_s"] > 0 and fields["logging_s"] > 0 and fields["optimizer_s"] > 0, fields
"""
    )


def test_scripted_and_traced_modules(tmp_path: Path) -> None:
    (tmp_path / "modules.py").write_text("""
import torch
class Converts(torch.nn.Module):
    def forward(self, x):
        return x.to(torch.float64).to("cpu") + 1
class Shows(torch.nn.Module):
    def forward(self, x):
        print("shown")
        return x.to(torch.float64)
""")
    measured_rank.run(
        COPIES
        + f"""
import torch.fx
sys.path.insert(0, {str(tmp_path)!r})
from modules import Converts, Shows
one = torch.ones(2)
assert torch.jit.script(Shows())(one).dtype == torch.float64
assert torch.jit.script(Converts())(one).tolist() == [2, 2]
assert torch.jit.trace(Converts(), one)(one).tolist() == [2, 2]
assert torch.fx.symbolic_trace(Converts())(one).tolist() == [2, 2]
assert torch.export.export(Converts(), (one,)).module()(one).tolist() == [2, 2]
"""
    )


def test_subclass_finds_the_function_under_its_name() -> None:
    measured_rank.run(
        COPIES
        + """
class Own(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        seen.append(function is torch.Tensor.to)
        return super().__torch_function__(function, types, args, kwargs or {})
seen = []
own = torch.ones(2).as_subclass(Own)
seen.clear()
assert type(own.to(torch.float64)) is Own
assert seen == [True]
"""
    )


def test_copies_to_a_gpu() -> None:
    """With the emulation of CUDA, which is installed after the hooks."""
    measured_rank.run(
        """
        from smdp_engine import cuda_on_cpu
        cuda_on_cpu.install()
        x = torch.ones(200_000)
        next(iter(DataLoader(Numbers(1))))
        copies = [
            lambda: x.cuda(),
            lambda: x.to("cuda"),
            lambda: x.to(device="cuda:0", dtype=torch.float64),
            lambda: x.to(torch.device("cuda")),
        ]
        for copy in copies:
            assert copy().is_cuda
            fields = event()
            assert fields["copy_s"] > 0, fields
        assert x.cuda().to("cuda").cpu().to(torch.float64).tolist() == x.tolist()
        event()
        x.to(torch.float64), x.to("cpu"), x.to(torch.ones(1))
        assert event()["copy_s"] == 0
        model = torch.nn.Linear(3, 1).to("cuda")
        model(torch.ones(2, 3).cuda()).sum().backward()
        assert event()["backward_s"] > 0
        """,
        env={"SMDP_CUDA_ON_CPU": "1"},
    )
