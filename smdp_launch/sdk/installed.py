"""The SageMaker Python SDK of this environment: version 2, imported only when somebody asks for an estimator.

Its import takes seconds and prints a notice about version 3 as a warning and as a log line; later calls tell which of
its own defaults they did not apply. All that stays off during our imports and calls unless the person wants it.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from smdp_launch.errors import EnvironmentProblem

_VARIABLE = "SAGEMAKER_SUPPRESS_V2_WARNING"
_CHATTER = (
    *("sagemaker.config", "sagemaker.telemetry", "sagemaker.deprecations"),
    *("botocore.credentials", "botocore.configprovider"),
)
_INSTALL = "pip install 'sagemaker<3'"


def sdk(name: str, quiet: bool = True) -> Any:
    """The SDK's module ``name``, such as ``sagemaker.pytorch``.

    Raises:
        EnvironmentProblem: the SDK is not installed, or is one without estimators (version 3).
    """
    _require_version_2()
    with hushed(quiet):
        return importlib.import_module(name)


def _require_version_2() -> None:
    try:
        found = importlib.metadata.version("sagemaker")
    except importlib.metadata.PackageNotFoundError:
        raise EnvironmentProblem(f"the SageMaker Python SDK is not installed here: {_INSTALL}") from None
    if found.partition(".")[0] != "2":
        raise EnvironmentProblem(
            f"the SageMaker Python SDK here is version {found}, and estimators are version 2's: {_INSTALL},"
            " in an environment of its own"
        )


@contextmanager
def hushed(quiet: bool = True) -> Iterator[None]:
    """Without the SDK's notices while the context lasts; what the person set stays as it was."""
    if not quiet:
        yield
        return
    before = os.environ.get(_VARIABLE)
    excepthook = sys.excepthook  # which the SDK replaces, for the tracebacks of the person's own code too
    root = logging.getLogger()  # which one of its modules configures, for every logger of the person's process
    handlers, root_level = list(root.handlers), root.level
    levels = {name: logging.getLogger(name).level for name in _CHATTER}
    os.environ[_VARIABLE] = before or "1"
    for name in _CHATTER:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        yield
    finally:
        sys.excepthook = excepthook
        root.handlers[:] = handlers
        root.setLevel(root_level)
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
        if before is None:
            os.environ.pop(_VARIABLE, None)
