"""A draft as the text of a job file, with a comment for each decision of the user."""

from __future__ import annotations

from collections.abc import Iterator

from smdp_launch.catalog import placeholders
from smdp_launch.catalog.frameworks import TITLES
from smdp_launch.draft.draft import HOSTS, Draft
from smdp_launch.draft.hyperparameters import Hyperparameter
from smdp_launch.jobfile.yaml.text import comment, key, to_yaml

#: The job file's schema for editors, relative to the job file.
SCHEMA_FILE = ".smdp/job.schema.json"

#: The first lines of every file.
HEADER = (
    f"# yaml-language-server: $schema={SCHEMA_FILE}",
    "# Written by smdp-launch init; every key: docs/reference/job-file.md",
)


def job_file(draft: Draft) -> str:
    """The text of the job file."""
    lines = [*HEADER, *_job(draft), *_script(draft), *_compute(draft), *_places(draft), *_local(draft)]
    return "\n".join(lines) + "\n"


def _job(draft: Draft) -> Iterator[str]:
    build = draft.choice.build
    yield "schema: 1"
    yield f"name: {to_yaml(draft.name)}"
    if draft.engine == "native":
        yield "engine: native # your own image; smdistributed: AWS's; nccl: torch.distributed"
    elif draft.engine == "nccl":
        yield "engine: nccl # torch.distributed, in AWS's images or your own; native: this project's engine"
    elif draft.engine == "gloo":
        yield "engine: gloo # torch.distributed on CPUs; nccl: on GPUs"
    else:
        yield "engine: smdistributed # AWS's library and images; native: in your own image"
    if draft.choice.policy == "extended":
        yield f"policy: extended # {TITLES[build.framework]} {build.version} is built with CUDA {draft.choice.cuda}"
    yield "framework:"
    yield f"  name: {build.framework}"
    yield f'  version: "{build.version}" # {comment(draft.choice.reason, 200)}'
    yield f"# Fill in these placeholders before you launch on AWS: account {placeholders.ACCOUNT},"
    yield f"# region {placeholders.REGION}, and the names that start with your-."
    if draft.engine == "native":
        tag = f"{build.version}-cu{draft.choice.cuda.replace('.', '')}"
        yield f"image: {placeholders.training_image(f'smdp-{build.framework}', tag)}"
    yield f"role: {placeholders.ROLE}"
    yield f"region: {placeholders.REGION}"


def _script(draft: Draft) -> Iterator[str]:
    yield "script:"
    yield f"  entry: {to_yaml(draft.entry)}"
    yield f"  source: {to_yaml(draft.source)} # every host gets a copy, without the files in .smdpignore"
    passed = [one for one in draft.hyperparameters if one.unfit is None]
    if passed:
        yield "  hyperparameters: # the script's own defaults"
    elif draft.hyperparameters:
        yield "  # hyperparameters:"
    for one in draft.hyperparameters:
        yield _hyperparameter(one)


def _hyperparameter(one: Hyperparameter) -> str:
    value = "" if one.value is None else f" {to_yaml(one.value)}"
    if one.unfit is not None:
        start = f" {comment(value, 200)}" if value else ""
        return f"    # {key(one.name)}:{start} # {comment(one.unfit)}"
    help_ = comment(one.help, 70)
    return f"    {key(one.name)}:{value}" + (f" # {help_}" if help_ else "")


#: The first choice for each engine, with a comment.
_TYPES = {"nccl": "ml.g5.12xlarge # 4 GPUs", "gloo": "ml.c5.4xlarge # no GPUs"}


def _compute(draft: Draft) -> Iterator[str]:
    yield "compute:"
    yield f"  instance_type: {_TYPES.get(draft.engine, 'ml.p4d.24xlarge # 8 GPUs')}"
    yield f"  instance_count: {HOSTS}"
    yield "  volume_gb: 100 # for the data and the model; ignored on hosts with local NVMe"
    yield "  max_run: 86400 # seconds until the job is stopped"


def _places(draft: Draft) -> Iterator[str]:
    bucket = f"{placeholders.BUCKET}/{draft.name}"
    yield "# Fill in: your buckets."
    if draft.channels and draft.reads_channels:
        yield "channels: # the script reads the path of each from SM_CHANNEL_<NAME>"
    elif draft.channels:
        yield "channels: # pass the script the folder of each, /opt/ml/input/data/<name>"
    for channel in draft.channels:
        yield f"  {key(channel)}:"
        yield f"    s3: {to_yaml(f'{bucket}/{channel}')}"
    if not draft.channels:
        yield "# The script reads no channel. The data of this one would be in the folder of SM_CHANNEL_TRAIN:"
        yield "# channels:"
        yield f"#   train: {{s3: {bucket}/train}}"
        yield "silence: [SMDP423] # the job has no channels"
    yield "output:"
    yield f"  s3: {bucket}/output"
    # Without checkpoints a failed job starts again from the beginning. Only the author knows if the script writes any.
    off = "" if draft.keeps_checkpoints else "# "
    if off:
        yield "# If the script writes to /opt/ml/checkpoints, these files are copied to:"
    yield f"{off}checkpoint:"
    yield f"{off}  s3: {bucket}/checkpoints"


def _local(draft: Draft) -> Iterator[str]:
    yield "# `smdp-launch launch --local` uses this data instead of the buckets:"
    off = "" if draft.local else "# "
    yield f"{off}local:"
    yield f"{off}  channels:"
    for channel in draft.channels or ("train",):
        if channel in draft.local:
            yield f"    {key(channel)}: {to_yaml(draft.local[channel])}"
        else:
            yield f"{off}    {'' if off else '# '}{key(channel)}: {to_yaml(f'data/{channel}')}"
