"""Ctrl-C before and after every call of `deploy` and `undeploy`: all or nothing, and the message says which."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from smdp_launch.cli.commands.deploy.session import DeployOptions, DeploySession
from smdp_launch.cli.shared.follow_session import interrupts_deferred
from smdp_launch.cli.shared.serving import TrainedJob
from smdp_launch.errors import ExitCode, Interrupted, ServiceProblem
from smdp_launch.jobs.records.endpoints import find_served, served
from smdp_launch.jobs.service.retry_policy import RetryPolicy
from smdp_launch.serving.deploy import create_all, record
from smdp_launch.serving.follow import wait_until_gone, wait_until_ready
from smdp_launch.serving.plan import ServingPlan
from smdp_launch.serving.resources import ENDPOINT
from smdp_launch.serving.undeploy import Undeployed, undeploy
from tests.support.services.cloud import Cloud
from tests.support.services.faults import Fault, Proxy
from tests.support.services.faulty_service import clients_through, cloud_with_data
from tests.support.serving.served import ALL, MODEL_KEY, NAME, Moments, archive, left, plan_for

pytestmark = pytest.mark.usefixtures("own_folder")
OPTIONS = DeployOptions(is_local=False, dry_run=False, yes=True, wait=True, as_json=False)


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud_with_data(tmp_path_factory.mktemp("interrupts") / "state") as made:
        yield made


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def deploy(cloud: Cloud, plan: ServingPlan, moment: int | None) -> tuple[int, str, Moments]:
    """The exit code, the error and the calls of a deployment that is interrupted at ``moment``."""
    with Moments(moment, interrupt).running() as proxy:
        assert isinstance(proxy, Moments)
        session = DeploySession(
            clients_through(proxy, cloud), plan, TrainedJob(NAME, "us-east-1", None, Path()), OPTIONS
        )
        try:
            return session.run(), "", proxy
        except Interrupted as error:
            return error.exit_code, str(error), proxy


def delete(cloud: Cloud, moment: int | None = None) -> tuple[Undeployed | None, str, Moments]:
    with Moments(moment, interrupt).running() as proxy:
        assert isinstance(proxy, Moments)
        clients = clients_through(proxy, cloud)
        with interrupts_deferred(clients):
            try:
                result = undeploy(clients, NAME, find_served(NAME))
            except Interrupted as error:
                return None, str(error), proxy
            clients.interrupted.clear()
            wait_until_gone(clients, NAME, clients.interrupted.wait)
            return result, "", proxy


#: Up to the moment after the last request; the others are polls until the endpoint is in service.
REQUESTS = 12
RUNS = pytest.mark.runs


@pytest.mark.parametrize("most", [REQUESTS, pytest.param(1000, marks=RUNS)], ids=["requests", "all"])
def test_interrupt_at_any_call_of_deploy_leaves_all_or_nothing(
    cloud: Cloud, tmp_path: Path, capsys: pytest.CaptureFixture[str], most: int
) -> None:
    plan = plan_for(cloud, tmp_path)
    outcomes: list[int] = []
    for moment in range(most):
        code, error, proxy = deploy(cloud, plan, moment)
        said = error + capsys.readouterr().err
        found = left(cloud)
        outcomes.append(code)
        if code == ExitCode.OK:
            assert found == ALL, (moment, proxy.operations)
            assert [one.endpoint for one in served()] == [NAME]
            delete(cloud)
            break  # it ended before this moment
        assert (code, found) == (ExitCode.INTERRUPTED, []), (moment, proxy.operations)
        assert "nothing of the deployment is left" in said or "nothing was created" in said, (moment, said)
        assert served() == [], moment
    print(f"\n{len(outcomes)} moments, {outcomes.count(ExitCode.INTERRUPTED)} of them without an endpoint")
    assert outcomes.count(ExitCode.INTERRUPTED) >= REQUESTS
    assert most == REQUESTS or outcomes[-1] == ExitCode.OK


def deployed(cloud: Cloud, plan: ServingPlan) -> None:
    """The resources, made without the waits of the command."""
    with Moments(None, interrupt).running() as proxy:
        clients = clients_through(proxy, cloud)
        create_all(clients, plan)
        wait_until_ready(clients, NAME, ENDPOINT, lambda _: None, clients.interrupted.wait)


@pytest.mark.parametrize(
    "moments", [(0, 1, 2, 3, 4), pytest.param(tuple(range(1000)), marks=RUNS)], ids=["some", "all"]
)
def test_interrupt_at_any_call_of_undeploy_leaves_all_or_nothing(
    cloud: Cloud, tmp_path: Path, moments: tuple[int, ...]
) -> None:
    plan, exists, passed = plan_for(cloud, tmp_path), False, 0
    for moment in moments:
        if not exists:
            record(plan, None)
            deployed(cloud, plan)
        result, error, proxy = delete(cloud, moment)
        exists, found = result is None, left(cloud)
        if result is None:
            assert found == ALL, (moment, proxy.operations)
            assert "nothing was deleted" in error, moment
        else:
            assert found == [], (moment, proxy.operations)
            assert [one.partition(NAME)[0].strip() for one in result.deleted[:3]] == ALL[:0:-1]
            assert (result.left, served()) == ({}, [])
        passed += 1
        if moment >= proxy.count:
            break  # it ended before this moment
    print(f"\n{passed} moments")
    assert passed >= (14 if len(moments) > 5 else 5)


@RUNS
@pytest.mark.parametrize("moment", [3, 5, 8, 10])
def test_interrupt_during_the_upload_of_a_large_model_leaves_no_part(cloud: Cloud, tmp_path: Path, moment: int) -> None:
    """During its download, after the start of its upload, and while parts of it are sent, several at a time."""
    plan = plan_for(cloud, tmp_path)
    cloud.s3.put_object(Bucket="bucket", Key=MODEL_KEY, Body=archive(random.Random(1).randbytes(40 << 20)))
    code, error, proxy = deploy(cloud, plan, moment)
    assert (code, left(cloud)) == (ExitCode.INTERRUPTED, []), proxy.operations
    assert "nothing of the deployment is left" in error or "nothing was created" in error
    assert cloud.s3.list_multipart_uploads(Bucket="bucket").get("Uploads", []) == []
    assert "CreateModel" not in proxy.operations
    assert served() == []


@pytest.mark.parametrize(
    "wanted", ["DescribeEndpoint", *(pytest.param(one, marks=RUNS) for one in ("CreateEndpoint", "CreateModel"))]
)
def test_interrupt_while_the_service_does_not_answer_leaves_nothing(
    cloud: Cloud, tmp_path: Path, capsys: pytest.CaptureFixture[str], wanted: str
) -> None:
    plan, failed = plan_for(cloud, tmp_path), 0

    def policy(operation: str, _: str) -> Fault | None:
        """The call fails until the user interrupts its retries."""
        nonlocal failed
        if operation != wanted or (wanted == "DescribeEndpoint" and not served()):
            return None
        failed += 1
        if failed == 2:
            interrupt()
        return Fault.ERROR if failed <= 3 else None

    with Proxy(policy).running() as proxy:
        session = DeploySession(
            clients_through(proxy, cloud), plan, TrainedJob(NAME, "us-east-1", None, Path()), OPTIONS
        )
        try:
            code, said = session.run(), capsys.readouterr().err
        except Interrupted as error:
            code, said = error.exit_code, str(error)
    assert (code, left(cloud)) == (ExitCode.INTERRUPTED, [])
    assert "nothing of the deployment is left" in said
    assert served() == []


def test_service_that_stays_silent_leaves_an_endpoint_and_says_so(cloud: Cloud, tmp_path: Path) -> None:
    plan = plan_for(cloud, tmp_path)
    policy = lambda operation, _: Fault.ERROR if operation == "DescribeEndpoint" and served() else None  # noqa: E731
    with Proxy(policy).running() as proxy:
        clients = clients_through(proxy, cloud)
        clients.retry_policy = RetryPolicy(first_gap=0.01, longest_gap=0.05, total=0.2)
        session = DeploySession(clients, plan, TrainedJob(NAME, "us-east-1", None, Path()), OPTIONS)
        with pytest.raises(ServiceProblem, match=f"{NAME} exists: .* `smdp-launch undeploy {NAME}` deletes it"):
            session.run()
    assert left(cloud) == ALL
    delete(cloud)


@RUNS
def test_kept_endpoint_stays_after_an_interrupt(cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal the user is asked, and may keep the endpoint."""
    plan = plan_for(cloud, tmp_path)
    monkeypatch.setattr(DeploySession, "_keeps", lambda _: True)
    with Moments(None, interrupt).running() as proxy:
        clients = clients_through(proxy, cloud)
        session = DeploySession(clients, plan, TrainedJob(NAME, "us-east-1", None, Path()), OPTIONS)
        monkeypatch.setattr(session, "_status", lambda _: interrupt())  # while the endpoint is Creating
        assert session.run() == ExitCode.INTERRUPTED
        wait_until_ready(clients, NAME, ENDPOINT, lambda _: None, clients.interrupted.wait)
    assert left(cloud) == ALL
    delete(cloud)
    assert left(cloud) == []
