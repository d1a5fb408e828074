"""Check the requests of every service against the service's own model; read values that several modules need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.utils import parse_to_aware_datetime

from smdp_launch.localcloud.errors import ServiceError, validation
from smdp_launch.localcloud.protocol.constraints import check_types, report, violations

Parameters = Mapping[str, Any]
Action = Callable[[Parameters], Mapping[str, Any]]

#: The code of a request that breaks the model, where it is not ValidationException.
_CODES = {"sts": "ValidationError", "iam": "ValidationError"}


@lru_cache(maxsize=16)
def service_model(service: str) -> ServiceModel:
    # Only the models in botocore itself: the user's ~/.aws/models must not change what is valid.
    loader = Loader(extra_search_paths=[Loader.BUILTIN_DATA_PATH], include_default_search_paths=False)
    return ServiceModel(loader.load_service_model(service, "service-2"))


def check_shape(operation: str, parameters: Mapping[str, Any], service: str = "sagemaker") -> None:
    """Raises ServiceError, with the service's message, where the service's model does not allow the parameters.

    `service` is botocore's name.
    """
    shape = service_model(service).operation_model(operation).input_shape
    if shape is None:
        return
    check_types(shape, parameters)
    broken = list(violations(shape, parameters))
    if broken:
        raise ServiceError(_CODES.get(service, "ValidationException"), report(broken))


def checked(service: str, *calls: Action) -> dict[str, Action]:
    """The calls by their names, with checks: each gets only parameters that the service's model allows.

    Nulls are removed, and times are converted to seconds since 1970. `service` is botocore's name.
    """

    def check(call: Action) -> Action:
        def checked_call(parameters: Parameters) -> Mapping[str, Any]:
            try:
                check_shape(call.__name__, parameters, service)
                shape = service_model(service).operation_model(call.__name__).input_shape
                seconds: Parameters = with_times(shape, _without_nulls(parameters), _seconds)
            except RecursionError:  # shapes that contain themselves, such as SearchExpression
                raise validation("The request is nested too deeply.") from None
            return call(seconds)

        return checked_call

    return {call.__name__: check(call) for call in calls}


def _without_nulls(value: Any) -> Any:
    """For the service null means absent, in maps and lists too."""
    if isinstance(value, dict):
        return {name: _without_nulls(one) for name, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value if one is not None] if isinstance(value, list) else value


def with_times(shape: Any, value: Any, convert: Callable[[Any], float]) -> Any:
    """The value with `convert` applied to each time in its shape."""
    if shape is None or value is None:
        return value
    if shape.type_name == "structure":
        return {name: with_times(shape.members.get(name), one, convert) for name, one in value.items()}
    if shape.type_name == "list":
        return [with_times(shape.member, one, convert) for one in value]
    return convert(value) if shape.type_name == "timestamp" else value


def _seconds(time: Any) -> float:
    """Raises ServiceError for a value that is not a time, or is one outside the calendar."""
    try:
        parsed: float = parse_to_aware_datetime(time).timestamp()
        return time if isinstance(time, int | float) else parsed
    except (ValueError, TypeError, AttributeError, OverflowError, RuntimeError, OSError):
        raise validation(f"{str(time)[:100]!r} is not a time: send seconds since 1970 or an ISO 8601 text.") from None


def split_uri(uri: str, where: str = "the address") -> tuple[str, str]:
    """Bucket and key (or prefix, possibly empty) of an S3 address."""
    parts = urlsplit(uri)
    if parts.scheme != "s3" or not parts.netloc:
        raise validation(f"{where} must be an S3 address such as s3://bucket/prefix, not {uri!r}.")
    return parts.netloc, uri.removeprefix(f"s3://{parts.netloc}").removeprefix("/")


def tensorboard_path(config: Mapping[str, Any]) -> PurePosixPath:
    return PurePosixPath(config.get("LocalPath") or "/opt/ml/output/tensorboard")


def checkpoint_path(config: Mapping[str, Any]) -> PurePosixPath:
    return PurePosixPath(config.get("LocalPath") or "/opt/ml/checkpoints")
