"""Launch, follow and stop take effect once although calls fail before or after they have acted."""

from __future__ import annotations

import re
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace

import pytest
from botocore.exceptions import ClientError

from smdp_launch import ServiceProblem
from smdp_launch.cli.shared.follow_session import Answer, FollowSession
from smdp_launch.errors import EnvironmentProblem, ExitCode
from smdp_launch.jobs.records.history import STATE_FOLDER
from smdp_launch.jobs.service import retry
from smdp_launch.jobs.service.clients import local_cloud
from smdp_launch.jobs.service.error_kinds import ErrorKind
from smdp_launch.jobs.service.retry_policy import RetryPolicy
from smdp_launch.jobs.status import list_jobs
from smdp_launch.jobs.submit import create
from tests.conftest import LAUNCHER, Command, write_job
from tests.localcloud.conftest import assert_nothing_runs
from tests.support.jobs.service import environment, name_of, write_credentials
from tests.support.services.cloud import Cloud
from tests.support.services.faults import Fault, Proxy
from tests.support.services.faulty_service import (
    clients_through,
    cloud_with_data,
    first_of_each_two,
    make,
    run,
    three_in_ten,
)

SEEDS = 20


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud_with_data(tmp_path_factory.mktemp("faulty") / "state") as made:
        yield made


def _tier(seed: int) -> list[pytest.MarkDecorator]:
    """One job that completes and one that is stopped in `make test`; two more in `make test-runs`."""
    if seed < 2:
        return []
    return [pytest.mark.runs if seed < 4 else pytest.mark.soak]


@pytest.mark.parametrize("seed", [pytest.param(one, marks=_tier(one)) for one in range(SEEDS)])
def test_job_is_launched_once_when_three_of_ten_calls_fail(cloud: Cloud, tmp_path: Path, seed: int) -> None:
    result = run(cloud, tmp_path, seed)
    assert result.outcome.exit_code is (ExitCode.JOB_STOPPED if seed % 2 else ExitCode.OK)
    assert result.faults > 0


@pytest.mark.parametrize(
    "fault",
    [pytest.param(one, marks=[] if one is Fault.RESET_AFTER else pytest.mark.runs) for one in Fault],
    ids=lambda one: one.name,
)
def test_every_call_is_retried_once(cloud: Cloud, tmp_path: Path, fault: Fault) -> None:
    seed = 1001 + 2 * list(Fault).index(fault)
    assert run(cloud, tmp_path, seed, first_of_each_two(fault)).outcome.exit_code is ExitCode.JOB_STOPPED


def test_name_in_use_by_another_job_is_an_error(cloud: Cloud, tmp_path: Path) -> None:
    plan = make(tmp_path, 2001, "print(1)\n", 1)
    with Proxy(lambda *_: None).running() as proxy:
        clients = clients_through(proxy, cloud)
        other = [{**tag, "Value": "0" * 64} for tag in plan.request["Tags"]]
        cloud.sagemaker.create_training_job(**{**plan.request, "Tags": other})
        with pytest.raises(ServiceProblem, match=r"ResourceInUse: Training job names must be unique[^;]*$"):
            create(clients, plan.request)
    cloud.wait(plan.job)


def test_existing_job_with_unreadable_tags_is_reported(cloud: Cloud, tmp_path: Path) -> None:
    def deny(**_: object) -> None:
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "ListTags")

    plan = make(tmp_path, 2004, "print(1)\n", 1)
    with Proxy(first_of_each_two(Fault.RESET_AFTER)).running() as proxy:
        clients = clients_through(proxy, cloud)
        clients.sagemaker.meta.events.register("before-call.sagemaker.ListTags", deny)
        message = (
            rf"DeniedException: no\): smdp-launch status {plan.job} shows it, smdp-launch stop {plan.job} stops it"
        )
        with pytest.raises(ServiceProblem, match=message):
            create(clients, plan.request)
        assert proxy.accepted["CreateTrainingJob"] == 1
    cloud.wait(plan.job)


def test_throttled_stop_is_retried_while_the_job_is_followed(cloud: Cloud) -> None:
    refused = Counter[str]()

    def policy(operation: str, _: str) -> Fault | None:
        refused[operation] += 1
        return Fault.EXPIRED if operation == "StopTrainingJob" and refused[operation] <= 3 else None

    cloud.start("stubborn", "import time\ntime.sleep(300)\n")
    with Proxy(policy).running() as proxy:
        clients = clients_through(proxy, cloud)
        clients.retry_policy = RetryPolicy(first_gap=0.01, longest_gap=0.05, credential_tries=2)
        clients.interrupted.set()
        followed = FollowSession(clients, "stubborn", None, Answer.STOP).run()
    assert followed is not None
    assert followed.outcome.exit_code is ExitCode.JOB_STOPPED
    assert proxy.accepted["StopTrainingJob"] == 1


