"""An endpoint's state on disk, as its supervisor writes it and the server reads it, and what it must run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from smdp_launch.localcloud.files import read_json, write_json

_REASON_LIMIT = 1024  # characters, the service's limit of FailureReason


@dataclass
class Deployment:
    """What an endpoint must run.

    Args:
        generation: 1 for CreateEndpoint, and one more for each update.
        config: the name of the endpoint configuration.
        variants: the production variants of the configuration, each with its model's request as `Model`.
        request: fields of the configuration that apply to the whole endpoint, such as AsyncInferenceConfig.
        deployed: DeploymentConfig of the call, if it has one.
    """

    generation: int
    config: str
    variants: list[dict[str, Any]]
    request: dict[str, Any] = field(default_factory=dict)
    deployed: dict[str, Any] | None = None


@dataclass
class EndpointState:
    """Times are seconds since 1970.

    Args:
        generation: of the deployment that the endpoint runs; 0 for none yet.
        config: the name of that deployment's configuration.
        variants: one record for each variant: `name`, `hosts` that answer requests (each with `instance`, `address`,
            `port` and `token`), `desired` (number of hosts), `weight`, `image`, `model`, `timeout` (seconds for an
            answer), `serverless` (its ServerlessConfig, or None) and `refuses_until` (the end of an injected overload).
        rejected: the generation of an update that failed.
        asynchronous: AsyncInferenceConfig of the configuration, if it has one.
    """

    created: float
    modified: float
    status: str = "Creating"
    generation: int = 0
    config: str = ""
    failure: str | None = None
    rejected: int = 0
    asynchronous: dict[str, Any] | None = None
    variants: list[dict[str, Any]] = field(default_factory=list)

    def fail(self, reason: str, now: float) -> None:
        self.failure = reason[:_REASON_LIMIT]
        self.status = "Failed"
        self.variants = []
        self.modified = now


@dataclass
class TransformState:
    """Of a transform job. Times are seconds since 1970; `started` and `ended` are None before."""

    created: float
    modified: float
    status: str = "InProgress"
    started: float | None = None
    ended: float | None = None
    failure: str | None = None

    @property
    def has_ended(self) -> bool:
        return self.status in ("Completed", "Failed", "Stopped")

    def end(self, status: str, failure: str | None, now: float) -> None:
        self.status, self.failure = status, failure[:_REASON_LIMIT] if failure else None
        self.ended = self.modified = now


def read_transform(path: Path) -> TransformState | None:
    record = read_json(path)
    return TransformState(**_known(TransformState, record)) if record else None


def read(path: Path) -> EndpointState | None:
    """A later version may add fields, which are ignored."""
    record = read_json(path)
    return EndpointState(**_known(EndpointState, record)) if record else None


def write(path: Path, state: EndpointState | TransformState) -> None:
    write_json(path, asdict(state))


def read_deployment(path: Path) -> Deployment | None:
    record = read_json(path)
    return Deployment(**_known(Deployment, record)) if record else None


def write_deployment(path: Path, deployment: Deployment) -> None:
    write_json(path, asdict(deployment))


def _known(kind: type, record: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the record that the dataclass has."""
    return {one.name: record[one.name] for one in fields(kind) if one.name in record}
