"""`checkpoints`: what is stored in S3 is listed, verified, fetched and deleted, as the engine wrote it."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest

from smdp_engine.checkpoint.marker import path_of, torn_reason, write_marker
from smdp_launch.errors import ExitCode, Refused
from smdp_launch.jobs.checkpoints.deletion import delete, require_unused, superseded
from smdp_launch.jobs.checkpoints.marker import parse_marker
from smdp_launch.jobs.checkpoints.stored import StoredCheckpoints, stored_checkpoints
from smdp_launch.jobs.service.clients import Clients, connect_endpoint
from smdp_launch.localcloud.client.connect import Endpoint, private
from tests.conftest import JOB, LAUNCHER, Command, clean_environment, command_in, write_job
from tests.support.json_documents import the_document
from tests.support.services.cloud import as_the_service
from tests.support.terminal import STAYS, last_lines
from tests.support.waiting import wait_for

BUCKET = "bucket"
HASH = b"0" * 64
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    with private(tmp_path_factory.mktemp("stored") / "cloud") as made:
        clients_of(made).s3.create_bucket(Bucket=BUCKET)
        yield made


def clients_of(endpoint: Endpoint) -> Clients:
    return connect_endpoint(endpoint.url, endpoint.region, endpoint.access_key, endpoint.secret_key)


@pytest.fixture
def clients(endpoint: Endpoint) -> Clients:
    return clients_of(endpoint)


@pytest.fixture
def where(request: pytest.FixtureRequest) -> str:
    """A location of this test alone."""
    return f"s3://{BUCKET}/{hashlib.sha256(request.node.name.encode()).hexdigest()[:12]}/steps"


@pytest.fixture
def run(endpoint: Endpoint, tmp_path: Path) -> Run:
    environment = {**as_the_service(endpoint, tmp_path), "AWS_DEFAULT_REGION": endpoint.region}

    def run_there(*arguments: str) -> subprocess.CompletedProcess[str]:
        return command_in(tmp_path)("checkpoints", *arguments, env=environment)

    return run_there


class Stored:
    """Checkpoints as the engine writes them, uploaded to ``where``."""

    def __init__(self, clients: Clients, where: str, folder: Path) -> None:
        self.s3, self.prefix, self.folder = clients.s3, where.removeprefix(f"s3://{BUCKET}/"), folder

    def put(self, name: str, content: bytes) -> None:
        self.s3.put_object(Bucket=BUCKET, Key=f"{self.prefix}/{name}", Body=content)

    def sharded(self, step: int, ranks: int = 2) -> Path:
        path = path_of(self.folder, step)
        path.mkdir(parents=True)
        files = {}
        for name in [".metadata", *(f"__{rank}_0.distcp" for rank in range(ranks))]:
            content = f"{name} of step {step}".encode() * 100
            (path / name).write_bytes(content)
            files[name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        write_marker(path, {"step": step, "world_size": ranks, "hosts": 1, "seconds": 0.5, "files": files})
        assert torn_reason(path) == ""
        for one in path.iterdir():
            self.put(f"{path.name}/{one.name}", one.read_bytes())
        return path

    def single(self, step: int, *, is_latest: bool) -> None:
        name, content = f"checkpoint-{step:010d}.pt", f"step {step}".encode()
        self.put(name, content)
        if is_latest:
            facts = {"name": name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            self.put("LATEST", json.dumps(facts).encode())

    def names(self) -> list[str]:
        found = self.s3.list_objects_v2(Bucket=BUCKET, Prefix=f"{self.prefix}/").get("Contents", [])
        return [one["Key"].removeprefix(f"{self.prefix}/") for one in found]


@pytest.fixture
def stored(clients: Clients, where: str, tmp_path: Path) -> Stored:
    return Stored(clients, where, tmp_path / "on-the-host")


def facts(found: StoredCheckpoints) -> list[tuple[int | None, str, str, int | None]]:
    return [(one.step, one.kind.value, one.state.value, one.ranks) for one in found.checkpoints]


def test_every_kind_is_listed_with_what_is_known_of_it(clients: Clients, where: str, stored: Stored, run: Run) -> None:
    stored.sharded(30)
    stored.sharded(40, ranks=3)
    stored.put("checkpoint-0000000040/__1_0.distcp", b"cut")
    stored.put("checkpoint-0000000050/__0_0.distcp", b"written before the marker")
    stored.single(10, is_latest=False)
    stored.single(20, is_latest=True)
    stored.put("checkpoint-500/pytorch_model.bin", b"of another library")
    stored.put("model-best.h5", b"of another library")
    assert facts(stored_checkpoints(clients, where)) == [
        (500, "files", "unknown", None),
        (50, "sharded", "torn", None),
        (40, "sharded", "torn", 3),
        (30, "sharded", "whole", 2),
        (20, "single", "whole", None),
        (10, "single", "unknown", None),
        (None, "files", "unknown", None),
    ]
    document = the_document(run(where, "--json"), "checkpoints")
    assert document["newest_step"] == 30  # the newest that is known to be whole
    assert [one["reason"] for one in document["stored"][1:3]] == [
        "COMPLETE is missing",
        f"__1_0.distcp has 3 bytes instead of {len('__1_0.distcp of step 40') * 100}",
    ]
    ran = run(where)
    assert ran.returncode == ExitCode.OK, ran.stderr
    assert "7 checkpoints, " in ran.stdout
    assert "3 entries can only be listed: no file says which files belong to it" in ran.stderr
    assert last_lines(ran).endswith(f"next: smdp-launch checkpoints {where} --verify\n")


def test_verification_reads_the_files(where: str, stored: Stored, run: Run) -> None:
    stored.sharded(1)
    stored.sharded(2)
    ran = run(where, "--verify", "--json")
    assert ran.returncode == ExitCode.OK, ran.stderr
    assert [one["state"] for one in the_document(ran, "checkpoints")["stored"]] == ["verified", "verified"]
    name = "checkpoint-0000000002/__1_0.distcp"
    content = bytearray((stored.folder / name).read_bytes())
    content[7] ^= 1
    stored.put(name, bytes(content))
    assert run(where).returncode == ExitCode.OK  # the sizes are as saved
    ran = run(where, "--verify")
    assert ran.returncode == ExitCode.JOB_FAILED
    assert "error[SMDP704]" in ran.stderr
    assert f"{where}/checkpoint-0000000002: __1_0.distcp differs from what was saved" in ran.stderr
    assert "the newest usable one is of step 1" in ran.stderr


def test_fetched_checkpoint_has_the_saved_bytes(where: str, stored: Stored, run: Run, tmp_path: Path) -> None:
    stored.sharded(7)
    saved = stored.sharded(9)
    stored.put("checkpoint-0000000009/.__0_0.distcp.partial", b"of a save that was killed")
    stored.put("checkpoint-0000000011/__0_0.distcp", b"torn")
    ran = run(where, "--fetch", "latest", "--to", "there")
    assert ran.returncode == ExitCode.OK, ran.stderr
    got = tmp_path / "there" / "checkpoint-0000000009"
    assert {one.name: one.read_bytes() for one in got.iterdir()} == {
        one.name: one.read_bytes() for one in saved.iterdir()
    }
    assert torn_reason(got) == ""
    document = the_document(run(where, "--fetch", "9", "--to", "there", "--json"), "checkpoints")
    assert document["fetched"]["files"] == 1  # only the marker
    (got / ".metadata").write_bytes(b"changed")
    ran = run(where, "--fetch", "9", "--to", "there")
    assert ran.returncode == ExitCode.REFUSED
    assert "error[SMDP708]: there/checkpoint-0000000009/.metadata: it exists already" in ran.stderr
    assert run(where, "--fetch", "9", "--to", "there", "--force").returncode == ExitCode.OK
    assert torn_reason(got) == ""
    for step, code in (("11", "SMDP704"), ("8", "SMDP705")):
        ran = run(where, "--fetch", step, "--to", "there")
        assert (ran.returncode, f"error[{code}]" in ran.stderr) == (ExitCode.REFUSED, True), ran.stderr
    assert [one.name for one in (tmp_path / "there").iterdir()] == ["checkpoint-0000000009"]


def test_damaged_file_is_not_fetched(where: str, stored: Stored, run: Run, tmp_path: Path) -> None:
    stored.sharded(3)
    size = (stored.folder / "checkpoint-0000000003" / "__0_0.distcp").stat().st_size
    stored.put("checkpoint-0000000003/__0_0.distcp", b"x" * size)
    ran = run(where, "--fetch", "3", "--to", "there")
    assert ran.returncode == ExitCode.REFUSED
    assert f"error[SMDP704]: {where}/checkpoint-0000000003/__0_0.distcp: it differs from what was saved" in ran.stderr
    assert not (tmp_path / "there/checkpoint-0000000003/COMPLETE").exists()


def test_hostile_name_is_fetched_to_no_other_folder(where: str, stored: Stored, run: Run, tmp_path: Path) -> None:
    stored.put("step-5/../../../outside", b"x")
    ran = run(where, "--fetch", "5", "--to", "there")
    assert ran.returncode == ExitCode.REFUSED
    assert "leads out of the folder" in ran.stderr
    assert not (tmp_path / "outside").exists()


def test_superseded_checkpoints_are_deleted(clients: Clients, where: str, stored: Stored, run: Run) -> None:
    for step in (10, 20, 30, 40, 50):
        stored.sharded(step)
    stored.put("checkpoint-0000000035/__0_0.distcp", b"torn")
    stored.put("checkpoint-0000000060/__0_0.distcp", b"under way")
    stored.put("notes.txt", b"of the user")
    ran = run(where, "--keep-last", "2")
    assert ran.returncode == ExitCode.REFUSED
    assert last_lines(ran).endswith("cannot be undone, and there is no terminal to confirm it at: add --yes\n")
    assert len(stored.names()) == 5 * 4 + 3
    ran = run(where, "--keep-last", "2", "--keep-every", "20", "--yes")
    assert ran.returncode == ExitCode.OK, ran.stderr
    assert ran.stdout.startswith("deleted 3 checkpoints, of step 10, 30 and 35 (")
    left = {one.partition("/")[0] for one in stored.names()}
    assert left == {f"checkpoint-{step:010d}" for step in (20, 40, 50, 60)} | {"notes.txt"}
    assert run(where, "--keep-last", "9", "--yes").stdout.startswith("nothing to delete")
    assert facts(stored_checkpoints(clients, where))[1:4] == [(step, "sharded", "whole", 2) for step in (50, 40, 20)]


def test_answer_no_deletes_nothing(where: str, stored: Stored, endpoint: Endpoint, tmp_path: Path) -> None:
    stored.sharded(1)
    ran = pexpect.spawn(
        str(LAUNCHER),
        ["checkpoints", where, "--delete", "1"],
        cwd=tmp_path,
        env={**as_the_service(endpoint, tmp_path), "AWS_DEFAULT_REGION": endpoint.region, "TERM": "xterm-256color"},
        dimensions=(50, 200),
        encoding="utf-8",
        timeout=120,
    )
    ran.expect_exact("Delete 1 checkpoint, of step 1")
    ran.expect_exact("which leaves none to resume from?")
    ran.sendline("n")
    ran.expect_exact("nothing was deleted")
    ran.expect(pexpect.EOF)
    ran.close()
    assert ran.exitstatus == ExitCode.REFUSED
    assert len(stored.names()) == 4


def test_marker_is_deleted_first(clients: Clients, where: str, stored: Stored) -> None:
    """What an interrupted deletion leaves is torn."""
    stored.sharded(1)
    found = stored_checkpoints(clients, where)
    asked: list[list[str]] = []

    def note(params: dict[str, Any], **_: Any) -> None:
        asked.append([one["Key"].rpartition("/")[2] for one in params["Delete"]["Objects"]])

    clients.s3.meta.events.register("provide-client-params.s3.DeleteObjects", note)
    delete(clients, found, found.checkpoints)
    assert asked[0] == ["COMPLETE"]
    assert sorted(asked[1]) == [".metadata", "__0_0.distcp", "__1_0.distcp"]
    assert stored.names() == []


def test_newest_file_is_deleted_with_its_facts(where: str, stored: Stored, run: Run) -> None:
    stored.single(1, is_latest=False)
    stored.single(2, is_latest=True)
    ran = run(where, "--delete", "2", "--yes", "--json")
    assert [one["step"] for one in the_document(ran, "checkpoints")["deleted"]] == [2]
    assert stored.names() == ["checkpoint-0000000001.pt"]
    ran = run(where, "--delete", "1,5", "--yes")
    assert (ran.returncode, "error[SMDP705]" in ran.stderr) == (ExitCode.REFUSED, True)
    assert stored.names() == ["checkpoint-0000000001.pt"]


def test_torn_ones_alone_supersede_nothing(clients: Clients, where: str, stored: Stored) -> None:
    for step in (1, 2):
        stored.put(f"checkpoint-{step:010d}/__0_0.distcp", b"torn")
    with pytest.raises(Refused) as refused:
        superseded(stored_checkpoints(clients, where), 1)
    assert [one.code for one in refused.value.diagnostics] == ["SMDP709"]


def test_checkpoint_that_a_job_needs_is_not_deleted(clients: Clients, where: str, stored: Stored) -> None:
    for step in (1, 2):
        stored.sharded(step)
    stored.put("checkpoint-0000000003/__0_0.distcp", b"under way")
    found = stored_checkpoints(clients, where)
    under_way, newest, old = found.checkpoints
    require_unused(found, [old], "job")
    for one in (newest, under_way):
        with pytest.raises(Refused) as refused:
            require_unused(found, [one], "job")
        assert [each.code for each in refused.value.diagnostics] == ["SMDP707"]


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"[" * 100_000,
        b"null",
        b'{"smdp_checkpoint": 2, "step": 1, "world_size": 1, "files": {}}',
        b'{"smdp_checkpoint": 1, "step": true, "world_size": 1, "files": {}}',
        b'{"smdp_checkpoint": 1, "step": 1, "world_size": -1, "files": {}}',
        b'{"smdp_checkpoint": 1, "step": 1, "world_size": 1, "files": []}',
        b'{"smdp_checkpoint": 1, "step": 1, "world_size": 1, "files": {"../x": {"bytes": 1, "sha256": "%s"}}}' % HASH,
        b'{"smdp_checkpoint": 1, "step": 1, "world_size": 1, "files": {"x": {"bytes": 1, "sha256": "0"}}}',
    ],
    ids=range(10),
)  # fmt: skip
def test_damaged_marker_is_no_marker(damage: bytes) -> None:
    assert parse_marker(damage) is None


def test_wrong_options_are_usage_errors(run: Run, where: str) -> None:
    for arguments in (
        ["--to", "there"],
        ["--keep-every", "2"],
        ["--fetch", "1", "--delete", "1"],
        ["--delete", "one"],
        ["--fetch", "newest"],
        ["--keep-last", "0"],
    ):
        ran = run(where, *arguments)
        assert ran.returncode == ExitCode.USAGE, (arguments, ran.stderr)
    assert run("s3://").returncode == ExitCode.REFUSED
    assert run(where).stdout.endswith("no checkpoint is there\n")
    ran = run("s3://no-such-bucket/x")
    assert (ran.returncode, "NoSuchBucket" in ran.stderr) == (ExitCode.SERVICE, True)


SAVES = """\
import os
from smdp_engine.checkpoint import Checkpoints, ShardedCheckpoints
import torch
if os.environ["RANK"] == "0":
    for step in (1, 2, 3):
        ShardedCheckpoints(keep_last=3).save(step, weights=torch.full((1000,), float(step)))
    Checkpoints().save(9, weights=torch.ones(3))