@pytest.mark.runs
def test_list_does_not_read_jobs_older_than_the_launches(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud.run("older-1", "")
    cloud.run("older-2", "")
    monkeypatch.setattr(list_jobs, "PAGE", 1)
    later = datetime.now(timezone.utc) + timedelta(days=2)
    launched = list_jobs.Launch("never-taken", "us-east-1", "job.yaml", "0" * 64, later.isoformat())
    with Proxy(lambda *_: None).running() as proxy:
        assert list_jobs._find(clients_through(proxy, cloud), [launched]) == {}
        assert proxy.accepted["ListTrainingJobs"] == 1


@pytest.mark.runs
def test_reconnection_releases_the_previous_connection(tmp_path: Path) -> None:
    def held() -> int:
        links = [one.readlink() for one in Path("/proc/self/fd").iterdir() if one.is_symlink()]
        return sum(str(one).startswith(str(tmp_path)) for one in links)

    with local_cloud(tmp_path / "state")() as clients:
        first = held()
        for _ in range(3):
            clients.renew(ErrorKind.TEMPORARY)
        assert held() == first > 0
        assert clients.s3.list_buckets()["Buckets"] == []
    assert_nothing_runs(str(tmp_path / "state"))


def test_service_that_does_not_recover_is_an_error(
    cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a clock on which each try lasts ten seconds."""
    plan = make(tmp_path, 2002, "print(1)\n", 1)
    with Proxy(lambda *_: Fault.RESET_BEFORE).running() as proxy:
        clock = lambda: 10.0 * proxy.faults[Fault.RESET_BEFORE]  # noqa: E731
        monkeypatch.setattr(retry, "time", SimpleNamespace(time=clock, monotonic=clock))
        clients = clients_through(proxy, cloud)
        clients.retry_policy = RetryPolicy(first_gap=0.01, longest_gap=0.05, total=55)
        with pytest.raises(
            ServiceProblem, match=r"not be created: .*6 tries in 60 s\); run smdp-launch status seed2002-"
        ):
            create(clients, plan.request)
    assert proxy.faults[Fault.RESET_BEFORE] == 6
    assert plan.job not in [one.name for one in (cloud.state_dir / "jobs").iterdir()]


def test_expired_credentials_are_an_environment_problem(cloud: Cloud, tmp_path: Path) -> None:
    plan = make(tmp_path, 2003, "print(1)\n", 1)
    with Proxy(lambda *_: Fault.EXPIRED).running() as proxy:
        clients = clients_through(proxy, cloud)
        clients.retry_policy = RetryPolicy(first_gap=0.01, longest_gap=0.05, credential_tries=5)
        with pytest.raises(EnvironmentProblem, match="renew your AWS credentials"):
            create(clients, plan.request)
    assert proxy.faults[Fault.EXPIRED] == 5


@pytest.mark.runs
@pytest.mark.parametrize("seed", [1])
def test_command_line_launches_one_job_and_follows_it_to_its_end(
    cloud: Cloud, job_folder: Path, smdp_launch: Command, seed: int
) -> None:
    write_job(job_folder, script="print('trained', flush=True)\n")
    before = {one.name for one in (cloud.state_dir / "jobs").iterdir()}
    with Proxy(three_in_ten(seed)).running() as proxy:
        ran = smdp_launch(
            "launch", "--yes", env=environment(cloud, proxy, job_folder, cloud.endpoint.access_key), timeout=240
        )
    assert ran.returncode == ExitCode.OK, ran.stdout + ran.stderr
    assert proxy.accepted["CreateTrainingJob"] == 1
    assert {one.name for one in (cloud.state_dir / "jobs").iterdir()} - before == {name_of(job_folder)}
    assert len(re.findall(r"algo-\d:\d+ +\| trained$", ran.stdout, re.MULTILINE)) == 2


@pytest.mark.runs
def test_follower_waits_for_login_and_continues(cloud: Cloud, job_folder: Path) -> None:
    """The credentials expire and a line reports it; after a new login no line is lost or repeated."""
    expired = [False]
    old = "LOCALOLD"

    def policy(operation: str, key: str) -> Fault | None:
        return Fault.EXPIRED if key == old or (expired[0] and operation == "GetLogEvents") else None

    job = f"login-{time.time_ns()}"
    go = cloud.state_dir / "jobs" / job / "hosts" / "algo-1" / "ml" / "output" / "data" / "go"
    script = """
        import os, time
        print("before", flush=True)
        while not os.path.exists(os.path.join(os.environ["SM_OUTPUT_DATA_DIR"], "go")):
            time.sleep(0.05)
        print("after", flush=True)
        """
    cloud.start(job, script)
    with Proxy(policy).running() as proxy:
        home = job_folder / "home"
        home.mkdir()
        given = environment(cloud, proxy, home, cloud.endpoint.access_key)
        with subprocess.Popen(
            [LAUNCHER, "follow", job, "--region", "us-east-1"],
            cwd=job_folder,
            env=given,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as running:
            assert running.stdout is not None
            output = ""
            for line in running.stdout:
                output += line
                if line.endswith("| before\n"):
                    expired[0] = True
                    write_credentials(home, old, cloud.endpoint.secret_key)
                elif line.startswith("waiting since"):
                    assert re.fullmatch(
                        r"waiting since \d\d:\d\d:\d\d UTC; logs received up to \d\d:\d\d:\d\d UTC:\n", line
                    )
                    output += running.stdout.readline()
                    expired[0] = False
                    go.write_text("")
                    write_credentials(home, cloud.endpoint.access_key, cloud.endpoint.secret_key)
            assert running.wait(60) == ExitCode.OK, output
    assert "ExpiredTokenException: made to fail" in output
    assert "the service responds again after " in output
    texts = re.findall(r"^algo-1:0 +\| (.*)$", output, re.MULTILINE)
    assert texts == ["before", "after"]
    assert not (job_folder / STATE_FOLDER).exists()
