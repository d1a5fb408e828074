"""The defaults file of the SageMaker Python SDK: what it says about training jobs holds here too.

Two files, the administrator's and then the user's, where the SDK looks for them; the user's wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from smdp_launch.diagnostics import Diagnostic, Severity, Span
from smdp_launch.jobfile.yaml.document import Document, Entry, Layer, Location, read

#: Variable that names another file, and the folder of the file itself.
_OVERRIDES = ("SAGEMAKER_USER_CONFIG_OVERRIDE", "SAGEMAKER_ADMIN_CONFIG_OVERRIDE")
_JOB: Location = ("SageMaker", "TrainingJob")
_SESSION: Location = ("SageMaker", "PythonSDK", "Modules", "Session")

#: Their key to ours, for values that mean the same in both.
_SAME: dict[Location, Location] = {
    (*_JOB, "RoleArn"): ("role",),
    (*_JOB, "VpcConfig", "Subnets"): ("network", "subnets"),
    (*_JOB, "VpcConfig", "SecurityGroupIds"): ("network", "security_groups"),
    (*_JOB, "EnableNetworkIsolation"): ("network", "isolated"),
    (*_JOB, "EnableInterContainerTrafficEncryption"): ("network", "encrypt_traffic"),
    (*_JOB, "OutputDataConfig", "KmsKeyId"): ("encryption", "output_key"),
    (*_JOB, "OutputDataConfig", "S3OutputPath"): ("output", "s3"),
    (*_JOB, "ResourceConfig", "VolumeKmsKeyId"): ("encryption", "volume_key"),
    (*_JOB, "Environment"): ("environment",),
}


def read_files(environ: Mapping[str, str]) -> tuple[Document, list[Diagnostic]]:
    """Both files as one document in the job file's own terms."""
    result = Document(file="", folder=Path(), layer=Layer.SAGEMAKER)
    found: list[Diagnostic] = []
    for variable, standard in zip(_OVERRIDES, _standard_places(), strict=True):
        named = environ.get(variable)
        if named and named.startswith("s3://"):
            message = f"{variable} names {named}, which is not read: nothing here uses the network"
            help_ = "copy the file here and name that"
            found.append(_problem(message, named, help_, Severity.WARNING))
            continue
        path = Path(named) if named else standard
        if path is not None and path.is_dir():
            path = path / "config.yaml"
        if path is None or not (named or path.is_file()):
            continue
        document, problems = read(path, None, Layer.SAGEMAKER)
        problems += _wrong_version(document, path) if document.data else []
        if problems:
            found += [_told(one, path) for one in problems]
            continue
        _take(result, document)
    return result, found


def _standard_places() -> tuple[Path | None, Path | None]:
    try:
        import platformdirs

        return (
            platformdirs.user_config_path("sagemaker") / "config.yaml",
            platformdirs.site_config_path("sagemaker") / "config.yaml",
        )
    except (OSError, RuntimeError, KeyError):  # nobody's home
        return None, None


def _wrong_version(document: Document, path: Path) -> list[Diagnostic]:
    version = document.data.get("SchemaVersion")
    if version == "1.0":
        return []
    span = document.entry(("SchemaVersion",)).value
    return [Diagnostic("SMDP208", f"SchemaVersion is {version!r}", span, str(version), "write SchemaVersion: '1.0'")]


def _take(result: Document, document: Document) -> None:
    """Add what ``document`` says of a training job where ``result`` has nothing yet."""
    for theirs, ours in _SAME.items():
        value = _value(document.data, theirs)
        if value is not None:
            _put(result, ours, value, document, theirs)
    tags = _value(document.data, (*_JOB, "Tags"))
    for number, tag in enumerate(tags if isinstance(tags, list) else []):
        if isinstance(tag, dict) and isinstance(tag.get("Key"), str):
            _put(result, ("tags", tag["Key"]), tag.get("Value", ""), document, (*_JOB, "Tags", number))
    bucket = _value(document.data, (*_SESSION, "DefaultS3Bucket"))
    if isinstance(bucket, str):
        prefix = _value(document.data, (*_SESSION, "DefaultS3ObjectKeyPrefix"))
        uri = "/".join(["s3:/", bucket, *([prefix] if isinstance(prefix, str) else [])])
        _put(result, ("output", "s3"), uri, document, (*_SESSION, "DefaultS3Bucket"))


def _put(result: Document, ours: Location, value: object, document: Document, theirs: Location) -> None:
    if ours in result.entries:
        return
    place = document.entry(theirs)
    parent = result.data
    for length, part in enumerate(ours[:-1], 1):
        parent = parent.setdefault(str(part), {})
        result.entries.setdefault(ours[:length], Entry(place.key, place.key, "", Layer.SAGEMAKER, place.folder))
    parent[str(ours[-1])] = value
    result.entries[ours] = place
    depth = len(theirs)
    inner = {one: entry for one, entry in document.entries.items() if one[:depth] == theirs and len(one) > depth}
    if isinstance(value, dict | list):
        result.entries.update({(*ours, *one[depth:]): entry for one, entry in inner.items()})


def _value(data: Any, at: Location) -> Any:
    for part in at:
        data = data.get(part) if isinstance(data, dict) else None
    return data


def _told(one: Diagnostic, path: Path) -> Diagnostic:
    message = f"SageMaker's defaults file {path}: {one.message}"
    return Diagnostic("SMDP208", message, one.span, one.text, one.help)


def _problem(message: str, text: str, help_: str, severity: Severity) -> Diagnostic:
    return Diagnostic("SMDP208", message, Span(text, 1, 1, 2), text, help_, severity)
