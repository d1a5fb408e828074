"""Scripts can use the backend `smddp` without importing it; the registration has no side effects."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from entrypoint_support.host import Host

HAS_ENGINE = importlib.util.find_spec("torch") is not None and importlib.util.find_spec("smdp_engine") is not None
needs_engine = pytest.mark.skipif(not HAS_ENGINE, reason="torch and smdp-engine are not installed here")
SUMS = """
    import torch
    torch.distributed.init_process_group("smddp")
    total = torch.ones(3)
    torch.distributed.all_reduce(total)
    print("sum", total.tolist())
    torch.distributed.destroy_process_group()
    """


@pytest.mark.torch
@needs_engine
def test_script_that_imports_only_torch_can_use_the_backend(host: Host) -> None:
    host.job(SUMS, sagemaker_distributed_dataparallel_enabled=True)
    assert host.run(SMDP_WORKERS_PER_HOST="2") == 0, host.text
    assert [line for line in host.of_rank(1) if "smdp" not in line] == ["sum [2.0, 2.0, 2.0]"]


@pytest.mark.torch
@needs_engine
def test_incompatible_torch_can_still_be_imported(host: Host) -> None:
    """A torch without torch.distributed stands for every incompatible version."""
    host.job("import torch; print(torch.__version__)", sagemaker_distributed_dataparallel_enabled=True)
    host.code("torch.py", "__version__ = '1.6.0'")
    assert host.run() == 0
    assert "1.6.0" in host.of_rank(0)
    assert "smdp: the torch backend smddp is not available: " in host.text


@needs_engine
def test_the_images_own_sitecustomize_still_runs(host: Host, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("import builtins; builtins.from_the_image = 42")
    host.job("import sitecustomize; print(from_the_image, sitecustomize.__file__)")
    environ = host.environ()
    assert host.run(PYTHONPATH=f"{environ['PYTHONPATH']}:{folder}") == 0
    assert host.of_rank(0) == [f"42 {folder / 'sitecustomize.py'}"]


@needs_engine
def test_backend_is_not_registered_if_awss_library_comes_first(host: Host, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs/smdistributed/dataparallel/torch"
    theirs.mkdir(parents=True)
    host.job("import sys; print(any('worker_site' in folder for folder in sys.path))")
    environ = host.environ()
    assert host.run(PYTHONPATH=f"{environ['PYTHONPATH']}:{tmp_path / 'theirs'}") == 0
    assert host.of_rank(0) == ["False"]
    assert host.run(PYTHONPATH=f"{environ['PYTHONPATH']}:{tmp_path / 'theirs'}", SMDP_ENGINE="native") == 0
    assert host.of_rank(0)[-1] == "True"
