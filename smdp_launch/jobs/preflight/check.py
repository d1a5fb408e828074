"""Runs checks of an account and collects their results."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from smdp_launch.diagnostics import Diagnostic
from smdp_launch.jobfile.yaml.document import Document
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.planning.plan import Plan
from smdp_launch.rules.base.facts import Problem, diagnostic_of

_DENIED = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "403"})


class NotChecked(Exception):
    """The check has no result; the message is the reason. It becomes a note, never an error."""


@dataclass
class Account:
    """The plan, and the AWS account through its clients. Repeated calls are avoided."""

    plan: Plan
    clients: Clients
    _services: dict[str, Any] = field(default_factory=dict, init=False)

    def service(self, name: str) -> Any:
        if name not in self._services:
            self._services[name] = self.clients.service(name)
        return self._services[name]

    @cached_property
    def identity(self) -> dict[str, Any]:
        return dict(self.service("sts").get_caller_identity())


@dataclass(frozen=True)
class Check:
    """One numbered check.

    Args:
        before_launch: ``launch`` runs it too, before anything is uploaded.
        inspect: yields a diagnostic for each error, and a short text for what is correct; raises NotChecked or
            botocore's errors.
    """

    code: str
    subject: str
    before_launch: bool
    inspect: Callable[[Account], Iterator[Problem | str]]


@dataclass(frozen=True)
class Result:
    """The result of one check.

    Args:
        checked: False if the check was skipped or has no result.
        problems: empty if all is correct, or nothing was checked.
        note: what is correct, or why nothing, or not all, was checked.
        answered: False if AWS could not be reached.
        is_partial: the check found problems, and ended before it had checked everything.
    """

    code: str
    subject: str
    checked: bool
    problems: tuple[Diagnostic, ...] = ()
    note: str = ""
    answered: bool = True
    is_partial: bool = False


def run(checks: Sequence[Check], account: Account, ignored: Collection[str] = ()) -> list[Result]:
    """Run the checks in order, except the ignored ones; stop after one for which AWS could not be reached."""
    results: list[Result] = []
    for one in checks:
        if one.code in ignored:
            results.append(Result(one.code, one.subject, False, note="ignored"))
        elif results and not results[-1].answered:
            results.append(Result(one.code, one.subject, False, note=results[-1].note, answered=False))
        else:
            document: Document | None = account.plan.spec.document
            results.append(result_of(one.code, one.subject, partial(one.inspect, account), document))
    return results


def result_of(
    code: str, subject: str, inspect: Callable[[], Iterator[Problem | str]], document: Document | None
) -> Result:
    """The result of one check, whose ``inspect`` is as in `Check`. Problems that it found before an error count."""
    from botocore.exceptions import BotoCoreError, ClientError

    problems: list[Diagnostic] = []
    notes: list[str] = []
    answered = True
    try:
        for one in inspect():
            if isinstance(one, Problem):
                problems.append(diagnostic_of(document, code, one))
            else:
                notes.append(one)
    except NotChecked as error:
        reason = str(error)
    except ClientError as error:
        reason = refusal(error)
    except BotoCoreError as error:
        reason, answered = str(error), False
    else:
        return Result(code, subject, True, tuple(problems), "; ".join(notes))
    if not problems:
        return Result(code, subject, False, note=reason, answered=answered)
    return Result(code, subject, True, tuple(problems), f"partly checked: {reason}", answered, is_partial=True)


def refusal(error: Any) -> str:
    """A ClientError as the reason why nothing was checked."""
    code = code_of(error)
    if code in _DENIED:
        return f"no permission for {error.operation_name}"
    return f"{error.operation_name}: {code}"


def code_of(error: Any) -> str:
    """The service's code of a ClientError."""
    return str(error.response["Error"].get("Code", ""))


def s3_channels(account: Account) -> dict[str, str]:
    """The S3 URI of each channel in S3, by channel name."""
    return {
        one["ChannelName"]: one["DataSource"]["S3DataSource"]["S3Uri"]
        for one in account.plan.request.get("InputDataConfig", [])
        if "S3DataSource" in one["DataSource"]
    }
