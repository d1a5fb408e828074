"""Real entrypoints on hosts with real links: network namespaces with shaped interfaces."""

from __future__ import annotations

from pathlib import Path

import pytest
from entrypoint_support import links
from entrypoint_support.host import Host, hosts_file
from entrypoint_support.probes import SCENARIOS, Scenario, job, problems_of

# The machine may be busy: a verdict must not depend on it. The rounds end early when all hosts have answered.
PATIENT = {"SMDP_NETWORK_PROBE_S": "60", "SMDP_NETWORK_WAIT_S": "90"}
needs_links = pytest.mark.skipif(links.refusal() is not None, reason=f"no network namespaces: {links.refusal()}")


@needs_links
@pytest.mark.runs
@pytest.mark.parametrize("name", SCENARIOS)
def test_what_is_wrong_is_named_and_nothing_else(tmp_path: Path, mark: str, name: str) -> None:
    with job(tmp_path, mark, SCENARIOS[name]) as started:
        started.start(**PATIENT)
        event = started.event()
        assert problems_of(event) == SCENARIOS[name].problems, started.hosts[0].text
        assert event["rails"] == ["eth0", "eth1"]
        assert started.finish() == [0] * 8
        assert [host.host for host in started.hosts if host.events("network")] == ["algo-1"]


@pytest.mark.runs
@needs_links
def test_requirement_ends_the_job_on_all_hosts_with_the_reason(tmp_path: Path, mark: str) -> None:
    names = ["algo-1", "algo-2", "algo-3"]
    with job(tmp_path, mark, Scenario((), slow=2), names) as started:
        started.start(**PATIENT, SMDP_NETWORK_REQUIRE="80%")
        assert [host.wait() for host in started.hosts] == [1, 1, 1]
        assert not started.over.exists()
        for host in started.hosts:
            assert host.failure.startswith("SMDP901: the network is below the required 80 % of 0.04 Gbit/s"), host.text
            assert "algo-3" in host.failure
        assert started.event()["met"] is False


@needs_links
@pytest.mark.runs
def test_probe_alone_starts_no_worker(tmp_path: Path, mark: str) -> None:
    names = ["algo-1", "algo-2", "algo-3"]
    with job(tmp_path, mark, Scenario(()), names) as started:
        started.start(**PATIENT, SMDP_NETWORK_ONLY="1")
        assert [host.wait() for host in started.hosts] == [0, 0, 0]
        assert problems_of(started.event()) == ()
        assert not any(host.events("workers_started") for host in started.hosts)


@needs_links
@pytest.mark.runs
def test_probe_alone_fails_for_a_slow_link(tmp_path: Path, mark: str) -> None:
    names = ["algo-1", "algo-2", "algo-3"]
    with job(tmp_path, mark, Scenario((), slow=1), names) as started:
        started.start(**PATIENT, SMDP_NETWORK_ONLY="1")
        assert started.hosts[0].wait() == 1
        assert "SMDP901: the network is below the required 50 %" in started.hosts[0].failure
        assert "algo-2" in started.hosts[0].failure


@needs_links
def test_variable_turns_the_probe_off(tmp_path: Path, mark: str) -> None:
    with job(tmp_path, mark, Scenario(()), ["algo-1", "algo-2"]) as started:
        started.over.touch()
        started.start(SMDP_NETWORK_PROBE_S="0")
        assert started.finish() == [0, 0]
        assert "network" not in "".join(host.text for host in started.hosts)


@needs_links
def test_job_that_ends_during_the_probe_ends_at_once(tmp_path: Path, mark: str) -> None:
    with job(tmp_path, mark, Scenario(()), ["algo-1", "algo-2"]) as started:
        started.hosts[1].entrypoint = ["-c", "import time; time.sleep(3600)"]  # never ready
        started.over.touch()
        started.hosts[0].start(**{**started.environ, **PATIENT, "SMDP_JOB_TOKEN": "t"})
        assert started.hosts[0].wait() == 0
        assert started.hosts[0].events("network") == []


def test_single_host_is_not_probed(host: Host) -> None:
    assert host.job("print('ran')").run() == 0
    assert "network" not in host.text


def test_hosts_on_loopback_are_not_probed(cluster: object, tmp_path: Path) -> None:
    names = ["algo-1", "algo-2"]
    hosts: list[Host] = cluster(names)  # type: ignore[operator]
    for one in hosts:
        one.job("print('ran')").start(SMDP_HOSTS_FILE=hosts_file(tmp_path / "hosts", names))
    assert [one.wait() for one in hosts] == [0, 0]
    assert not any("network" in one.text for one in hosts)


@pytest.mark.parametrize(
    ("name", "value"),
    [("SMDP_NETWORK_REQUIRE", "120%"), ("SMDP_NETWORK_REQUIRE", "much"), ("SMDP_NETWORK_PROBE_S", "-1")],
)
def test_malformed_setting_gives_its_name(host: Host, name: str, value: str) -> None:
    assert host.job("print('ran')").run(**{name: value}) == 1
    assert name in host.failure
