"""The defaults files of the SageMaker Python SDK: their values for training jobs apply to job files too.

There are two, the administrator's and the user's, at the places where the SDK reads them. The user's overrides.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from smdp_launch.diagnostics import Diagnostic, Severity, Span
from smdp_launch.jobfile.yaml.document import ConfigSource, Document, Entry, Location, Parsed
from smdp_launch.jobfile.yaml.parser import read

#: Variables that name another file, the user's and then the administrator's.
_OVERRIDES = ("SAGEMAKER_USER_CONFIG_OVERRIDE", "SAGEMAKER_ADMIN_CONFIG_OVERRIDE")
_JOB: Location = ("SageMaker", "TrainingJob")
_SESSION: Location = ("SageMaker", "PythonSDK", "Modules", "Session")

#: A key of theirs to the location in a job file, for values with the same meaning in both.
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


def read_files(environ: Mapping[str, str]) -> Parsed:
    """Both files as one document with the keys of a job file."""
    result = Document(file="", folder=Path(), source=ConfigSource.SAGEMAKER)
    diagnostics: list[Diagnostic] = []
    for variable, standard in zip(_OVERRIDES, _standard_places(), strict=True):
        named = environ.get(variable)
        if named and named.startswith("s3://"):
            message = f"{variable} names {named}, which is not read: this command does not use the network"
            span, help_ = Span(named, 1, 1, 2), "copy the file to this machine and name the copy"
            diagnostics.append(Diagnostic("SMDP208", message, span, named, help_, Severity.WARNING))
            continue
        path = Path(named) if named else standard
        if path is not None and path.is_dir():
            path = path / "config.yaml"
        if path is None or not (named or path.is_file()):
            continue
        document, problems = read(path, None, ConfigSource.SAGEMAKER)
        problems += _wrong_version(document, path) if document.data else []
        if problems:
            diagnostics += [_with_file(one, path) for one in problems]
            continue
        _take(result, document)
    return result, diagnostics


def _standard_places() -> tuple[Path | None, Path | None]:
    try:
        import platformdirs

        return (
            platformdirs.user_config_path("sagemaker") / "config.yaml",
            platformdirs.site_config_path("sagemaker") / "config.yaml",
        )
    except (OSError, RuntimeError, KeyError):  # the user has no home folder
        return None, None


def _wrong_version(document: Document, path: Path) -> list[Diagnostic]:
    version = document.data.get("SchemaVersion")
    if version == "1.0":
        return []
    span = document.entry(("SchemaVersion",)).value
    return [Diagnostic("SMDP208", f"SchemaVersion is {version!r}", span, str(version), "write SchemaVersion: '1.0'")]


def _take(result: Document, document: Document) -> None:
    """Add the values of ``document`` for training jobs that ``result`` does not have."""
    for theirs, ours in _SAME.items():
        value = document.value(theirs)
        if value is not None:
            _put(result, ours, value, document, theirs)
    tags = document.value((*_JOB, "Tags"))
    for number, tag in enumerate(tags if isinstance(tags, list) else []):
        if isinstance(tag, dict) and isinstance(tag.get("Key"), str):
            _put(result, ("tags", tag["Key"]), tag.get("Value", ""), document, (*_JOB, "Tags", number))
    bucket = document.value((*_SESSION, "DefaultS3Bucket"))
    if isinstance(bucket, str):
        prefix = document.value((*_SESSION, "DefaultS3ObjectKeyPrefix"))
        uri = "/".join(["s3:/", bucket, *([prefix] if isinstance(prefix, str) else [])])
        _put(result, ("output", "s3"), uri, document, (*_SESSION, "DefaultS3Bucket"))


def _put(result: Document, ours: Location, value: object, document: Document, theirs: Location) -> None:
    if ours in result.entries:
        return
    place = document.entry(theirs)
    parent = result.data
    for length, part in enumerate(ours[:-1], 1):
        parent = parent.setdefault(str(part), {})
        result.entries.setdefault(ours[:length], Entry(place.key, place.key, "", ConfigSource.SAGEMAKER, place.folder))
    parent[str(ours[-1])] = value
    result.entries[ours] = place
    depth = len(theirs)
    inner = {one: entry for one, entry in document.entries.items() if one[:depth] == theirs and len(one) > depth}
    if isinstance(value, dict | list):
        result.entries.update({(*ours, *one[depth:]): entry for one, entry in inner.items()})


def _with_file(one: Diagnostic, path: Path) -> Diagnostic:
    message = f"SageMaker's defaults file {path}: {one.message}"
    return Diagnostic("SMDP208", message, one.span, one.text, one.help)
