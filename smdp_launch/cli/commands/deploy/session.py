"""One run of ``deploy``: plan, confirmation, requests, wait."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import click

from smdp_launch.cli.render.diagnostics import print_diagnostics
from smdp_launch.cli.render.job.upload import UploadView
from smdp_launch.cli.render.json_output import print_document
from smdp_launch.cli.render.next_step import print_next, print_note
from smdp_launch.cli.render.serving import cost_text, deployed_json, print_requests, print_serving_plan
from smdp_launch.cli.render.terminal.retries import print_retry
from smdp_launch.cli.shared.checking import check
from smdp_launch.cli.shared.confirmation import confirm
from smdp_launch.cli.shared.follow_session import interrupts_deferred
from smdp_launch.cli.shared.keyboard import Keyboard
from smdp_launch.cli.shared.serving import TrainedJob, trained_job
from smdp_launch.errors import (
    EndpointFailed,
    EnvironmentProblem,
    ExitCode,
    Interrupted,
    Refused,
    ServiceProblem,
    WaitTimedOut,
)
from smdp_launch.jobs.preflight.check import Result
from smdp_launch.jobs.preflight.run import HOSTING, check_hosting
from smdp_launch.jobs.records.history import LOCAL
from smdp_launch.jobs.service.clients import Clients, connection
from smdp_launch.localcloud.client.connect import object_path
from smdp_launch.request.names import S3Location
from smdp_launch.serving.deploy import create_all, existing_deployment, forget, record, roll_back
from smdp_launch.serving.follow import wait_until_ready
from smdp_launch.serving.local import keep_running, let_end, upload_input
from smdp_launch.serving.plan import LocalServing, ServingPlan, serving_plan
from smdp_launch.serving.resources import Resource, serving_kind
from smdp_launch.serving.trained import model_of
from smdp_launch.systems import command_line
from smdp_launch.units import short


@dataclass(frozen=True)
class DeployOptions:
    """The options of the command that do not change the requests.

    Args:
        input: local data for a batch transform in the local cloud.
        ignores_quota: do not check the account's quota.
    """

    is_local: bool
    dry_run: bool
    yes: bool
    wait: bool
    as_json: bool
    input: Path | None = None
    ignores_quota: bool = False


def deploy(
    name: str | None, job_file: Path | None, settings: Sequence[str], region: str | None, options: DeployOptions
) -> ExitCode:
    from smdp_launch.checking.inputs import LocalRequest

    job = trained_job(name, region, is_local=options.is_local)
    checked = check(job_file or job.job_file, LocalRequest() if options.is_local else None, settings=settings)
    checked.require()  # its errors are shown when the command ends
    if not options.as_json:
        print_diagnostics([one for one in checked.diagnostics if one.code in _SHOWN])
    with ExitStack() as after, connection(job.where, job.state)() as clients:
        clients.on_waiting = print_retry
        local = LocalServing(has_own_input=options.input is not None)
        plan = serving_plan(checked, job.name, job.where, model_of(clients, job.name), local=local)
        _require_region(plan, job)
        quota = (
            check_hosting(clients, plan.spec, plan.name) if not options.is_local and not options.ignores_quota else None
        )
        if options.dry_run:
            return _show(plan, options, quota)
        if not options.as_json:
            print_serving_plan(plan, quota)
        if not options.is_local:
            checked.require_launchable()
            if quota is not None and quota.problems:
                raise Refused(f"AWS would refuse this deployment; fix it, or add --ignore {HOSTING}", quota.problems)
            _confirm(plan, options)
        if options.input is not None:
            upload_input(clients, plan, options.input)
        keeps = job.state is not None and options.is_local and keep_running(job.state)
        if keeps:
            after.callback(let_end, str(job.state))  # if the deployment leaves no endpoint
        return DeploySession(clients, plan, job, options, keeps).run()


#: Warnings about endpoints; those about training are not shown again.
_SHOWN = frozenset(
    f"SMDP{number}" for number in (*range(340, 350), *range(460, 470), *range(805, 808), *range(825, 833))
)


def _require_region(plan: ServingPlan, job: TrainedJob) -> None:
    if job.where not in (LOCAL, plan.spec.region):
        raise Refused(f"{job.name} ran in {job.where}, and the job file has the region {plan.spec.region}")


def _show(plan: ServingPlan, options: DeployOptions, quota: Result | None) -> ExitCode:
    if quota is not None:
        print_diagnostics(quota.problems)
    if options.as_json:
        print_document(deployed_json(plan, None))
        return ExitCode.OK
    print_serving_plan(plan, quota)
    print_requests(plan.requests)
    print_next(command_line(["smdp-launch", *(one for one in sys.argv[1:] if one not in ("--dry-run", "--plan"))]))
    return ExitCode.OK


def _confirm(plan: ServingPlan, options: DeployOptions) -> None:
    price = cost_text(plan)
    confirm(
        options.yes,
        ask=not options.as_json,
        question=f"Deploy it on AWS ({price})?",
        subject=f"a deployment on AWS costs money ({price})",
        refusal="not deployed",
    )


@dataclass
class DeploySession:
    """Sends the requests of a plan, and waits until the endpoint answers.

    Args:
        keeps_cloud: the local cloud runs only for this endpoint.
    """

    clients: Clients
    plan: ServingPlan
    job: TrainedJob
    options: DeployOptions
    keeps_cloud: bool = False
    _keyboard: Keyboard = field(default_factory=Keyboard)

    def run(self) -> ExitCode:
        """Deploy all, or nothing.

        Raises:
            EndpointFailed: the endpoint did not start; nothing is left of what this run has created.
            SmdpError: as `create_all` raises it.
        """
        with interrupts_deferred(self.clients):
            try:
                status = existing_deployment(self.clients, self.plan)
            except Interrupted as error:
                raise Interrupted(f"{error}; nothing was created") from error
            if status is not None:
                end = " and keeps its lifetime" if self.plan.serve.lifetime is not None else ""
                print_note(f"{self.plan.name} is deployed already with the same settings{end}")
                return self._wait(None) if self.options.wait else self._end(status)
            record(self.plan, self.job.state, keeps_cloud=self.keeps_cloud)
            with UploadView("model") as upload:
                on_rolled_back = partial(forget, self.plan)
                created = create_all(self.clients, self.plan, self._note, upload.show, on_rolled_back)
            if self.options.wait:
                return self._wait(created)
            return self._end("InProgress" if self.plan.serve.kind == "batch" else "Creating")

    def _note(self, title: str) -> None:
        if not self.options.as_json:
            click.echo(f"created {title}")

    def _wait(self, created: Sequence[Resource] | None) -> ExitCode:
        """Args:
        created: None for a deployment that existed before, which is not deleted.
        """
        kind = serving_kind(self.plan.serve.kind)
        try:
            ready = wait_until_ready(self.clients, self.plan.name, kind, self._status, self._wait_for_poll)
        except EndpointFailed as error:
            for line in error.log:
                click.echo(f"  {line}", err=True)
            stays = f"`smdp-launch undeploy {self.plan.name}` deletes it"
            raise EndpointFailed(f"{error}; {stays if created is None else self._delete(created)}") from error
        except Interrupted:
            ready = None  # while the service did not answer
        except (ServiceProblem, EnvironmentProblem, WaitTimedOut) as error:
            name = self.plan.name
            exists = f"{name} exists: `smdp-launch endpoints` shows it, `smdp-launch undeploy {name}` deletes it"
            raise type(error)(f"{error}; {exists}") from error
        if ready is not None:
            return self._end(str(ready[kind.status]))
        if created is None or self._keeps():
            print_note(f"{self.plan.name} stays: `smdp-launch undeploy` deletes it")
            return ExitCode.INTERRUPTED
        click.echo(f"interrupted; {self._delete(created)}", err=True)
        return ExitCode.INTERRUPTED

    def _status(self, status: str) -> None:
        if not self.options.as_json:
            click.echo(f"{self.plan.name}: {status}")

    def _wait_for_poll(self, pause: float) -> bool:
        return self.clients.interrupted.wait(pause)

    def _keeps(self) -> bool:
        """Ask whether to keep the endpoint; without a terminal it is deleted, because it costs money."""
        self.clients.interrupted.clear()
        if self.options.as_json or sys.stdin is None or not sys.stdin.isatty():
            return False
        sys.stdout.write(f"\nDelete {self.plan.name}? [d]elete it, [k]eep it and exit: ")
        sys.stdout.flush()
        answer = self._keyboard.line(self.clients.interrupted.is_set)
        return (answer or "").strip().lower()[:1] == "k"

    def _delete(self, created: Sequence[Resource]) -> str:
        undone = roll_back(self.clients, created)
        forget(self.plan, undone)
        return undone.text(self.plan.name)

    def _shown(self, location: str) -> str:
        """The folder on this machine of a location in the local cloud; the location itself on AWS."""
        if not self.options.is_local or self.job.state is None:
            return location
        where = S3Location.parse(location)
        listed = self.clients.s3.list_objects_v2(Bucket=where.bucket, Prefix=f"{where.key}/", MaxKeys=1)
        for one in listed.get("Contents", []):
            path = object_path(Path(self.job.state), where.bucket, one["Key"])
            if path is not None:
                return short(path.parents[one["Key"].removeprefix(f"{where.key}/").count("/")])
        return location

    def _end(self, status: str) -> ExitCode:
        if self.options.as_json:
            print_document(deployed_json(self.plan, status))
            return ExitCode.OK
        if self.plan.serve.kind == "batch":
            output = self.plan.requests["CreateTransformJob"]["TransformOutput"]["S3OutputPath"]
            answers = f"answers in {self._shown(output)}" if status == "Completed" else f"answers will be in {output}"
            click.echo(f"{self.plan.name}: {answers}")
            print_next("smdp-launch undeploy")
        elif status == "InService":
            print_next("smdp-launch invoke FILE, then smdp-launch undeploy")
        else:
            print_next("smdp-launch endpoints")
        return ExitCode.OK
