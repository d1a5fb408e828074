"""How often and for how long a failed request is retried."""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass, replace

from smdp_launch.jobs.service.error_kinds import ErrorKind


@dataclass(frozen=True)
class RetryPolicy:
    """All times are in seconds.

    Args:
        first_gap: between the first try and the second; each further gap is twice as long.
        longest_gap: upper limit of the gap.
        total: from the first try to the start of the last one, for temporary errors.
        credential_tries: tries with credentials that are read again, until they count as expired.
    """

    first_gap: float = 0.5
    longest_gap: float = 30.0
    total: float = 60.0
    credential_tries: int = 5

    def until_recovered(self, longest: float) -> RetryPolicy:
        """The same gaps, for an outage that lasts up to ``longest`` seconds. In that time the user can renew the
        credentials too, so the number of tries does not matter."""
        return replace(self, total=longest, credential_tries=sys.maxsize)

    def gap(self, tries: int) -> float:
        """The gap after ``tries`` failed tries, with jitter: clients that were refused together do not retry
        together."""
        most = min(self.longest_gap, self.first_gap * 2.0 ** min(tries - 1, 16))
        return most * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, not secrets


#: One try: for callers that repeat the call themselves.
SINGLE_TRY = RetryPolicy(total=0.0, credential_tries=1)


@dataclass(frozen=True)
class Waiting:
    """A request failed and is retried in ``again_in`` seconds.

    Args:
        what: what cannot be done until then.
        since: seconds since 1970 of the first failure.
    """

    what: str
    reason: str
    since: float
    again_in: float
    error_kind: ErrorKind

    @property
    def trouble(self) -> ErrorKind:
        """The former name of ``error_kind``."""
        return self.error_kind
