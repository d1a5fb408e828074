"""The verdict on an endpoint that had a fault, and the report of its rehearsal."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime, timezone

from smdp_launch.catalog.hosting.faults import EndpointFault
from smdp_launch.rehearsals.endpoint.caller import Call, errors, longest_gap
from smdp_launch.rehearsals.endpoint.run import Observed
from smdp_launch.rehearsals.rehearsal import Result, Row
from smdp_launch.rehearsals.report import Moment, Rehearsed, Report, Status, Timeline
from smdp_launch.secret_forms import named_secrets, starred
from smdp_launch.serving.plan import ServingPlan
from smdp_launch.units import count, listed, size, titled

_PLATFORM = {
    "slow-start": "a host has to get its instance, pull the image, download the model and load it. Until every host"
    " passes its health check, the endpoint is Creating and answers no request. SageMaker gives up after"
    " serve.startup_timeout, 600 s by default.",
    "crash": "a container ends, because its process or its host fails. SageMaker starts it again; until then its"
    " requests go to the other hosts, if there are any.",
    "overload": "more requests arrive than the hosts answer. SageMaker refuses them with ServiceUnavailable (503) until"
    " there is room again.",
}
_NOT_SIMULATED = (
    "instances, GPUs and the serving image: the script runs with the Python packages of this machine",
    "the load of other callers: one caller sends one request at a time",
    "the time that SageMaker needs for instances, image and model",
)


def describe_planned(fault: EndpointFault) -> str:
    """What happens to the local endpoint, and when."""
    return {
        "slow-start": f"the health check of each container fails for {fault.seconds:g} s after its start",
        "crash": f"the container of one host is killed {fault.after:g} s after the endpoint is in service",
        "overload": f"{fault.after:g} s after the endpoint is in service, requests are refused for {fault.seconds:g} s",
    }[fault.kind]


def platform(kind: str) -> str:
    """What such a fault is on SageMaker."""
    return _PLATFORM[kind]


def endpoint_report(
    plan: ServingPlan, fault: EndpointFault, found: Observed, within: float, job: str, version: str
) -> Report:
    """Args:
    within: as it was rehearsed with.
    job: the training job of the model.
    version: of smdp-launch.
    """
    verdict, reason = judge(plan, fault, found, within)
    secrets = named_secrets(plan.spec.model_dump(mode="json"))

    def shown(rows: Iterator[Row]) -> tuple[Row, ...]:
        return tuple((name, str(starred(value, secrets))) for name, value in rows)

    return Report(
        run=Rehearsed(
            plan.name,
            plan.job_file,
            plan.made,
            plan.spec,
            plan.source,
            plan.hosts or 1,
            None,
            plan.deployment.hash,
            asdict(fault),
        ),
        kind=fault.kind,
        version=version,
        verdict=verdict,
        reason=str(starred(reason, secrets)),
        rehearsed=shown(_rehearsed(plan, fault, within, job, version)),
        platform=platform(fault.kind),
        evidence=shown(_evidence(found)),
        applied=shown(_applied(plan)),
        not_applied=_NOT_SIMULATED,
        adds=shown(_adds(plan)),
        timeline=_timeline(plan, found),
    )


def judge(plan: ServingPlan, fault: EndpointFault, found: Observed, within: float) -> tuple[Result, str]:
    """The verdict and its reason, one sentence."""
    if found.left:
        return "FAIL", f"the endpoint was not deleted whole: {listed(list(found.left))} is left"
    if found.failure:
        return "FAIL", found.failure
    open_ = _untested(fault, found)
    if open_ is not None:
        return "INCONCLUSIVE", open_
    if found.recovered is not None:
        return "PASS", _recovery(plan, fault, found)
    since = {"slow-start": "it was in service", "crash": "the fault", "overload": "the end of the overload"}[fault.kind]
    return "FAIL", f"the endpoint did not answer again within {within:g} s after {since}; {_failed(found)}"


def _untested(fault: EndpointFault, found: Observed) -> str | None:
    """Why nothing can be said about the fault; None if something can."""
    last = found.calls[-1].error if found.calls else "no request was sent"
    if not found.answers and (found.injected is None or last.startswith("ModelError")):
        return f"the model answered no request, so nothing can be said about the fault: {last}"
    if fault.kind != "slow-start" and found.injected is None:
        return "the fault was not injected, because the endpoint did not stay in service for so long"
    return None


def _recovery(plan: ServingPlan, fault: EndpointFault, found: Observed) -> str:
    if fault.kind == "slow-start":
        took = (found.in_service or 0.0) - found.statuses[0][0]
        return f"the endpoint was in service after {took:.1f} s and answered; before, it refused every request"
    if not any(one.error for one in _served(found)):
        return f"the endpoint recovered, and {count(len(_served(found)), 'request')} in service were all answered"
    gap = longest_gap(_served(found))
    retry = f"callers have to retry for {gap:.1f} s"
    if fault.kind == "crash" and plan.hosts == 1:
        retry += ", or a second host answers (instance_count: 2)"
    return f"the endpoint recovered; {_failed(found)}, and it did not answer for {gap:.1f} s: {retry}"


def _failed(found: Observed) -> str:
    failed = sum(1 for one in _served(found) if one.error)
    return f"{failed} of {count(len(_served(found)), 'request')} failed"


def _served(found: Observed) -> list[Call]:
    """The requests that were sent when the endpoint was in service."""
    return [one for one in found.calls if found.in_service is not None and one.sent >= found.in_service]


def _rehearsed(plan: ServingPlan, fault: EndpointFault, within: float, job: str, version: str) -> Iterator[Row]:
    yield "fault", f"{fault.kind}: {describe_planned(fault)}"
    if fault.kind != "slow-start":
        yield "", f"the endpoint must answer again within {within:g} s"
    yield "on", f"{count(plan.hosts or 1, 'host')}, simulated locally"
    yield "endpoint", f"{plan.name}, from {plan.job_file}; {plan.serve.kind}"
    yield "model", f"of {job}: {plan.trained}"
    yield "deployment", plan.deployment.hash
    yield "source", f"{count(len(plan.source.files), 'file')}, {size(plan.source.size)}, sha256 {plan.source.sha256}"
    yield "when", f"{plan.made.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
    yield "with", f"smdp-launch {version}"


def _evidence(found: Observed) -> Iterator[Row]:
    """What was reported and measured."""
    ends = [at for at, _ in found.statuses[1:]]
    lasted = [f"{name} {end - at:.1f} s" for (at, name), end in zip(found.statuses, ends, strict=False)]
    yield "status", ", ".join([*lasted, found.statuses[-1][1]])
    for number, line in enumerate(found.lines):
        after = f", {line.at - found.in_service:.1f} s after it was in service" if found.in_service else ""
        yield "" if number else "log", f"{line.host}: {line.text}{after}"
    if len(found.hosts) > 1:
        yield "hosts", "in service: " + ", then ".join(str(number) for _, number in found.hosts)
    early = [one for one in found.calls if found.in_service is None or one.sent < found.in_service]
    yield from titled("before", [f"{number} x {text}" for text, number in errors(early)])
    served = _served(found)
    answers = [one.seconds for one in served if not one.error]
    yield "requests", f"{len(served)} sent in service, {len(answers)} answered, {len(served) - len(answers)} failed"
    yield from titled("failed", [f"{number} x {text}" for text, number in errors(served)])
    if answers:
        yield "answers", f"median {statistics.median(answers) * 1000:.0f} ms, longest {max(answers) * 1000:.0f} ms"
    gap = longest_gap(_served(found))
    if gap:
        yield "no answer", f"for {gap:.1f} s at most"
    if found.recovered is not None and found.injected is not None:
        yield "recovered", f"{found.recovered - found.injected:.1f} s after the fault"
    yield from titled("container", found.log)
    yield from titled("left", [f"{title}: {reason}" for title, reason in found.left.items()] or ["nothing"])


def _applied(plan: ServingPlan) -> Iterator[Row]:
    serve = plan.serve
    yield "requests", ", ".join(plan.requests)
    if serve.entry is not None:
        yield "script", serve.entry
    if serve.environment:
        yield "environment", ", ".join(sorted(serve.environment))
    if serve.startup_timeout is not None:
        yield "startup_timeout", f"{serve.startup_timeout} s until a container must answer its health check"


def _adds(plan: ServingPlan) -> Iterator[Row]:
    serve = plan.serve
    if serve.kind == "serverless":
        yield "hosts", "none of yours: the first request waits until SageMaker has started a container"
    else:
        yield "hosts", f"{serve.instance_count} x {serve.instance_type}, billed until `smdp-launch undeploy`"
    yield "image", f"every host pulls {plan.deployment.model['PrimaryContainer']['Image']}"


def _timeline(plan: ServingPlan, found: Observed) -> Timeline:
    began = found.statuses[0][0]
    times = [at for at, _ in found.statuses]
    ends = [*times[1:], times[-1]]
    statuses = tuple(
        Status(name, "", _ms(at - began), _ms(end - began))
        for (at, name), end in zip(found.statuses, ends, strict=True)
    )
    faults = tuple(Moment(max(0, _ms(one.at - began)), one.host, one.text) for one in found.lines)
    moment = datetime.fromtimestamp(began, timezone.utc)
    return Timeline(moment, _ms(times[-1] - began), (statuses,), faults, (), ())


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
