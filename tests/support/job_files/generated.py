"""Generated sound jobs: every field occurs, with values that the rules accept."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from smdp_launch.catalog.engines import TORCH_DISTRIBUTED
from smdp_launch.catalog.instances import instance

Mapping = dict[str, Any]

TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Zl", "Zp")), max_size=20)
#: Values of hyperparameters and overlays, without `${`, which starts a reference to a variable.
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.floats(allow_nan=False, allow_infinity=False, width=32)
    | TEXT.filter(lambda one: "${" not in one)
)
VALUES = SCALARS | st.lists(SCALARS, max_size=3) | st.dictionaries(st.sampled_from("ßab"), SCALARS, max_size=3)
NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,12}", fullmatch=True)
SUBNETS = ["subnet-01234567", "subnet-0123456789abcdef0"]
GROUPS = ["sg-0123456789abcdef0", "sg-89abcdef"]
KEYS = ["alias/training", "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"]

#: Compatible engine, framework and image.
KINDS: list[Mapping] = [
    {
        "engine": "native",
        "framework": {"name": "pytorch", "version": "2.0.1"},
        "image": "123456789012.dkr.ecr.us-east-1.amazonaws.com/smdp-pytorch:2.0.1-cu118",
    },
    {"engine": "smdistributed", "framework": {"name": "pytorch", "version": "1.13.1", "python": "3.9"}},
    {"engine": "smdistributed", "framework": {"name": "pytorch", "version": "2.0.1"}},
    {"engine": "smdistributed", "framework": {"name": "tensorflow", "version": "2.11.0"}},
    {
        "engine": "smdistributed",
        "framework": {"name": "pytorch", "version": "1.10.2", "transformers": "4.17.0"},
    },
]


#: The same for torch.distributed, with the instance types.
TORCH_KINDS: list[Mapping] = [
    {"engine": "nccl", "framework": {"name": "pytorch", "version": "1.13.1", "python": "3.9"}},
    {"engine": "nccl", "framework": {"name": "pytorch", "version": "2.5.1"}},
    {"engine": "nccl", "framework": {"name": "pytorch", "version": "2.8.0"}},
    {"engine": "nccl", "framework": {"name": "pytorch", "version": "2.3.0", "transformers": "4.46.1"}},
    {
        "engine": "nccl",
        "framework": {"name": "pytorch", "version": "2.9.0"},
        "image": "123456789012.dkr.ecr.us-east-1.amazonaws.com/trainer:2.9.0-gpu-py312-cu130",
    },
    {"engine": "gloo", "framework": {"name": "pytorch", "version": "2.5.1"}},
]


def optional(draw: st.DrawFn, into: Mapping, **fields: st.SearchStrategy[Any]) -> Mapping:
    """``into`` with some of ``fields``."""
    return into | {name: draw(values) for name, values in fields.items() if draw(st.booleans())}


@st.composite
def jobs(draw: st.DrawFn, kinds: list[Mapping] = KINDS, types: tuple[str, ...] = ("ml.p4d.24xlarge",)) -> Mapping:
    """A mapping that ``load`` accepts, for a source folder ``src`` with ``train.py`` and ``lib/train.py``."""
    kind = draw(st.sampled_from(kinds))
    hosts = draw(st.integers(2, 8))
    type_ = draw(st.sampled_from(types if kind["engine"] != "gloo" else ("ml.c5.4xlarge", "ml.m5.24xlarge")))
    job: Mapping = {
        "schema": 1,
        "name": draw(NAMES.filter(lambda one: not one.endswith("-"))),
        **kind,
        "script": draw(scripts()),
        "compute": {"instance_type": type_, "instance_count": hosts},
        "channels": draw(st.dictionaries(NAMES.filter(lambda one: one != "code"), channels(), max_size=4)),
        "output": optional(draw, {"s3": "s3://results/models"}, compression=st.sampled_from(["gzip", "none"])),
        "role": "arn:aws:iam::123456789012:role/service-role/training",
        "region": "us-east-1",
    }
    job["compute"] = optional(
        draw,
        job["compute"],
        volume_gb=st.integers(1, 1800),  # what the smallest of the types has
        max_run=st.integers(1800, 200_000),
        retries=st.integers(1, 30),
    )
    _capacity(draw, job)
    _places(draw, job)
    _texts(draw, job)
    _batch(draw, job, hosts * _gpus(job["compute"]["instance_type"]))
    _engine(draw, job)
    return job


def _gpus(type_: str) -> int:
    known = instance(type_)
    return known.gpus if known is not None else 1


@st.composite
def scripts(draw: st.DrawFn) -> Mapping:
    values = st.dictionaries(NAMES.map(lambda one: f"x-{one}"), VALUES, max_size=4)
    script = {"entry": draw(st.sampled_from(["train.py", "lib/train.py", "./train.py"])), "source": "src"}
    return optional(draw, script, hyperparameters=values, source_limit_mb=st.integers(1, 100))


@st.composite
def channels(draw: st.DrawFn) -> Mapping:
    kind = draw(st.sampled_from(["s3", "s3", "pipe", "augmented", "fsx", "efs"]))
    if kind in {"fsx", "efs"}:
        path = "/fsxmount/data" if kind == "fsx" else draw(st.sampled_from(["/", "/data"]))
        return optional(draw, {kind: "fs-0123456789abcdef0", "path": path}, access=st.sampled_from(["ro", "rw"]))
    if kind == "augmented":
        attributes = {"data_type": "AugmentedManifestFile", "mode": "Pipe", "attributes": ["image-ref", "label"]}
        channel = {"s3": "s3://data/train.manifest", **attributes, "record_wrapping": "RecordIO"}
        return optional(draw, channel, shuffle=st.integers(0, 2**31))
    if kind == "pipe":
        channel = {"s3": "s3://data/train.manifest", "mode": "Pipe", "data_type": "ManifestFile"}
        return optional(
            draw, channel, compression=st.just("Gzip"), record_wrapping=st.sampled_from(["None", "RecordIO"])
        )
    return optional(
        draw,
        {"s3": f"s3://data/{draw(NAMES)}/"},
        mode=st.sampled_from(["File", "FastFile"]),
        distribution=st.sampled_from(["FullyReplicated", "ShardedByS3Key"]),
        data_type=st.just("S3Prefix"),
        content_type=st.sampled_from(["application/x-image", "text/csv"]),
    )


def _capacity(draw: st.DrawFn, job: Mapping) -> None:
    compute = job["compute"]
    way = draw(st.sampled_from(["demand", "spot", "warm", "fallback"]))
    if way == "spot":
        longest = compute.get("max_run", 86400)
        job["spot"] = {"max_wait": longest + draw(st.integers(0, 100_000))}
        job["checkpoint"] = optional(draw, {"s3": "s3://results/checkpoints"}, path=st.just("/opt/ml/local/state"))
    elif way == "warm":
        compute["keep_alive"] = draw(st.integers(1, 3600))
    elif way == "fallback":
        others = [one for one in ("ml.p3dn.24xlarge", "ml.p3.16xlarge") if one != compute["instance_type"]]
        compute["fallback_types"] = others[: draw(st.integers(1, len(others)))]
    if way != "spot":
        plans = st.just("arn:aws:sagemaker:us-east-1:123456789012:training-plan/spring")
        job["compute"] = optional(draw, compute, max_pending=st.integers(1800, 100_000), training_plan=plans)
    if draw(st.booleans()) and draw(st.booleans()):
        job["remote_debug"] = True


def _places(draw: st.DrawFn, job: Mapping) -> None:
    mounted = any("s3" not in one for one in job["channels"].values())
    network: Mapping = {"subnets": SUBNETS, "security_groups": GROUPS} if mounted or draw(st.booleans()) else {}
    network = optional(draw, network, isolated=st.booleans(), encrypt_traffic=st.booleans())
    keys = st.sampled_from(KEYS)
    encryption = optional(draw, {}, volume_key=keys, output_key=keys)
    if "volume_key" in encryption:
        if job["engine"] != "gloo":  # whose types have no local disks
            job["compute"]["instance_type"] = "ml.p3.16xlarge"  # without disks that encrypt themselves
        job["compute"].pop("fallback_types", None)
    job |= {name: section for name, section in (("network", network), ("encryption", encryption)) if section}


def _texts(draw: st.DrawFn, job: Mapping) -> None:
    variables = st.dictionaries(
        st.from_regex(r"MY_[A-Z]{1,8}", fullmatch=True), TEXT.filter(lambda one: "${" not in one), max_size=3
    )
    tags = st.dictionaries(st.from_regex(r"[a-z]{1,9}( [a-z]{1,4})?", fullmatch=True), st.just("Größe 1"), max_size=3)
    metrics = st.dictionaries(NAMES, st.sampled_from([r"loss=([0-9.]+)", r"täglich: (\S+)"]), max_size=3)
    overlays = st.sampled_from(
        [
            {"SessionChainingConfig": {"EnableSessionTagChaining": True}},
            {"AlgorithmSpecification": {"ContainerArguments": ["--verbose"]}},
            {"ExperimentConfig": {"ExperimentName": "digits"}, "InfraCheckConfig": {"EnableInfraCheck": True}},
        ]
    )
    job |= optional(draw, {}, environment=variables, tags=tags, metrics=metrics, overlay=overlays)


def _batch(draw: st.DrawFn, job: Mapping, workers: int) -> None:
    if draw(st.booleans()):
        each = draw(st.integers(1, 64)) * 8
        size = {"per_gpu": each} if draw(st.booleans()) else {"global": each * workers}
        job["batch"] = optional(draw, size, hyperparameter=st.just("per-worker"), warmup_steps=st.integers(0, 1000))
    if draw(st.booleans()):
        job["amp"] = "fp16"


def _engine(draw: st.DrawFn, job: Mapping) -> None:
    if job["engine"] == "native":
        options = optional(
            draw,
            {},
            streams=st.integers(1, 16),
            piece_kib=st.integers(4, 65536),
            wire_dtype=st.sampled_from(["bfloat16", "float16"]),
            operation_timeout_s=st.floats(1, 1e5, width=32),
            rendezvous_timeout_s=st.integers(1, 1000).map(float),
            heartbeat_s=st.floats(1, 100, width=32),
            verbose=st.booleans(),
        )
    elif job["engine"] in TORCH_DISTRIBUTED:
        options = {}
    else:
        options = optional(draw, {}, custom_mpi_options=st.sampled_from(["-verbose", '-x A="ü b"', ""]))
    if options:
        job["engine_options"] = options
