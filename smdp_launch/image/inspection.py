"""The contents of an image, read from its registry without pulling it."""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from smdp_launch.catalog.images import ImageUri, parse_image, tag_facts
from smdp_launch.errors import ServiceProblem
from smdp_launch.image import documents
from smdp_launch.image.registry import Blob, Registry, RegistryError, check_digest, is_list
from smdp_launch.image.tools import Login

_Read = TypeVar("_Read")
#: Version of ``image inspect --json``; increased when a field changes its meaning or is removed.
INSPECTION_VERSION = 1
DEADLINE = 30.0  # seconds for everything together
_MANY = 256  # platforms, layers, labels or variables; more are ignored
_SHOWN = re.compile(
    r"CUDA_VERSION|NVIDIA_REQUIRE_CUDA|NCCL_VERSION|NV_CUDNN_VERSION|PYTHON_VERSION|PYTORCH_VERSION|TORCH_VERSION"
    r"|PATH|LD_LIBRARY_PATH|SAGEMAKER_[A-Z_]+|SMDP_[A-Z_]+|DLC_[A-Z_]+|EFA_VERSION"
)
_CUDA = re.compile(r"(\d{1,3}\.\d{1,3})(?:\.\d+)*")
_REQUIRED_CUDA = re.compile(r"cuda>=(\d{1,3}\.\d{1,3})")


@dataclass(frozen=True)
class ImageFact:
    """A value, and its source in the image."""

    value: str
    source: str


@dataclass(frozen=True)
class Inspection:
    """The contents of an image. An ``ImageFact`` is None if the image does not state it.

    Args:
        size: bytes of the compressed layers.
        environment: the variables that describe the contents. Others are omitted, because they may be secrets.
    """

    uri: str
    digest: str
    platform: str
    size: int
    layers: int
    created: str
    cuda: ImageFact | None
    python: ImageFact | None
    framework: ImageFact | None
    engine: ImageFact | None
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    labels: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def cuda_major(self) -> int | None:
        return None if self.cuda is None else int(self.cuda.value.partition(".")[0])


def inspect(uri: str, login: Login | None = None) -> Inspection:
    """Read the image's manifest and config.

    Raises:
        ServiceProblem: the registry refused, did not answer within ``DEADLINE``, or did not send an image.
    """
    return _in_time(uri, lambda image: _read(uri, image, login))


def digests(uri: str, login: Login | None = None) -> frozenset[str]:
    """The digests of the image's index, manifest and config. Each build tool identifies an image by one of them.

    Raises:
        ServiceProblem: as for ``inspect``.
    """

    def read(image: ImageUri) -> frozenset[str]:
        found, _, config = _manifest(image, Registry(image, login, time.monotonic() + DEADLINE))
        return frozenset({*found, config})

    return _in_time(uri, read)


def _in_time(uri: str, read: Callable[[ImageUri], _Read]) -> _Read:
    image = parse_image(uri)
    if image is None:
        raise ServiceProblem(f"{documents.printable(uri)!r} is not the URI of an image: write REGISTRY/NAME:TAG")
    results: list[_Read] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(read(image))
        except Exception as error:
            errors.append(error)

    # A registry that sends single bytes never exceeds the timeout of a read, so there is a total time limit too.
    reader = threading.Thread(target=run, daemon=True)
    reader.start()
    reader.join(DEADLINE + 1)
    if results:
        return results[0]
    error = errors[0] if errors else RegistryError(f"the registry did not answer within {DEADLINE:.0f} s")
    if isinstance(error, RegistryError | documents.BadDocument):
        hint = "" if image.registry else " (a name without a registry is on Docker Hub; local images are not inspected)"
        raise ServiceProblem(f"{uri}: {error}{hint}") from error
    raise error


def _read(uri: str, image: ImageUri, login: Login | None) -> Inspection:
    registry = Registry(image, login, time.monotonic() + DEADLINE)
    found, document, digest = _manifest(image, registry)
    config = documents.parse(registry.config(digest).data, "the config")
    return _inspection(uri, image, found[-1], document, config)


