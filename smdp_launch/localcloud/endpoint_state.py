"""An endpoint's state on disk, as its supervisor writes it and the server reads it, and what it must run."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from smdp_launch.localcloud.end_state import Ending, known_fields, limited
from smdp_launch.localcloud.files import read_json, write_json


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
        self.failure = limited(reason)
        self.status = "Failed"
        self.variants = []
        self.modified = now


@dataclass
class TransformState(Ending):
    """Of a transform job. Times are seconds since 1970; `started` and `ended` are None before."""

    created: float
    modified: float
    status: str = "InProgress"
    started: float | None = None
    ended: float | None = None
    failure: str | None = None


def read_transform(path: Path) -> TransformState | None:
    record = read_json(path)
    return TransformState(**known_fields(TransformState, record)) if record else None


def read(path: Path) -> EndpointState | None:
    record = read_json(path)
    return EndpointState(**known_fields(EndpointState, record)) if record else None


def write(path: Path, state: EndpointState | TransformState) -> None:
    write_json(path, asdict(state))


def read_deployment(path: Path) -> Deployment | None:
    record = read_json(path)
    return Deployment(**known_fields(Deployment, record)) if record else None


def write_deployment(path: Path, deployment: Deployment) -> None:
    write_json(path, asdict(deployment))
