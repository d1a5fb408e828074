"""Hosts whose links have a speed limit: both directions are shaped, and invalid or impossible limits are refused."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from smdp_launch.cli.main import smdp_launch as command_line
from smdp_launch.errors import EnvironmentProblem, ExitCode
from tests.conftest import Command
from tests.support.isolation import shaping_refusal
from tests.support.services.cloud import Cloud
from tests.support.waiting import wait_for

needs_links = pytest.mark.skipif(shaping_refusal() is not None, reason=str(shaping_refusal()))

#: Each host shows its link, and the first one hears from the second through it.
LINKS = """
import json, os, socket, subprocess, time
hosts = json.loads(os.environ["SM_HOSTS"])
shaper = subprocess.run(["tc", "-json", "qdisc", "show", "dev", "eth0"], capture_output=True, text=True, check=True)
print("link", shaper.stdout.replace("\\n", ""), flush=True)
print("interfaces", sorted(name for _, name in socket.if_nameindex()), flush=True)
if os.environ["SM_CURRENT_HOST"] == hosts[0]:
    with socket.create_server((hosts[0], 4000)) as listener:
        peer, (address, _) = listener.accept()
        print("heard", peer.recv(5), "from", address == socket.gethostbyname(hosts[1]), flush=True)
else:
    while True:
        try:
            with socket.create_connection((hosts[0], 4000), timeout=60) as peer:
                peer.send(b"hello")
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
time.sleep(600)
"""


@needs_links
@pytest.mark.parametrize(("speed", "bits", "burst"), [("100mbit", 10**8, 128 * 1024), ("10gbit", 10**10, 1_250_000)])
def test_hosts_connect_over_links_with_a_speed_limit(shared_cloud: Cloud, speed: str, bits: int, burst: int) -> None:
    name = f"linked-{speed}"
    shared_cloud.start(name, LINKS, hosts=2, Environment={"SMDP_WORKERS_PER_HOST": "1", "SMDP_LOCAL_NETWORK": speed})
    shared_cloud.await_log(name, "heard b'hello' from True")
    wait_for(lambda: len(values_of(shared_cloud, name, "interfaces ")) == 2, "both hosts")
    shapers = [
        *values_of(shared_cloud, name, "link "),
        *(at_the_switch(shared_cloud, name, f"algo-{n}") for n in (1, 2)),
    ]
    shared_cloud.sagemaker.stop_training_job(TrainingJobName=name)
    assert shared_cloud.wait(name)["TrainingJobStatus"] == "Stopped"
    assert set(values_of(shared_cloud, name, "interfaces ")) == {"['eth0', 'lo']"}
    for (shaper,) in map(json.loads, shapers):
        assert (shaper["kind"], shaper["options"]["rate"] * 8) == ("tbf", bits)
        assert shaper["options"]["burst"] == pytest.approx(burst, rel=0.01)  # the kernel counts in ticks
    assert len(shapers) == 4


def values_of(cloud: Cloud, job: str, word: str) -> list[str]:
    return [line.partition(word)[2] for line in cloud.log(job) if f"] {word}" in line]


def at_the_switch(cloud: Cloud, job: str, host: str) -> str:
    """The shaper of the traffic from the switch to the host."""
    supervisor = cloud.supervisor(job)
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    (switch,) = [one for one in children if b"br0 type bridge" in Path(f"/proc/{one}/cmdline").read_bytes()]
    command = ["nsenter", f"--net=/proc/{switch}/ns/net", "tc", "-json", "qdisc", "show", "dev", host]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.runs
@needs_links
def test_launch_trains_over_links_with_a_speed_limit(smdp_launch: Command) -> None:
    command = ["launch", "--local", "--hosts", "2", "--workers-per-host", "1", "--network", "1gbit"]
    dry = smdp_launch(*command, "--dry-run")
    assert re.search(r"^network +links of 1gbit$", dry.stdout, re.MULTILINE)
    assert dry.stderr.endswith(f"next: smdp-launch {' '.join(command)}\n")
    ran = smdp_launch(*command)
    assert ran.returncode == ExitCode.OK, ran.stdout + ran.stderr


def test_speed_limit_without_root_is_refused(job_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(job_folder)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    ran = CliRunner().invoke(command_line, ["launch", "--local", "--network", "1gbit"])
    assert isinstance(ran.exception, EnvironmentProblem)
    assert str(ran.exception).startswith("links with a speed limit need root; omit --network")
    assert not (job_folder / ".smdp" / "local").exists()


@pytest.mark.parametrize("speed", ["fast", "1", "0gbit", "401gbit", "1gbit ", "-1gbit", "9" * 50 + "gbit"])
def test_invalid_speed_is_refused(speed: str) -> None:
    ran = CliRunner().invoke(command_line, ["launch", "--local", f"--network={speed}"])
    assert ran.exit_code == ExitCode.USAGE
    assert "is neither a speed from 1mbit to 400gbit" in ran.stderr


@needs_links
def test_invalid_speed_in_request_fails_the_job(shared_cloud: Cloud) -> None:
    answer = shared_cloud.run("no-speed", "print(1)", Environment={"SMDP_LOCAL_NETWORK": "fast"})
    assert "SMDP_LOCAL_NETWORK: 'fast' is neither a speed" in answer["FailureReason"]


def test_network_option_without_local_is_refused(smdp_launch: Command) -> None:
    ran = smdp_launch("launch", "--network", "1gbit")
    assert (ran.returncode, "--network requires --local" in ran.stderr) == (ExitCode.USAGE, True)
