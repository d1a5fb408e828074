"""The exceptions for the user, and the exit codes of the command line.

    SmdpError
     +-- JobFileRefused      3   the job file has errors; they are diagnostics
     +-- EnvironmentProblem  4   the local machine, or the credentials
     +-- ServiceProblem      5   AWS (or the local cloud) answered with an error, or not at all
     +-- Refused             6   the request is not safe to execute: placeholders, no confirmation, an outdated plan
     +-- EndpointFailed     10   an endpoint did not start, or a batch transform failed
     +-- NoResults    6, 10-13   a job that has ended has no results; the code is that of its end
     +-- WaitTimedOut       14   the time limit passed while the job still runs
     +-- Interrupted       130   the user interrupted a retry

Any other exception at the top level is a bug of smdp-launch (exit code 1). This module prints nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from smdp_launch.diagnostics import Diagnostic, Severity


class ExitCode(IntEnum):
    """docs/reference/exit-codes.md describes each code. A number never changes its meaning."""

    OK = 0
    BUG = 1
    USAGE = 2
    JOB_FILE_REFUSED = 3
    ENVIRONMENT = 4
    SERVICE = 5
    REFUSED = 6
    JOB_FAILED = 10
    JOB_STOPPED = 11
    MAX_RUN_TIME = 12
    SPOT_GAVE_UP = 13
    WAIT_TIMED_OUT = 14
    REHEARSAL_FAILED = 15
    INTERRUPTED = 130
    READER_EXITED = 141


class SmdpError(Exception):
    """The message is for the user: what is wrong, where, what to do."""

    exit_code = ExitCode.BUG


class JobFileRefused(SmdpError):
    """The message has one line for each error; ``diagnostics`` has the warnings too."""

    exit_code = ExitCode.JOB_FILE_REFUSED

    def __init__(self, diagnostics: Sequence[Diagnostic]) -> None:
        errors = [one for one in diagnostics if one.severity is Severity.ERROR]
        super().__init__("\n".join(one.in_one_line() for one in errors))
        self.diagnostics = list(diagnostics)


class EnvironmentProblem(SmdpError):
    exit_code = ExitCode.ENVIRONMENT


class ServiceProblem(SmdpError):
    exit_code = ExitCode.SERVICE


class ModelFailed(ServiceProblem):
    """The model of an endpoint answered a request with an error.

    Args:
        log: the last lines of the containers' logs; empty if the request was wrong.
    """

    def __init__(self, message: str, log: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.log = list(log)


class Refused(SmdpError):
    exit_code = ExitCode.REFUSED

    def __init__(self, message: str, diagnostics: Sequence[Diagnostic] = ()) -> None:
        super().__init__(message)
        self.diagnostics = list(diagnostics)


class NoResults(SmdpError):
    def __init__(self, message: str, exit_code: ExitCode) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class EndpointFailed(SmdpError):
    """Args:
    log: the last lines of the container's log.
    """

    exit_code = ExitCode.JOB_FAILED

    def __init__(self, message: str, log: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.log = list(log)


class WaitTimedOut(SmdpError):
    exit_code = ExitCode.WAIT_TIMED_OUT


class Interrupted(SmdpError):
    exit_code = ExitCode.INTERRUPTED