def _manifest(image: ImageUri, registry: Registry) -> tuple[list[str], Mapping[str, Any], str]:
    """The digests of the index, if there is one, and of the manifest; the manifest; the digest of its config."""
    reference = image.digest or image.tag or "latest"
    manifest = registry.manifest(reference)
    found = [_digest(manifest)]
    if is_list(manifest):
        reference = _choose(documents.parse(manifest.data, "the index"))
        manifest = registry.manifest(reference)
        found.append(_digest(manifest))
        if is_list(manifest):
            raise RegistryError("the index contains another index instead of an image")
    document = documents.parse(manifest.data, "the manifest")
    if documents.amount(document, "schemaVersion") != 2:
        raise RegistryError("the manifest has an obsolete format; push the image again")
    return found, document, check_digest(documents.text(documents.section(document, "config"), "digest"))


def _digest(blob: Blob) -> str:
    return f"sha256:{hashlib.sha256(blob.data).hexdigest()}"


def _choose(index: Mapping[str, Any]) -> str:
    """The digest of the image for the platform of SageMaker's GPU hosts."""
    for entry in documents.entries(index, "manifests")[:_MANY]:
        platform = documents.section(entry, "platform")
        if (documents.text(platform, "os"), documents.text(platform, "architecture")) == ("linux", "amd64"):
            return check_digest(documents.text(entry, "digest"))
    raise RegistryError("the index contains no image for linux/amd64")


def _inspection(
    uri: str, image: ImageUri, digest: str, manifest: Mapping[str, Any], config: Mapping[str, Any]
) -> Inspection:
    inner = documents.section(config, "config")
    labels = {
        documents.printable(name): documents.text(documents.section(inner, "Labels"), name)
        for name in list(documents.section(inner, "Labels"))[:_MANY]
    }
    variables = dict(one.partition("=")[::2] for one in documents.texts(inner, "Env")[:_MANY])
    layers = documents.entries(manifest, "layers")
    tag = image.tag or ""
    return Inspection(
        uri=uri,
        digest=digest,
        platform=f"{documents.text(config, 'os')}/{documents.text(config, 'architecture')}",
        size=sum(documents.amount(one, "size") for one in layers),
        layers=len(layers),
        created=documents.text(config, "created"),
        cuda=_cuda(labels, variables, tag),
        python=_first(labels, variables, tag_facts(tag).python, "smdp.python", "PYTHON_VERSION"),
        framework=_framework(labels, variables, image),
        engine=_first(labels, variables, None, "smdp.engine", ""),
        entrypoint=documents.texts(inner, "Entrypoint"),
        command=documents.texts(inner, "Cmd"),
        labels=labels,
        environment={name: value for name, value in variables.items() if _SHOWN.fullmatch(name)},
    )


def _cuda(labels: Mapping[str, str], variables: Mapping[str, str], tag: str) -> ImageFact | None:
    """The CUDA version. Our label takes precedence, then the variables of NVIDIA's base images, then the tag."""
    required = _REQUIRED_CUDA.search(variables.get("NVIDIA_REQUIRE_CUDA", ""))
    claims = [
        ImageFact(labels.get("smdp.cuda", ""), "label smdp.cuda"),
        ImageFact(variables.get("CUDA_VERSION", ""), "variable CUDA_VERSION"),
        ImageFact(required[1] if required else "", "variable NVIDIA_REQUIRE_CUDA"),
        ImageFact(tag_facts(tag).cuda or "", "the tag"),
    ]
    for claim in claims:
        version = _CUDA.fullmatch(claim.value)
        if version is not None:
            return ImageFact(version[1], claim.source)
    return None


def _framework(labels: Mapping[str, str], variables: Mapping[str, str], image: ImageUri) -> ImageFact | None:
    name, version = labels.get("smdp.framework"), labels.get("smdp.framework.version")
    if name and version:
        return ImageFact(f"{name} {version}", "label smdp.framework")
    if variables.get("PYTORCH_VERSION"):
        return ImageFact(f"pytorch {variables['PYTORCH_VERSION']}", "variable PYTORCH_VERSION")
    claimed = tag_facts(image.tag or "").version
    named = next((one for one in ("pytorch", "tensorflow") if one in image.repository), None)
    return ImageFact(f"{named} {claimed}", "name and tag") if named and claimed else None


def _first(
    labels: Mapping[str, str], variables: Mapping[str, str], claimed: str | None, label: str, variable: str
) -> ImageFact | None:
    if labels.get(label):
        return ImageFact(labels[label], f"label {label}")
    if variables.get(variable):
        return ImageFact(variables[variable], f"variable {variable}")
    return ImageFact(claimed, "the tag") if claimed else None
