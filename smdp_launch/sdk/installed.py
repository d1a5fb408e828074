"""The installed SageMaker Python SDK, version 2 or 3. It is imported only for an estimator or a model trainer.

Its import takes seconds. Version 2 prints a notice about version 3 as a warning and as a log line; later calls print
which of its defaults they did not apply. These notices are suppressed during our imports and calls unless the user
wants them.
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
    *("sagemaker.core.utils.utils", "sagemaker.core.config.config_manager", "sagemaker.core.telemetry"),
)
#: What the versions of the SDK have, and the requirement of each. The two versions exclude each other.
_HAS = {"2": "estimators", "3": "model trainers"}
_REQUIREMENTS = {"2": "sagemaker>=2.200,<3", "3": "sagemaker>=3.20,<4"}  # as in pyproject.toml


def sdk(name: str, quiet: bool = True, version: str = "2") -> Any:
    """The SDK's module ``name``, such as ``sagemaker.pytorch``.

    Raises:
        EnvironmentProblem: the SDK is not installed, or is another version.
    """
    _require(version)
    with without_notices(quiet):
        return importlib.import_module(name)


def _require(version: str) -> None:
    install = f"pip install '{_REQUIREMENTS[version]}'"
    try:
        installed = importlib.metadata.version("sagemaker")
    except importlib.metadata.PackageNotFoundError:
        raise EnvironmentProblem(f"the SageMaker Python SDK is not installed: run {install}") from None
    if installed.partition(".")[0] != version:
        raise EnvironmentProblem(
            f"the installed SageMaker Python SDK is version {installed}, and only version {version} has"
            f" {_HAS[version]}: run {install} in a separate environment"
        )


@contextmanager
def without_notices(quiet: bool = True) -> Iterator[None]:
    """Suppress the SDK's notices within the context. The user's settings are restored after it."""
    if not quiet:
        yield
        return
    before = os.environ.get(_VARIABLE)
    excepthook = sys.excepthook  # the SDK replaces it, also for the tracebacks of the user's own code
    root = logging.getLogger()  # one of the SDK's modules configures it, for every logger of the process
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
