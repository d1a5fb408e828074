"""What SageMaker allows a request to an endpoint or of a batch transform, and the memory of a serverless endpoint."""

from __future__ import annotations

from collections.abc import Iterator

from smdp_launch.catalog.hosting.images import longest_answer, most_payload
from smdp_launch.catalog.hosting.quotas import transform_limits
from smdp_launch.diagnostics import Severity
from smdp_launch.jobfile.yaml.document import Location
from smdp_launch.request.serving import DEFAULT_MEMORY_MB
from smdp_launch.rules.base.facts import Facts, Problem, rule
from smdp_launch.rules.serve.hosting import BYTES, section
from smdp_launch.units import size

#: Variables of AWS's serving containers: seconds until an answer, and bytes of a request and of an answer.
_SECONDS = (
    *("SAGEMAKER_MODEL_SERVER_TIMEOUT", "SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS", "SAGEMAKER_TS_RESPONSE_TIMEOUT"),
    *("TS_DEFAULT_RESPONSE_TIMEOUT", "MMS_DEFAULT_RESPONSE_TIMEOUT", "SAGEMAKER_GUNICORN_TIMEOUT_SECONDS"),
    "SAGEMAKER_NGINX_PROXY_READ_TIMEOUT_SECONDS",
)
_BYTES = tuple(
    f"{server}_MAX_{what}_SIZE" for server in ("TS", "MMS", "SAGEMAKER_TS") for what in ("REQUEST", "RESPONSE")
)
_ENVIRONMENT = ("serve", "environment")
_MB = 1 << 20


@rule("SMDP346", "serve.kind", "serve.concurrency", "serve.max_payload_mb")
def requests_in_progress_are_within_the_limit(facts: Facts) -> Iterator[Problem]:
    serve, limits = section(facts), transform_limits()
    if serve is None or serve.kind != "batch" or serve.concurrency is None:
        return
    payload = serve.max_payload_mb if serve.max_payload_mb is not None else limits.default_payload_mb
    product, most = serve.concurrency * payload, limits.in_progress_mb
    if product <= most:
        return
    by_default = "" if serve.max_payload_mb is not None else " (the default)"
    message = f"`concurrency` {serve.concurrency} times `max_payload_mb` {payload}{by_default} is {product} MB;"
    message += f" SageMaker allows {most} MB"
    fits = most // payload
    help_ = f"lower `concurrency` to {fits}"
    if serve.concurrency <= most:
        help_ += f", or write `max_payload_mb: {most // serve.concurrency}`"
    yield Problem(("serve", "concurrency"), message, help_, replacement=str(fits))


@rule("SMDP832", "serve.kind", "serve.batch_strategy", "serve.split", severity=Severity.WARNING)
def strategy_has_records(facts: Facts) -> Iterator[Problem]:
    """API reference, CreateTransformJob: BatchStrategy needs a SplitType of Line, RecordIO or TFRecord."""
    serve = section(facts)
    if serve is None or serve.kind != "batch" or serve.batch_strategy is None or serve.split not in (None, "None"):
        return
    message = "`batch_strategy` has no effect: without `split`, each object is one request"
    help_ = "add `split: Line`, or remove it"
    yield Problem(("serve", "batch_strategy"), message, help_, on_key=True, remove=True)


@rule("SMDP830", "serve.kind", "serve.environment", severity=Severity.WARNING)
def requests_are_within_the_limits(facts: Facts) -> Iterator[Problem]:
    serve = section(facts)
    if serve is None:
        return
    seconds, most = longest_answer(serve.kind), most_payload(serve.kind)
    other = "`kind: async`, which allows an hour and 1 GB"
    for name, value in serve.environment.items():
        if not value.isdecimal():
            continue
        if name in _SECONDS and int(value) > seconds:
            message = f"SageMaker ends a request of `kind: {serve.kind}` after {seconds} s, whatever {name} is"
            help_ = f"lower it to {seconds}; for slower answers use {other}"
            help_ = help_ if serve.kind in ("realtime", "serverless") else f"lower it to {seconds}"
            yield Problem((*_ENVIRONMENT, name), message, help_, replacement=f'"{seconds}"')
        elif name in _BYTES and most is not None and int(value) > most:
            message = f"a request or an answer of `kind: {serve.kind}` has {size(most)} at most, whatever {name} is"
            help_ = f"lower it to {most}"
            help_ += f"; for more use {other}" if serve.kind in ("realtime", "serverless") else ""
            yield Problem((*_ENVIRONMENT, name), message, help_, replacement=f'"{most}"')


@rule("SMDP831", "serve.kind", "serve.memory_mb", "model.parameters", "model.dtype", severity=Severity.WARNING)
def weights_fit_into_the_memory(facts: Facts) -> Iterator[Problem]:
    serve, model = section(facts), facts.spec.model
    if serve is None or serve.kind != "serverless" or model is None:
        return
    memory, needed = serve.memory_mb or DEFAULT_MEMORY_MB, model.parameters * BYTES[model.dtype]
    if needed > memory * _MB:
        message = f"the parameters have {size(needed)}, and the serverless endpoint has {memory} MB of memory"
        fits = [one for one in range(1024, 6145, 1024) if one * _MB > needed]
        help_ = (
            f"write `memory_mb: {fits[0]}` or more" if fits else "use `kind: realtime`: serverless has 6144 MB at most"
        )
        at = ("serve", "memory_mb") if serve.memory_mb is not None else ("serve",)
        write: dict[Location, str] = {("serve", "memory_mb"): str(fits[0])} if fits else {}
        yield Problem(at, message, help_, write=write)
