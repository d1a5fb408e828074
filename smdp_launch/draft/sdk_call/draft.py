"""The draft of a job file from a call of the SDK: what the call says, and what the job file needs besides."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from smdp_launch.catalog import placeholders
from smdp_launch.catalog.engines import TORCH_DISTRIBUTED, Engine
from smdp_launch.catalog.frameworks import build, builds, is_cuda_11, native_cuda, native_images
from smdp_launch.catalog.images import parse_image, tag_facts
from smdp_launch.catalog.instances import has_no_accelerators, instance, supported_instances
from smdp_launch.draft.data import find_data
from smdp_launch.draft.draft import job_name, relative
from smdp_launch.draft.sdk_call import estimator, trainer
from smdp_launch.draft.sdk_call.find import TRAINER, TUNER, Found
from smdp_launch.draft.sdk_call.job import SdkJob, shortened, source_of
from smdp_launch.draft.sdk_call.rest import not_taken_over
from smdp_launch.draft.sdk_call.values import Made, Text, Unknown

_LOCAL_MODE = ("local", "local_gpu")
_FRAMEWORKS = {"PyTorch": "pytorch", "TensorFlow": "tensorflow"}


def draft_of(found: Found, file: Path, job_file: Path, engine: Engine | None, name: str | None) -> SdkJob:
    """The values of the job file at ``job_file``, for the call that ``file`` has.

    Args:
        engine: None for the engine that the call's distribution means.
    """
    is_trainer = found.made.name == TRAINER
    job = trainer.read_trainer(found) if is_trainer else estimator.read_estimator(found)
    job.values["schema",] = 1
    base = found.made.get("base_job_name")
    job.values["name",] = name or job_name(base if isinstance(base, str) else file.resolve().stem)
    value = job.values.get(("image",))
    image = value if isinstance(value, str) else None
    parsed = parse_image(image or "")
    retrieved = job.retrieved.get("region", 1) if job.retrieved is not None else None
    of_image = parsed.region if parsed is not None else retrieved if isinstance(retrieved, str) else None
    job.region(found.region or of_image)
    _put_engine(job, found, engine, is_trainer)
    _put_framework(job, found, image)
    _put_policy(job)
    _put_source(job, found, file, job_file, is_trainer)
    _put_defaults(job, found, is_trainer)
    _put_local_data(job, job_file, file)
    if found.tuner is not None:
        job.notes.append(f"{TUNER} in {found.tuner} is not converted: write its ranges under sweep")
    if found.others:
        job.notes.append(f"the job file is for the call in {found.place}; others: {', '.join(found.others)}")
    job.notes += [f"{one} cannot be read as Python" for one in found.skipped]
    if rest := not_taken_over(found):
        job.notes.append(f"not taken over: {', '.join(rest)}")
    return job


def _put_engine(job: SdkJob, found: Found, wanted: Engine | None, is_trainer: bool) -> None:
    meant, options = (trainer.distribution_of(found), None) if is_trainer else estimator.distribution_of(found)
    type_ = job.values.get(("compute", "instance_type"))
    is_cpu = isinstance(type_, str) and has_no_accelerators(type_)
    given = found.made.get("distributed") or found.made.get("distribution") or found.made.get("distributions")
    enabled = None if is_trainer else estimator.enabled_distribution(found.made)
    without_library = type_ if enabled == "pytorchddp" and _is_without_library(type_) else None
    if without_library is not None:
        meant = "nccl"
    selected = wanted or meant or ("smdistributed" if found.made.name == "TensorFlow" else "nccl")
    if selected == "nccl" and is_cpu and wanted is None:
        selected = "gloo"
    if enabled == "pytorchddp":
        job.notes.append(_with_mpirun(selected, without_library))
    elif meant is None and enabled is not None:
        job.notes.append(_without_engine(enabled, selected, found.made.name == "TensorFlow"))
    elif meant is None and given:
        job.notes.append(f"engine {selected}: the job file has nothing like `{shortened(source_of(given))}`")
    elif meant is None:
        starts = "the script runs once for each GPU" if selected != "gloo" else "the script runs once on each host"
        job.notes.append(f"engine {selected}: the call has no distribution; {starts}")
    job.values["engine",] = selected
    at = ("engine_options", "custom_mpi_options")
    if options is not None and selected == "smdistributed":
        job.put(at, options)
    elif options is not None:
        job.notes.append(f"{'.'.join(at)} is not set: engine {selected} has no such option")


def _is_without_library(type_: object) -> bool:
    is_known = isinstance(type_, str) and (has_no_accelerators(type_) or instance(type_) is not None)
    return is_known and type_ not in supported_instances("extended", "smdistributed")


def _with_mpirun(engine: str, without_library: str | None) -> str:
    """A note about pytorchddp.

    Args:
        without_library: the instance type, if AWS's library does not support it.
    """
    note = f"engine {engine}: for pytorchddp, the SDK starts the script with mpirun and AWS's library"
    if without_library is not None and engine in TORCH_DISTRIBUTED:
        return f"{note}, which does not support {without_library}; engine: {engine} starts it with torchrun"
    if engine != "smdistributed":
        return f"{note}; this engine does not"
    return f"{note}; engine: nccl, for scripts with the backend nccl, starts it with torchrun"


def _without_engine(distribution: str, engine: str, is_tensorflow: bool) -> str:
    name = f"{distribution} (Horovod)" if distribution == "mpi" else distribution
    if is_tensorflow:
        module, page = "smdistributed.dataparallel.tensorflow", "tensorflow.md"
    elif engine in TORCH_DISTRIBUTED:
        module, page = "torch.distributed", "torch/nccl.md"
    else:
        module, page = "smdistributed.dataparallel.torch", "ddp.md"
    return (
        f"the distribution {name} has no engine in smdp-launch. The job file has engine: {engine}: change the script "
        f"to {module} (docs/how-to/{page}), or keep the estimator"
    )


def _put_framework(job: SdkJob, found: Found, image: str | None) -> None:
    call = found.made
    parsed = parse_image(image) if image is not None else None
    facts = tag_facts(parsed.tag or "") if parsed is not None else None
    framework = _FRAMEWORKS.get(call.name)
    if framework is None:
        is_tensorflow = call.get("tensorflow_version") or (parsed is not None and "tensorflow" in parsed.repository)
        framework = "tensorflow" if is_tensorflow else "pytorch"
    version = call.get("framework_version") or call.get(f"{framework}_version")
    if not isinstance(version, str) and facts is not None:
        version = facts.version
    if not isinstance(version, str) and job.retrieved is not None:
        framework, version = job.retrieved.get("framework", 0), job.retrieved.get("version")
    at = ("framework", "version")
    engine = job.values["engine",]
    if not isinstance(version, str):
        ours = [one for one in native_images(framework) if is_cuda_11(native_cuda(framework, one))]
        known = ours if engine == "native" else [one.version for one in builds(framework)]
        with_library = [one.version for one in builds(framework) if one.smddp is not None and one.cuda_major == 11]
        version = (with_library if engine == "smdistributed" else known)[-1]
        job.comments[at] = "the file does not name the version: write that of your image"
    job.values["framework", "name"] = framework
    job.values[at] = version
    python = call.get("py_version")
    digits = re.fullmatch(r"py(\d)(\d+)", python) if isinstance(python, str) else None
    if digits is not None and image is None:
        job.values["framework", "python"] = f"{digits[1]}.{digits[2]}"
    elif isinstance(python, Unknown | Text) and image is None:
        job.not_set(("framework", "python"), python)


def _put_policy(job: SdkJob) -> None:
    """``extended`` where only that allows the instance type or the version."""
    engine, type_ = job.values["engine",], job.values.get(("compute", "instance_type"), "")
    if engine in TORCH_DISTRIBUTED:
        return
    framework, version = job.values["framework", "name"], job.values["framework", "version"]
    known = build(framework, version)
    cuda = native_cuda(framework, version) if engine == "native" else known.cuda if known is not None else None
    is_later = cuda is not None and not is_cuda_11(cuda)
    is_other_type = type_ not in supported_instances("strict", engine) and type_ in supported_instances(
        "extended", engine
    )
    if is_later or is_other_type:
        job.values["policy",] = "extended"


def _put_source(job: SdkJob, found: Found, file: Path, job_file: Path, is_trainer: bool) -> None:
    """The source folder: paths of a call are relative to the folder in which it runs, that of the file."""
    made = trainer.source_code(found) if is_trainer else found.made
    entry, folder = job.values.get(("script", "entry")), made.get("source_dir") or _submitted(found.made)
    home, here = job_file.absolute().parent, file.absolute().parent
    at = ("script", "source")
    if isinstance(folder, str) and "://" not in folder and not folder.endswith(".tar.gz"):
        job.values[at] = _relative(here / folder, home)
    elif folder is None and isinstance(entry, str) and "/" in entry:
        job.values[at] = _relative((here / entry).parent, home)
        job.values["script", "entry"] = Path(entry).name
    else:
        job.values[at] = _relative(here, home)
        if folder is not None:
            job.comments[at] = f"the call has {source_of(folder)}"
            job.notes.append(f"script.source is the folder of {file.name}: `{source_of(folder)}` is no local folder")
    if not isinstance(entry, str):
        at = ("script", "entry")
        job.values[at] = "your-script.py"
        job.comments.setdefault(at, f"fill in; {job.unread.get(at, 'the file does not name the script')}")


def _submitted(call: Made) -> Any:
    """The archive with the source of an estimator for any image."""
    given = call.get("hyperparameters")
    return given.get("sagemaker_submit_directory") if isinstance(given, Mapping) else None


def _relative(folder: Path, home: Path) -> str:
    return relative(folder, home) if folder.exists() else folder.as_posix()


def _put_defaults(job: SdkJob, found: Found, is_trainer: bool) -> None:
    """What the job file needs and the call may leave out, with the SDK's own defaults."""
    type_at, count_at = ("compute", "instance_type"), ("compute", "instance_count")
    if job.values.get(type_at) in _LOCAL_MODE:
        job.notes.append(f"instance_type `{job.values.pop(type_at)}` is the SDK's local mode: use launch --local")
    if is_trainer and count_at not in job.unread:
        job.values.setdefault(count_at, 1)  # the default of version 3
    for at, what in ((type_at, "type"), (count_at, "number")):
        if at not in job.values:
            job.left_out[at] = f"fill in; {job.unread.get(at, f'the file does not name the {what}')}"
    _note_unread(job, found)
    type_ = instance(str(job.values.get(type_at)))
    if type_ is not None:
        job.comments[type_at] = f"{type_.gpus} GPU{'s' if type_.gpus > 1 else ''}"
    if job.values["engine",] == "native" and ("image",) not in job.values:
        version = job.values["framework", "version"]
        repository = f"smdp-{job.values['framework', 'name']}"
        job.values["image",] = placeholders.training_image(repository, version)
        job.comments["image",] = "fill in"