"""
KEEPS = JOB.replace("instance_count: 2", "instance_count: 1") + 'checkpoint: {s3: "s3://bucket/checkpoints"}\n'
HERE = ["launch", "--local", "--hosts", "1", "--workers-per-host", "1"]


@pytest.mark.runs
def test_checkpoints_of_a_local_run_are_fetched_and_loaded(smdp_launch: Command, job_folder: Path) -> None:
    write_job(job_folder, KEEPS, SAVES)
    assert smdp_launch(*HERE).returncode == ExitCode.OK
    document = the_document(smdp_launch("checkpoints", "--verify", "--json"), "checkpoints")
    assert [(one["step"], one["kind"], one["state"]) for one in document["stored"]] == [
        (9, "single", "verified"),
        (3, "sharded", "verified"),
        (2, "sharded", "verified"),
        (1, "sharded", "verified"),
    ]
    ran = smdp_launch("checkpoints", "--fetch", "2", "--to", "got")
    assert ran.returncode == ExitCode.OK, ran.stderr
    from smdp_engine.checkpoint import ShardedCheckpoints

    found = ShardedCheckpoints(job_folder / "got").load()
    assert found is not None
    assert (found["step"], found["weights"].tolist()) == (2, [2.0] * 1000)
    assert smdp_launch("checkpoints", "--keep-last", "2", "--yes").returncode == ExitCode.OK
    document = the_document(smdp_launch("checkpoints", "--json"), "checkpoints")
    assert [one["step"] for one in document["stored"]] == [9, 3]


@pytest.mark.runs
def test_running_job_keeps_its_newest_checkpoint(smdp_launch: Command, job_folder: Path) -> None:
    write_job(job_folder, KEEPS, f"{SAVES}\n{STAYS}")
    environment = clean_environment()
    assert smdp_launch(*HERE, "--detach", env=environment).returncode == ExitCode.OK

    def has_all() -> bool:
        ran = smdp_launch("checkpoints", "--json", env=environment)
        return [one["step"] for one in the_document(ran, "checkpoints")["stored"]][:1] == [9]

    wait_for(has_all, "the last checkpoint")
    try:
        ran = smdp_launch("checkpoints", "--delete", "9", "--yes", env=environment)
        assert (ran.returncode, "error[SMDP707]" in ran.stderr) == (ExitCode.REFUSED, True), ran.stderr
        assert smdp_launch("checkpoints", "--delete", "1", "--yes", env=environment).returncode == ExitCode.OK
    finally:
        smdp_launch("local", "down", "--grace", "0", env=environment)


@pytest.mark.runs
def test_job_without_checkpoints_is_named(smdp_launch: Command, job_folder: Path) -> None:
    write_job(job_folder, JOB)
    assert smdp_launch(*HERE).returncode == ExitCode.OK
    ran = smdp_launch("checkpoints")
    assert (ran.returncode, "error[SMDP706]" in ran.stderr) == (ExitCode.REFUSED, True)
