"""The launcher from Python: the commands as functions. Each takes the result of the one before.

    job file, mapping --load--> JobSpec --plan--> Plan --launch--> Job

No function prints or asks. Up to ``plan`` they use neither network nor credentials; ``launch`` costs money unless the
plan is a local run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from datetime import datetime, timezone
from os import PathLike
from pathlib import Path

from smdp_launch.checking.inputs import LocalRequest
from smdp_launch.checking.job import CheckedJob, check_job
from smdp_launch.diagnostics import Diagnostics, closest
from smdp_launch.errors import EnvironmentProblem, Refused
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.jobs.capacity import LONGEST, CapacityWait, Pauses, Waits, regions_of
from smdp_launch.jobs.job import UNKNOWN_REGION, Job
from smdp_launch.jobs.measured_input import measured_input
from smdp_launch.jobs.preflight.run import Preflight, require_account
from smdp_launch.jobs.preflight.run import preflight as check_account
from smdp_launch.jobs.records.history import LOCAL, find_launch, launches, record_plan, resolve_name
from smdp_launch.jobs.records.lines import Launch
from smdp_launch.jobs.records.local_clouds import file_systems, local_cloud_folder
from smdp_launch.jobs.service.clients import Clients, Connect, connect_aws, connection, local_cloud
from smdp_launch.jobs.submit import require_one_job, seed, submit
from smdp_launch.jobs.sweep import Sweep
from smdp_launch.jobs.sweeps import create_sweep
from smdp_launch.localcloud.client import connect as localcloud
from smdp_launch.notebook import cards  # noqa: F401 - registers the views of notebooks
from smdp_launch.planning.job_input import JobLike, PlanOptions, Settings, check_any, require_positive, setting_texts
from smdp_launch.planning.plan import Plan
from smdp_launch.planning.prepare import local_run, make_plan
from smdp_launch.planning.saved import is_saved_plan, require_unchanged
from smdp_launch.planning.saved import load as load_saved
from smdp_launch.rules.request.placeholders import to_fill_in
from smdp_launch.serving.endpoint import Endpoint, deploy_and_wait
from smdp_launch.serving.local import keep_running, let_end
from smdp_launch.serving.plan import serving_plan
from smdp_launch.serving.trained import model_of
from smdp_launch.systems import linux_refusal, usable_processors


def validate(job: JobLike, *, settings: Settings = ()) -> Diagnostics:
    """All errors and warnings of a job at once.

    Args:
        job: path of a job file, a mapping with the same content, or a JobSpec.
        settings: as for ``--set``: ``["compute.max_run=3600"]`` or ``{"compute.max_run": 3600}``; not for a JobSpec.

    Examples:
        >>> for one in validate({"schema": 1, "name": "no way"})[:2]:
        ...     print(one.code, one.message)
        SMDP202 the job file needs "framework"
        SMDP202 the job file needs "script"
    """
    return Diagnostics(check_any(job, settings, measured=measured_input).diagnostics)


def load(job: str | PathLike[str] | Mapping[str, object], *, settings: Settings = ()) -> JobSpec:
    """Read a job from all configuration sources (docs/reference/job-file.md). Refuse it if there are errors.

    Args:
        job: path of a job file, or a mapping with the same content, with paths relative to the current folder.
        settings: as for `validate`.

    Raises:
        JobFileRefused: the job has errors; ``diagnostics`` has all of them.

    Examples:
        >>> spec = load("job.yaml", settings=["compute.max_run=3600"])
        >>> spec.name, spec.compute.instance_count, spec.compute.max_run
        ('small', 2, 3600)
    """
    spec, _ = check_any(job, settings).require()
    return spec


def plan(
    job: JobLike,
    *,
    settings: Settings = (),
    local: bool = False,
    hosts: int | None = None,
    workers_per_host: int | None = None,
    data: Mapping[str, str | PathLike[str]] | None = None,
) -> Plan:
    """The request that a launch would submit, and its consequences. No network, no credentials.

    Args:
        job: path of a job file, a mapping with the same content, or a JobSpec.
        settings: as for `validate`.
        local: plan a local run.
        hosts: with ``local``; by default the job's own number, limited by the cores.
        workers_per_host: with ``local``; by default one for each GPU, limited by the cores.
        data: with ``local``: channel name to a local folder or file. It overrides the job file's ``local.channels``.

    Raises:
        JobFileRefused: the job has errors; ``diagnostics`` has all of them.
        EnvironmentProblem: a local run, on another system than Linux.
        ValueError: ``hosts``, ``workers_per_host`` or ``data`` without ``local``, or a number below 1.

    Examples:
        >>> made = plan("job.yaml")
        >>> made.request["ResourceConfig"]
        {'VolumeSizeInGB': 30, 'InstanceType': 'ml.p4d.24xlarge', 'InstanceCount': 2}
        >>> len(made.ranks), made.billing.instance_hours
        (16, 0.3333333333333333)
    """
    require_positive(hosts=hosts, workers_per_host=workers_per_host)
    options = LocalRequest(hosts, workers_per_host, {name: Path(path) for name, path in (data or {}).items()})
    if local:
        refusal = linux_refusal("a local run")
        if refusal is not None:
            raise EnvironmentProblem(refusal)
        options = options._replace(file_systems=file_systems())
        return _plan_local(check_any(job, settings, options), options)
    if options != LocalRequest():
        raise ValueError("hosts, workers_per_host and data need local=True")
    return make_plan(check_any(job, settings, measured=measured_input))


def preflight(job: Plan | JobLike, *, ignore: Collection[str] = ()) -> Preflight:
    """Check the AWS account for problems with a launch. Nothing is created or changed (docs/how-to/preflight.md).

    Args:
        ignore: codes of checks to skip.

    Raises:
        JobFileRefused: the job has errors.
        EnvironmentProblem: no credentials.
        ServiceProblem: AWS cannot be reached.
    """
    plan = _plan(job, PlanOptions())
    return check_account(connect_aws(plan.spec.region), plan, ignore)


def launch(  # noqa: PLR0913 - the options of a plan and those of a launch
    job: Plan | JobLike,
    *,
    settings: Settings = (),
    local: bool = False,
    hosts: int | None = None,
    workers_per_host: int | None = None,
    data: Mapping[str, str | PathLike[str]] | None = None,
    ignore: Collection[str] = (),
    wait_for_capacity: float | None = None,
    also: Sequence[JobLike] = (),
    on_waits: Callable[[Waits], None] | None = None,
) -> Job:
    """Submit a plan, the plan of a job, or a plan that ``plan --out`` saved. Return while the job runs.

    The plan of a local run starts the private local cloud of the current folder. The job's name is written to
    ``.smdp/history.jsonl`` in the current folder before it is submitted. A plan that is launched twice is one job.

    Args:
        settings: as for `plan`; only if ``job`` is no plan, as for the next four.
        local: as for `plan`.
        hosts: as for `plan`.
        workers_per_host: as for `plan`.
        data: as for `plan`.
        ignore: codes of checks of the AWS account to skip (docs/how-to/preflight.md).
        wait_for_capacity: if SageMaker has no hosts for the job, create it again until it gets some, for so many
            seconds, 28 days at most. Return when it has hosts (docs/how-to/gpus/capacity.md). At any time there is at
            most one job. Each has a name of its own, so ``job`` is no plan.
        also: with ``wait_for_capacity``: other jobs to try in turn, such as the job in another region.
        on_waits: with ``wait_for_capacity``: called when a job is pending (``job``, ``region``, ``reason``), when it
            got no hosts (``job`` is None), and before a pause (``again_in``, seconds).

    Raises:
        WaitTimedOut: no job got hosts in time; none is left.
        KeyboardInterrupt: a job that waits for capacity was stopped, or the message names it.
        ValueError: ``wait_for_capacity`` is out of its range, or missing for ``also`` or ``on_waits``; or an option of
            `plan` has a wrong value, or is given with a plan or ``wait_for_capacity``.
        JobFileRefused: the job has errors.
        Refused: the job has placeholders, is a plan that cannot be created again, the source folder changed since the
            plan was made, or the account is not ready for the job.
        EnvironmentProblem: no credentials, a package that a local run needs is missing, or the local cloud does not
            start.
        ServiceProblem: the service refused.

    Examples:
        >>> job = launch("job.yaml", local=True, hosts=2, workers_per_host=1)
        >>> job.wait(timeout=120).summary
        'completed'
    """
    options = PlanOptions.of(settings, local, hosts, workers_per_host, data)
    if wait_for_capacity is not None:
        options.require_none("wait_for_capacity takes no {}")
        return _launch_with_capacity([job, *also], ignore, wait_for_capacity, on_waits)
    if also or on_waits is not None:
        raise ValueError("also and on_waits need wait_for_capacity")
    plan = _plan(job, options)
    require_one_job(plan)
    require_unchanged(plan)
    where, connect = _launch(plan, ignore, submit)
    return Job(plan.job, where, plan.spec.output.s3, connect, seen_running=True)


def launch_sweep(
    job: Plan | JobLike,
    *,
    settings: Settings = (),
    local: bool = False,
    hosts: int | None = None,
    workers_per_host: int | None = None,
    data: Mapping[str, str | PathLike[str]] | None = None,
    ignore: Collection[str] = (),
) -> Sweep:
    """Launch a sweep: a job with the section ``sweep`` starts many jobs, its trials. Return while they run.

    Args:
        settings: as for `launch`.
        local: as for `launch`.
        hosts: as for `launch`.
        workers_per_host: as for `launch`.
        data: as for `launch`.
        ignore: as for `launch`.

    Raises:
        JobFileRefused: the job has errors.
        Refused: as for `launch`, or the job has no sweep.
        EnvironmentProblem: as for `launch`.
        ServiceProblem: the service refused.
    """
    plan = _plan(job, PlanOptions.of(settings, local, hosts, workers_per_host, data))
    if plan.tuning is None:
        raise Refused(f"{plan.job_file} has no section sweep: launch() runs one job")
    require_unchanged(plan)
    where, connect = _launch(plan, ignore, create_sweep)
    return Sweep(plan.job, where, connect)


def attach(name: str | None = None, *, region: str | None = None) -> Job:
    """The job of an earlier launch, found by its name. This makes no call to the service.

    Args:
        name: of a job, or a unique prefix of one that was launched from the current folder; ``latest``, the default, is
            the last launch.
        region: the AWS region of a job that was not launched from this folder.

    Raises:
        Refused: no job was launched from this folder; no job has this name, and ``region`` is None; or several jobs
            have this prefix.
        EnvironmentProblem: the current folder, or the state folder of the job's local cloud, no longer exists.

    Examples:
        >>> attach().status()
        'Completed'
    """
    launched = resolve_name(name) if region is None else find_launch(name)
    if launched is not None and launched.sweep:
        raise Refused(
            f"{launched.job} is a sweep of several jobs, and this needs the name of one: "
            f"`smdp-launch trials {launched.job}` lists them"
        )
    job = launched.job if launched is not None else name
    if launched is None and region is None and name is not None:
        launched = _sweep_of_trial(name)
    if job is None:
        raise Refused("no job was launched from this folder: give the name of one")
    if launched is None and region is None:
        raise Refused(_unknown_name(job))
    where = launched.where if region is None and launched is not None else region
    state = launched.state if launched is not None else None
    return Job(job, where or UNKNOWN_REGION, None, connection(where, state))


def deploy(
    job: Job | str | None = None, *, job_file: str | PathLike[str] | None = None, settings: Settings = ()
) -> Endpoint:
    """Serve the model of a job with the section ``serve`` of its job file. Return when the endpoint answers.

    For a batch transform, return when it has ended. An endpoint on AWS costs money until it is deleted: by
    `Endpoint.undeploy`, or by AWS at the end of ``serve.lifetime`` if the section names an ``expiry_role``. Without the
    role, the lifetime alone deletes nothing; ``smdp-launch endpoints --expire`` deletes the endpoints past theirs.

    Args:
        job: a job that has ended, or its name; by default the last one launched from the current folder.
        job_file: the file with the section; by default the job file of the launch.
        settings: as for `validate`, such as ``["serve.lifetime=3600"]``.

    Raises:
        JobFileRefused: the job file has errors.
        Refused: the job still runs or wrote no model, the file has no section ``serve`` or has placeholders, or another
            deployment has the name.
        EndpointFailed: the container did not start, or the transform failed; the deployment leaves no resources behind.
        ServiceProblem: the service refused; the deployment leaves no resources behind.
    """
    trained = job if isinstance(job, Job) else attach(job)
    launched = find_launch(trained.name)
    is_local, state = trained.where == LOCAL, launched.state if launched is not None else None
    path = Path(job_file) if job_file is not None else Path(launched.job_file if launched is not None else "job.yaml")
    checked = check_job(path, LocalRequest() if is_local else None, settings=setting_texts(settings))
    checked.require()
    if not is_local:
        checked.require_launchable()
    with ExitStack() as after, trained.connected() as clients:
        made = serving_plan(checked, trained.name, trained.where, model_of(clients, trained.name))
        keeps = is_local and state is not None and keep_running(state)
        if keeps:
            after.callback(let_end, str(state))  # if the deployment leaves no endpoint
        deploy_and_wait(clients, made, state, keeps_cloud=keeps)
    return Endpoint(made.name, trained.where, made.serve.kind, trained.connect)


def _sweep_of_trial(name: str) -> Launch | None:
    """The sweep of this folder whose trial has the name."""
    return next((one for one in reversed(launches()) if one.sweep and name.startswith(f"{one.job}-")), None)


def _unknown_name(name: str) -> str:
    """The message for a name that is no job of this folder."""
    elsewhere = "give --region for a job that was launched in another folder"
    known = [one.job for one in reversed(launches())]
    if not known:
        return f"there is no job {name}: none was launched from this folder; {elsewhere}"
    listed = ", ".join(known[:3]) + (" and more (`smdp-launch list`)" if len(known) > 3 else "")
    match = closest(name, known)
    guess = f'did you mean "{match}"?' if match is not None else f"this folder has {listed};"
    return f"there is no job {name}: {guess} {elsewhere}"


def _plan(job: Plan | JobLike, options: PlanOptions) -> Plan:
    if isinstance(job, Plan) or (isinstance(job, str | PathLike) and is_saved_plan(Path(job))):
        options.require_none("a plan is final: pass {} to plan()")
        return job if isinstance(job, Plan) else load_saved(Path(job))
    return plan(job, **options._asdict())


def _launch(plan: Plan, ignore: Collection[str], create: Callable[[Clients, Plan], None]) -> tuple[str, Connect]:
    """Where the job or the sweep runs, and the connection to it."""
    return _launch_on_aws(plan, ignore, create) if plan.local is None else _launch_local(plan, create)


def _launch_on_aws(plan: Plan, ignore: Collection[str], create: Callable[[Clients, Plan], None]) -> tuple[str, Connect]:
    if plan.placeholders:
        raise Refused(f"{to_fill_in(plan.placeholders)}; local=True runs the job as it is", plan.launch_problems)
    region = plan.spec.region
    clients = connect_aws(region)
    require_account(clients, plan, ignore)
    record_plan(plan, datetime.now(timezone.utc))
    create(clients, plan)
    return region, lambda: nullcontext(clients)


def _launch_with_capacity(
    jobs: Sequence[Plan | JobLike], ignore: Collection[str], total: float, on_waits: Callable[[Waits], None] | None
) -> Job:
    if not 0 < total <= LONGEST:
        raise ValueError(f"wait_for_capacity is {total}: seconds, {LONGEST} (28 days) at most")
    checked = [_checked_again(one) for one in jobs]
    plan = make_plan(checked[0])
    clients = connect_aws(plan.spec.region)
    require_account(clients, plan, ignore)
    regions = regions_of(clients, checked, ignore)
    wait = CapacityWait(regions, total, on_waits or (lambda _: None), Pauses().within(total))
    clients, plan = wait.run()
    return Job(plan.job, plan.spec.region, plan.spec.output.s3, lambda: nullcontext(clients), seen_running=True)


def _checked_again(job: Plan | JobLike) -> CheckedJob:
    """The job of a file, a mapping or a spec, from which new plans can be made."""
    if isinstance(job, Plan) or (isinstance(job, str | PathLike) and is_saved_plan(Path(job))):
        raise Refused("a plan has one name, and wait_for_capacity creates the job again: pass the job file instead")
    checked = check_any(job)
    checked.require()
    checked.require_launchable()
    require_one_job(make_plan(checked))
    return checked


def _plan_local(job: CheckedJob, options: LocalRequest) -> Plan:
    namespaces = localcloud.isolation().explanation
    run = local_run(job, options, usable_processors(), namespaces, localcloud.inputs_refusal, _engine_missing)
    return make_plan(job, local=run)


def _engine_missing() -> str | None:
    from smdp_launch.doctor.packages import engine_missing  # as in `_launch_local`

    return engine_missing()


def _launch_local(plan: Plan, create: Callable[[Clients, Plan], None]) -> tuple[str, Connect]:
    from smdp_launch.doctor.local_run import require  # reads the metadata of packages, which `plan` does not need

    require(plan)
    state = local_cloud_folder()
    connect = local_cloud(state)
    with connect() as clients:
        seed(clients, plan)
        record_plan(plan, datetime.now(timezone.utc), state)
        create(clients, plan)
    return LOCAL, connect
