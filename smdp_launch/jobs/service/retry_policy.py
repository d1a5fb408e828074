"""How often and how long a request is repeated that got no answer."""

from __future__ import annotations

import random
from dataclasses import dataclass

from smdp_launch.jobs.service.error_kinds import Trouble


@dataclass(frozen=True)
class Patience:
    """How long, in seconds, a question is asked again.

    Args:
        first: gap before the second try; each try doubles it.
        longest: the most that it grows to.
        total: of one question, from its first try to the beginning of its last, where what is in the way may pass.
        credentials: tries with credentials that are read anew, before they are taken to have expired for good.
    """

    first: float = 0.5
    longest: float = 30.0
    total: float = 60.0
    credentials: int = 5

    def gap(self, tries: int) -> float:
        """After ``tries`` that failed; spread, so that many who were refused at once do not come back at once."""
        most = min(self.longest, self.first * 2.0 ** min(tries - 1, 16))
        return most * random.uniform(0.5, 1.0)  # noqa: S311 - spreading, not secrets


@dataclass(frozen=True)
class Waiting:
    """A question that got no answer is asked again in ``again_in`` seconds.

    Args:
        what: what cannot be done meanwhile.
        since: seconds since 1970.
    """

    what: str
    reason: str
    since: float
    again_in: float
    trouble: Trouble
