"""Every error of platform, network or disk gives one line, the failure file and a non-zero exit code, in time."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

import pytest

from smdp_entrypoint.contract.devices import Devices
from smdp_entrypoint.contract.environment import Facts, sm_variables, toolkit_variables
from smdp_entrypoint.contract.errors import EntrypointError
from smdp_entrypoint.contract.hyperparameters import to_arguments
from smdp_entrypoint.contract.paths import MlTree
from smdp_entrypoint.contract.platform_files import read_contract, read_resources
from smdp_entrypoint.contract.rank_layout import plan_layout
from smdp_entrypoint.contract.settings import Settings
from smdp_entrypoint.contract.worker_variables import Master, host_variables, valid_variables, worker_variables
from smdp_entrypoint.program import find_program

if TYPE_CHECKING:
    from entrypoint_support.host import Host

FILES = ("hyperparameters.json", "resourceconfig.json", "inputdataconfig.json", "checkpointconfig.json")
VALID: dict[str, dict[str, Any]] = {
    "hyperparameters.json": {
        "sagemaker_program": '"train.py"',
        "epochs": "3",
        "sagemaker_distribution_instance_groups": '["one"]',
        "sagemaker_mpi_num_of_processes_per_host": "2",
        "sagemaker_distributed_dataparallel_enabled": "true",
    },
    "resourceconfig.json": {
        "current_host": "algo-1",
        "hosts": ["algo-1", "algo-2"],
        "current_instance_type": "ml.m5.large",
        "current_group_name": "one",
        "instance_groups": [
            {"instance_group_name": "one", "instance_type": "ml.m5.large", "hosts": ["algo-1", "algo-2"]}
        ],
        "network_interface_name": "lo",
        "topology": None,
    },
    "inputdataconfig.json": {"train": {"TrainingInputMode": "File", "S3DistributionType": "FullyReplicated"}},
    "checkpointconfig.json": {"LocalPath": "/opt/ml/checkpoints", "S3Uri": "s3://bucket/x"},
}
# The values that a mutation inserts.
STRANGE: list[Any] = [
    None, True, 0, -1, 1e308, 10**400, "", "x", "../..", "\u0000", "\ud800", "a" * 5000, "é\n\x1b[2J", [], {}, [[]],
    [None],
    {"": ""}, ["algo-1"], ["algo-1", "algo-1"], [{"instance_group_name": "one", "hosts": ["algo-1"]}], "[", "{}", "[1]",
    '["one", "two"]', "1" * 5000, "NaN", "/etc/passwd", "-x", ".", "train.py/", "//",
]  # fmt: skip
STRANGE_TEXT = [
    "",
    "{",
    "[]",
    "null",
    "3",
    '"x"',
    "\x00",
    "[" * 100_000,
    '{"a": ' * 100_000,
    "\ufeff{}",
    '{"a": NaN}',
    "{}" * 2,
]


def mutated(chance: random.Random, value: Any, depth: int = 0) -> Any:
    """`value` with something in it replaced, removed or added."""
    if not isinstance(value, (dict, list)) or not value or (depth and chance.random() < 0.3):
        return chance.choice(STRANGE)
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    key = chance.choice(list(copy) if isinstance(copy, dict) else range(len(copy)))
    kind = chance.random()
    if kind < 0.2:
        del copy[key]
    elif kind < 0.3 and isinstance(copy, dict):
        copy[chance.choice(["x", "", "\ud800", "SAGEMAKER_PROGRAM", "a=b", "\u0000"])] = chance.choice(STRANGE)
    else:
        copy[key] = mutated(chance, copy[key], depth + 1)
    return copy


def write_platform(root: Path, chance: random.Random) -> None:
    """Write the four files, one to three of them malformed."""
    config = root / "input/config"
    shutil.rmtree(config, ignore_errors=True)
    config.mkdir(parents=True)
    malformed = chance.sample(FILES, chance.randint(1, 3))
    for name in FILES:
        text = json.dumps(VALID[name])
        if name in malformed:
            kind = chance.random()
            if kind < 0.1:
                continue
            if kind < 0.2:
                text = chance.choice(STRANGE_TEXT)
            elif kind < 0.3:
                text = text[: chance.randrange(len(text))]
            else:
                text = json.dumps(mutated(chance, VALID[name]))
        (config / name).write_text(text, encoding="utf-8", errors="surrogatepass")


def prepare(tree: MlTree, environ: dict[str, str]) -> None:
    """Compute all that depends on the platform's files, without starting a process."""
    read_resources(tree)
    settings = Settings.from_environment(environ)
    contract = read_contract(tree)
    tree.create()
    facts = Facts(contract, tree, Devices(4, 0, 0), environ)
    layout = plan_layout(contract, settings, facts.devices, lambda text: None)
    find_program(facts.entry_point, tree.code)
    to_arguments(contract.hyperparameters.script)
    master = Master(layout.hosts[0], "127.0.0.1", settings.master_port)
    variables = {**sm_variables(facts), **toolkit_variables(facts), **host_variables(contract, layout, master)}
    variables.update(worker_variables(contract, layout, 0))
    for name, value in valid_variables(variables, lambda text: None).items():
        assert "\0" not in name + value


