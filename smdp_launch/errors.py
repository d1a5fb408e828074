"""The exceptions a person can meet, and the exit codes of the command line.

    SmdpError
     +-- JobFileRefused      3   the job file has errors; they are diagnostics
     +-- EnvironmentProblem  4   this machine, or the credentials
     +-- ServiceProblem      5   AWS (or the local cloud) answered with an error, or not at all
     +-- Refused             6   we could, but will not: placeholders, no confirmation, a stale plan
     +-- NoResults    6, 10-13   a job that has ended left nothing to fetch; the code is that of its ending
     +-- WaitTimedOut       14   a job was waited for as long as was asked, and goes on
     +-- Interrupted       130   the person wanted no more of it while an answer was waited for

Any other exception that reaches the top is our bug (exit code 1). Nothing here prints.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from smdp_launch.diagnostics import Diagnostic


class ExitCode(IntEnum):
    """docs/exit-codes.md tells when each is used; a number never changes its meaning."""

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


class SmdpError(Exception):
    """The message is written for the person: what is wrong, where, what to do."""

    exit_code = ExitCode.BUG


class JobFileRefused(SmdpError):
    exit_code = ExitCode.JOB_FILE_REFUSED

    def __init__(self, diagnostics: Sequence[Diagnostic]) -> None:
        super().__init__("; ".join(f"{one.code} {one.message}" for one in diagnostics))
        self.diagnostics = list(diagnostics)


class EnvironmentProblem(SmdpError):
    exit_code = ExitCode.ENVIRONMENT


class ServiceProblem(SmdpError):
    exit_code = ExitCode.SERVICE


class Refused(SmdpError):
    exit_code = ExitCode.REFUSED

    def __init__(self, message: str, diagnostics: Sequence[Diagnostic] = ()) -> None:
        super().__init__(message)
        self.diagnostics = list(diagnostics)


class NoResults(SmdpError):
    def __init__(self, message: str, exit_code: ExitCode) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class WaitTimedOut(SmdpError):
    exit_code = ExitCode.WAIT_TIMED_OUT


class Interrupted(SmdpError):
    exit_code = ExitCode.INTERRUPTED
