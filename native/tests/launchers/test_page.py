"""docs/how-to/engine-alone.md: its script and its commands run as they are printed, on small hosts."""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Dict, Iterator, List

import pytest
from launching import launched, slurm_cluster
from launching.slurm_cluster import SlurmCluster
from ports import free_port

from smdp_engine.launchers import LAUNCHERS

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "how-to" / "engine-alone.md").read_text()
MANIFESTS = ROOT / ".venv-launchers" / "bin" / "kubernetes-validate"
#: What all commands of the page print.
LOSS = re.findall(r"`(loss 0\.\d{6})`", PAGE)


def _blocks(language: str) -> List[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def _replaced(text: str, changes: Dict[str, str]) -> str:
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


SCRIPT = _blocks("python")[0]
LAPTOP, AGENTS, BATCH, MPI = _blocks("sh")
TORCHRUN = " ".join(launched.TORCHRUN)


@pytest.mark.runs
@pytest.mark.torch
def test_torchrun_on_two_hosts_prints_the_loss(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    here = {"torchrun": TORCHRUN, "per-node 4": "per-node 1", "node1 ": "127.0.0.1 ", "29500": str(free_port())}
    started = [
        launched.start(["bash", "-c", command], tmp_path, SMDP_HOST_ID=f"node{number}")
        for number, command in enumerate(_replaced(AGENTS, here).splitlines())
    ]
    outcomes = [launched.finish(one) for one in started]
    assert [one.returncode for one in outcomes] == [0, 0], outcomes
    assert [outcomes[0].stdout] == [f"{one}\n" for one in LOSS]
    assert outcomes[1].stdout == ""


@pytest.mark.runs
@pytest.mark.torch
def test_torchrun_on_one_host_prints_the_loss(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    ran = launched.run(["bash", "-c", _replaced(LAPTOP, {"torchrun": TORCHRUN})], tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert [ran.stdout] == [f"{one}\n" for one in LOSS]


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="smdp-slurm-") as folder:
        Path(folder, "train.py").write_text(SCRIPT)
        python = Path(folder, "python-with-token")
        python.write_text(
            f'#!/bin/sh\n[ ${{#SMDP_JOB_TOKEN}} = 32 ] && exec {sys.executable} "$@"\necho no token >&2; exit 3\n'
        )
        python.chmod(0o755)
        with SlurmCluster(2, Path(folder)) as started:
            yield started


needs_slurm = pytest.mark.skipif(
    bool(slurm_cluster.missing()),
    reason=f"no {', '.join(slurm_cluster.missing())} here: apt-get install slurmctld slurmd slurm-client, as root",
)


@pytest.mark.launchers
@needs_slurm
def test_batch_script_of_slurm_prints_the_loss(cluster: SlurmCluster) -> None:
    job = _replaced(BATCH, {"per-node=4": "per-node=1", "python": "./python-with-token"})
    (cluster.folder / "job.sh").write_text(job)
    ran = cluster.run("sbatch --wait job.sh")
    log = (cluster.folder / "train.log").read_text()
    assert ran.returncode == 0, ran.stderr + log
    assert [one for one in log.splitlines() if one.startswith("loss")] == LOSS


@pytest.mark.launchers
@needs_slurm
@pytest.mark.parametrize("program", ["mpirun", "mpiexec.hydra"])
def test_mpi_on_two_hosts_prints_the_loss(cluster: SlurmCluster, program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"needs {program}: apt-get install openmpi-bin mpich")
    exported, *commands = MPI.splitlines()
    (command,) = [one for one in commands if one.startswith(program)]
    ranks = {":4": ":1", "-np 8": "-np 2"} if program == "mpirun" else {"-ppn 4": "-ppn 1", "-n 8": "-n 2"}
    command = _replaced(command, {**ranks, "node": "algo-", "python": "./python-with-token"})
    # The daemons of MPI are started as steps of a job of SLURM, which has no ssh to its hosts.
    ran = cluster.run(
        f"{exported}; salloc -N 2 -n 2 bash -c '{command}'",
        OMPI_ALLOW_RUN_AS_ROOT="1",
        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == LOSS


@pytest.mark.launchers
@pytest.mark.skipif(not MANIFESTS.exists(), reason="no .venv-launchers here: make test-launchers")
def test_manifest_of_kubernetes_fits_the_schemas(tmp_path: Path) -> None:
    (manifest,) = _blocks("yaml")
    (tmp_path / "train.yaml").write_text(manifest)
    (tmp_path / "wrong.yaml").write_text(_replaced(manifest, {"completionMode": "completionsMode"}))
    (version,) = re.findall(r"schemas of Kubernetes (\d+\.\d+)", PAGE)

    def check(name: str) -> "subprocess.CompletedProcess[str]":
        command = [str(MANIFESTS), "--kubernetes-version", version, "--strict", name]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    fits, wrong = check("train.yaml"), check("wrong.yaml")
    assert fits.returncode == 0, fits.stdout + fits.stderr
    assert wrong.returncode != 0
    assert "completionsMode" in wrong.stdout + wrong.stderr


def test_page_names_every_launcher_and_every_message() -> None:
    package = ROOT / "native" / "python" / "smdp_engine"
    sources = "".join(
        path.read_text() for path in [*sorted((package / "launchers").glob("*.py")), package / "torch.py"]
    )
    quoted = re.findall(r"^\| `([^`]+)`(?: \.\.\.)? \|", PAGE.partition("## Troubleshooting")[2], re.MULTILINE)
    parts = [part for one in quoted for part in one.split("...") if part.strip()]
    engine = "".join((ROOT / "native" / "engine" / name).read_text() for name in ("bootstrap.cc", "capi.cc"))
    assert [part for part in parts if part.strip() not in sources.replace('"\n            f"', "") + engine] == []
    assert len(quoted) > 6
    assert [name for name in LAUNCHERS if f"`{name}`" not in PAGE and f'"{name}"' not in PAGE] == []