def _note_unread(job: SdkJob, found: Found) -> None:
    for at, source in job.unread.items():
        names = {"entry": ("entry_point", "source_code")}.get(at[-1], (at[-1], f"train_{at[-1]}", "compute"))
        place = next((found.made.places[one] for one in names if one in found.made.places), None)
        where = f" in {place}" if place is not None else ""
        state = f"is {job.values[at]}" if at in job.values else "is not set"
        job.notes.append(f"{'.'.join(at)} {state}: `{source}`{where} cannot be read from the file")


def _put_local_data(job: SdkJob, job_file: Path, file: Path) -> None:
    channels: Sequence[str] = list(dict.fromkeys(at[1] for at in job.values if at[0] == "channels"))
    home = job_file.absolute().parent
    for channel, path in find_data(channels, [home, file.absolute().parent]).items():
        job.values["local", "channels", channel] = relative(path, home)


def nested(job: SdkJob) -> dict[str, Any]:
    """The values as a mapping for a job file."""
    result: dict[str, Any] = {}
    for at, value in job.values.items():
        inner = result
        for part in at[:-1]:
            inner = inner.setdefault(part, {})
        inner[at[-1]] = _with_text_keys(value)
    return result


def _with_text_keys(value: Any) -> Any:
    """The value with every key as text, as in the JSON that the SDK sends."""
    if isinstance(value, Mapping):
        return {str(key): _with_text_keys(one) for key, one in value.items()}
    return [_with_text_keys(one) for one in value] if isinstance(value, list) else value