def test_malformed_platform_files_are_refused_or_accepted(tmp_path: Path) -> None:
    """Malformed files raise no exception other than EntrypointError."""
    tree = MlTree(tmp_path / "ml")
    tree.code.mkdir(parents=True)
    (tree.code / "train.py").touch()
    seed = int(os.environ.get("SMDP_FUZZ_SEED", str(random.SystemRandom().randrange(1 << 32))))
    chance = random.Random(seed)
    refused = 0
    for number in range(int(os.environ.get("SMDP_FUZZ_ROUNDS", "600"))):
        write_platform(tree.root, chance)
        begin = time.process_time()
        try:
            prepare(tree, {})
        except EntrypointError as error:
            refused += 1
            assert str(error).strip(), (seed, number)
        except Exception as error:
            raise AssertionError(f"seed {seed}, round {number}") from error
        assert time.process_time() - begin < 5  # milliseconds, unless the cost is more than linear in the file's size
    print(f"seed {seed}: {refused} refused")
    assert refused > 50


@pytest.mark.parametrize("seed", range(6))
def test_malformed_platform_files_end_the_container_with_one_line(host: Host, seed: int) -> None:
    chance = random.Random(seed)
    host.code("train.py", "")
    codes = set()
    for _ in range(40):
        write_platform(host.root, chance)
        try:
            prepare(MlTree(host.root), {})
        except EntrypointError:
            break
    host.lines.clear()
    code = host.run(SMDP_HOSTS_TIMEOUT="1")
    codes.add(code)
    assert code == 1, host.text
    assert "internal error in smdp-entrypoint" not in host.text
    assert len([line for line in host.lines if "] failed: " in line]) == 1
    assert host.failure.strip()
    assert "host_failed" in host.text


def test_unresolved_first_host_fails_at_the_deadline(host: Host) -> None:
    host.hosts = ["no-such-host.invalid", "algo-1"]
    host.job("print('never')")
    begin = time.monotonic()
    assert host.run(SMDP_HOSTS_TIMEOUT="1.5") == 1
    assert time.monotonic() - begin >= 1.5
    assert host.failure.startswith("Host no-such-host.invalid could not be found on the network within 1.5 s")
    assert host.events("host_failed")[0]["error"].startswith("Host no-such-host.invalid")


@pytest.fixture
def small_disk(host: Host) -> Host:
    """A host that can have its tree on a disk of 512 KiB, in a mount namespace of its own."""
    unshare = shutil.which("unshare")
    try:
        subprocess.run([unshare or "unshare", "--mount", "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("creating a mount namespace is not permitted")
    return host


def on_a_small_disk(host: Host, fill: str, **environ: str) -> tuple[int, str]:
    """The exit code and the failure file of a job whose tree is on a disk of 512 KiB; `fill` runs there first."""
    saved = host.root.parent / "failure-seen"
    script = f"""
        cp -a {host.root} {host.root}.files
        mount -t tmpfs -o size=512k none {host.root}
        cp -a {host.root}.files/. {host.root}
        cd {host.root}
        {fill}
        {host.python} -m smdp_entrypoint
        code=$?
        cat {host.root}/output/failure > {saved}
        exit $code
        """
    host.prefix = ["unshare", "--mount", "sh", "-c", script, "--"]
    code = host.run(SMDP_HEALTH_CHECK="0", **environ)
    return code, saved.read_text() if saved.exists() else ""


def test_script_that_fills_the_disk_is_reported_in_the_failure_file(small_disk: Host) -> None:
    small_disk.job(
        """
        with open("filler", "wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"x" * 4096)
            except OSError:
                while True:
                    file.write(b"x")
        """
    )
    code, failure = on_a_small_disk(small_disk, ":")
    assert code == 1
    assert failure.startswith("OSError: [Errno 28] No space left on device (rank 0 on algo-1, exit code 1)")


def test_source_larger_than_the_disk_is_refused_and_removed(
    small_disk: Host, tmp_path: Path, until: Callable[..., Any]
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for number in range(4):
        (source / f"weights{number}").write_bytes(os.urandom(200_000))
    (source / "train.py").touch()
    archive = shutil.make_archive(str(tmp_path / "sourcedir"), "gztar", source)
    small_disk.job(sagemaker_submit_directory=archive)
    code, failure = on_a_small_disk(small_disk, ":")
    assert code == 1
    assert failure.startswith("The source archive")
    assert " are free for " in failure or "No space left" in failure


def test_full_tree_gives_a_one_line_error(small_disk: Host) -> None:
    small_disk.job("print('never')", sagemaker_submit_directory="/no/such/place")
    (small_disk.root / "code/train.py").unlink()
    code, _ = on_a_small_disk(small_disk, "cat /dev/zero > filler 2>/dev/null; printf '' >> filler")
    assert code == 1
    assert len([line for line in small_disk.lines if "] failed: " in line]) == 1
