"""The hosts of an endpoint, and the image that runs on them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from smdp_launch.catalog.frameworks import TITLES
from smdp_launch.catalog.hosting.images import inference_build, inference_versions
from smdp_launch.catalog.hosting.instances import has_gpus, has_other_accelerators, is_arm
from smdp_launch.catalog.images import TagFacts, parse_image, tag_facts
from smdp_launch.catalog.instances import instance
from smdp_launch.catalog.limits import endpoint_types, known_instance_types, transform_types
from smdp_launch.diagnostics import Severity, Span, closest
from smdp_launch.jobfile.model.serve import Serve
from smdp_launch.jobfile.yaml.document import Location
from smdp_launch.request.serving import serving_image
from smdp_launch.rules.base.facts import Facts, Problem, rule

_SERVE = ("serve",)
_TYPE: Location = ("serve", "instance_type")
_IMAGE: Location = ("serve", "image")
#: A use of a GPU that is not an option.
_USES_GPU = re.compile(r"\.cuda\(|[\"']cuda(:\d+)?[\"']")
_EXAMPLE = "write one such as ml.m5.large, or ml.g5.xlarge with a GPU"


def section(facts: Facts) -> Serve | None:
    """The section; None without one, or if its kind has a schema error."""
    return facts.spec.serve if facts.has("serve", "serve.kind") else None


@rule("SMDP340", "serve.kind", "serve.instance_type")
def hosting_type(facts: Facts) -> Iterator[Problem]:
    serve = section(facts)
    if serve is None or serve.instance_type is None or serve.kind == "serverless":
        return
    is_batch = serve.kind == "batch"
    known = transform_types() if is_batch else endpoint_types()
    if serve.instance_type in known:
        return
    purpose = "batch transforms" if is_batch else "endpoints"
    # A type for training is no typing error: the closest type for endpoints is another machine.
    is_typo = serve.instance_type not in known_instance_types() | endpoint_types()
    meant = closest(serve.instance_type, sorted(known), cutoff=0.8) if is_typo else None
    help_ = f"did you mean {meant}?" if meant is not None else _EXAMPLE
    message = f"SageMaker has no instance type {serve.instance_type} for {purpose}"
    yield Problem(_TYPE, message, help_, replacement=meant)


#: Keys that only some kinds have.
_KEYS = {
    "instance_type": ("realtime", "async", "batch"),
    "memory_mb": ("serverless",),
    "concurrency": ("serverless", "batch"),
    "startup_timeout": ("realtime", "async"),
    "download_timeout": ("realtime", "async"),
    "lifetime": ("realtime", "serverless", "async"),
    "input": ("batch",),
    "split": ("batch",),
    "batch_strategy": ("batch",),
    "max_payload_mb": ("batch",),
    "assemble_with": ("batch",),
}


@rule("SMDP341", "serve.kind", *(f"serve.{one}" for one in (*_KEYS, "expiry_role")))
def keys_of_the_kind(facts: Facts) -> Iterator[Problem]:
    serve = section(facts)
    if serve is None:
        return
    for key, kinds in _KEYS.items():
        if getattr(serve, key) is not None and serve.kind not in kinds:
            message = f"`{key}` has no meaning for `kind: {serve.kind}`: it is for {', '.join(kinds)}"
            yield Problem((*_SERVE, key), message, "remove it, or change `kind`", on_key=True, remove=True)
    if serve.kind != "serverless" and serve.instance_type is None:
        yield Problem(_SERVE, f"`kind: {serve.kind}` needs hosts, and `instance_type` is not set", _EXAMPLE)
    if serve.kind == "batch" and serve.input is None:
        message = "a batch transform reads objects of S3, and `input` is not set"
        yield Problem(_SERVE, message, "write their location, such as `input: s3://bucket/prefix`")
    if serve.expiry_role is not None and serve.lifetime is None:
        message = "`expiry_role` deletes the endpoint at the end of `lifetime`, which is not set"
        yield Problem((*_SERVE, "expiry_role"), message, "add `lifetime`, in seconds, or remove it", on_key=True)


#: The fields that decide which image serves.
IMAGE_FIELDS = (
    *("serve.kind", "serve.image", "serve.instance_type", "region", "engine", "image"),
    *("framework.name", "framework.version", "framework.transformers"),
)


@rule("SMDP342", *IMAGE_FIELDS)
def serving_image_is_known(facts: Facts) -> Iterator[Problem]:
    serve = section(facts)
    if serve is None or serving_image(facts.spec) is not None:
        return
    framework = facts.spec.framework
    title = f"{TITLES[framework.name]} {framework.version}"
    at: Location = _TYPE
    if framework.transformers is not None:
        at, message = (
            _SERVE,
            f"the catalog does not know AWS's inference image of transformers {framework.transformers}",
        )
    elif inference_build(framework.name, framework.version) is None:
        at, message = _SERVE, f"AWS has no inference image of {title} in the catalog"
        newest = inference_versions(framework.name)[-1]
        message += f"; the newest is {newest}"
    elif is_arm(str(serve.instance_type)):
        message = (
            f"{serve.instance_type} has Arm processors, and the catalog knows AWS's images of {title} for x86 only"
        )
    else:
        message = f"{serve.instance_type} needs an image for its accelerators, which the catalog does not know"
    help_ = "write `image:` with the URI of an image that answers /ping and /invocations on port 8080"
    yield Problem(at, message, f"{help_}, or choose another instance type" if at == _TYPE else help_)


@rule("SMDP343", *IMAGE_FIELDS, "serve.entry", severity=Severity.WARNING)
def hosts_fit_the_model(facts: Facts) -> Iterator[Problem]:
    serve = section(facts)
    if serve is None:
        return
    if serve.kind == "serverless":
        yield from _needs_gpus(facts, "a serverless endpoint", "`kind: realtime` with a type")
        return
    if serve.instance_type is None:
        return
    if serve.instance_type not in endpoint_types() | transform_types() or has_other_accelerators(serve.instance_type):
        return
    processor, with_gpus = _tag(serve).processor, has_gpus(serve.instance_type)
    if with_gpus and processor == "cpu":
        message = f"the image is for CPUs, so the GPUs of {serve.instance_type} are paid for and not used"
        yield Problem(_IMAGE, message, "use the image for GPUs, or an instance type without them")
    if not with_gpus:
        if processor == "gpu":
            message = f"the image is for GPUs, and {serve.instance_type} has none"
            yield Problem(_IMAGE, message, "use the image for CPUs, or an instance type with GPUs")
        yield from _needs_gpus(facts, serve.instance_type, "a type")


def _needs_gpus(facts: Facts, hosts: str, other: str) -> Iterator[Problem]:
    place = _gpu_use(facts)
    if place is not None:
        message = f"the serving script uses a GPU, and {hosts} has none"
        help_ = f"choose {other} with GPUs, or move the model to `torch.device('cpu')` where CUDA is not available"
        yield Problem((), message, help_, text=place.source.strip(), place=place)


#: Bytes of a parameter.
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@rule("SMDP343", "serve.kind", "serve.instance_type", "model.parameters", "model.dtype", severity=Severity.WARNING)
def weights_fit_into_the_gpus(facts: Facts) -> Iterator[Problem]:
    serve, model = section(facts), facts.spec.model
    host = instance(serve.instance_type) if serve is not None and serve.instance_type is not None else None
    if host is None or model is None or not host.is_documented("gpus", "gpu_memory_gb"):
        return
    needed, available = model.parameters * BYTES[model.dtype] / 1e9, host.gpus * host.gpu_memory_gb
    if needed > available:
        message = f"the parameters have {needed:,.0f} GB, and the GPUs of {host.name} have {available:,.0f} GB together"
        yield Problem(_TYPE, message, "choose a type with more memory, or serve the model in bfloat16 or float16")


def _tag(serve: Serve) -> TagFacts:
    named = parse_image(serve.image) if serve.image is not None else None
    return tag_facts(named.tag or "" if named is not None else "")


def _gpu_use(facts: Facts) -> Span | None:
    """The first line of the serving script that needs a GPU; None if it looks whether there is one."""
    if any("is_available" in line for one in facts.serve_scripts.values() for line in one.lines):
        return None
    for name, script in facts.serve_scripts.items():
        for number, line in enumerate(script.lines, 1):
            match = _USES_GPU.search(line.partition("#")[0])
            if match is not None:
                file = str(facts.source.folder / name) if facts.source is not None else name
                return Span(file, number, match.start() + 1, match.end() + 1, line)
    return None


@rule("SMDP344", "serve.kind", "serve.image", "network.subnets", "network.isolated")
def serverless_limits(facts: Facts) -> Iterator[Problem]:
    """https://docs.aws.amazon.com/sagemaker/latest/dg/serverless-endpoints.html, feature exclusions."""
    serve, network = section(facts), facts.spec.network
    if serve is None or serve.kind != "serverless":
        return
    if _tag(serve).processor == "gpu":
        yield Problem(_IMAGE, "a serverless endpoint has no GPUs, and the image is for GPUs", "use the image for CPUs")
    at = ("serve", "kind")
    help_ = "write `kind: realtime`"
    if network.isolated:
        yield Problem(at, "a serverless endpoint cannot be isolated from the network, as the job is", help_)
    if network.subnets is not None:
        yield Problem(at, "a serverless endpoint cannot be in the job's VPC", help_)


@rule("SMDP345", "serve.kind", "output.compression")
def model_is_an_archive(facts: Facts) -> Iterator[Problem]:
    if section(facts) is not None and facts.spec.output.compression == "none":
        message = "`deploy` serves the archive model.tar.gz, and the job writes the model as single objects"
        yield Problem(("output", "compression"), message, "remove the key, or `serve`", remove=True)
