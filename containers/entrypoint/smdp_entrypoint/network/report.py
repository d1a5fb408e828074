"""The result of a probe: the fields of the event `network` (docs/reference/events.md), and the lines of the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterator, Sequence

from smdp_entrypoint.network.figures import Figure
from smdp_entrypoint.network.verdict import SLOW, Link, Observed, Problem, fails, links_of, problems_of

#: The code of docs/errors for a job that ends because of its network.
CODE = "SMDP901"
# More links and problems make the event too long for one line of a log.
_MOST_LINKS = 256
_MOST_PROBLEMS = 32
_AGAIN = "Launch the job again: it gets other hosts. If a host is slow again, report it to AWS Support"
_FIXES = {
    "slow": _AGAIN,
    "unequal": _AGAIN,
    "latency": _AGAIN,
    "unreachable": "Allow all traffic between the members of the job's security group, in both directions",
    "absent": "Read its log: it may still download or install packages. SMDP_NETWORK_WAIT_S is the time to wait",
    "silent": "Read its log: its processors may be busy, or its container may hang. Launch the job again if it recurs",
    "late": "Read its log for the cause: each step waits for the last host",
    "rail": _AGAIN,
    "adapters": "Use an instance type, a subnet and an image with Elastic Fabric Adapter support, and launch again",
}


@dataclass(frozen=True)
class Result:
    """`require` is the share of the figure that the job requires, None without a requirement; `met` is None if it
    cannot be checked, or nothing is required. `seconds` is how long the rounds took."""

    observed: Observed
    require: float | None
    seconds: float
    links: list[Link]
    problems: list[Problem]

    @classmethod
    def of(cls, observed: Observed, require: float | None, seconds: float) -> Result:
        links = links_of(observed, require)
        return cls(observed, require, seconds, links, problems_of(observed, links))

    @property
    def met(self) -> bool | None:
        if self.require is None or (self.observed.figure is None and not self.failing):
            return None
        return not self.failing

    @property
    def failing(self) -> list[Problem]:
        return [problem for problem in self.problems if fails(problem)]

    def fields(self) -> dict[str, Any]:
        """The event's fields; of many links those with the smallest rates."""
        figure = self.observed.figure
        links = sorted(self.links, key=lambda link: (link.gbit is not None, link.gbit or 0.0))[:_MOST_LINKS]
        return {
            "seconds": round(self.seconds, 3),
            "hosts": len(self.observed.hosts) + len(self.observed.absent),
            "rails": list(self.observed.rails),
            "rail_gbit": figure.rail_gbit if figure is not None else None,
            "host_gbit": figure.gbit if figure is not None else None,
            "required": self.require,
            "met": self.met,
            "measured": len(self.links),
            "links": [_link(link) for link in links],
            "problems": [_problem(problem, figure) for problem in self.problems[:_MOST_PROBLEMS]],
            "more_problems": max(0, len(self.problems) - _MOST_PROBLEMS),
        }

    def lines(self) -> Iterator[str]:
        yield f"network: {self.summary()}"
        for problem in self.problems[:_MOST_PROBLEMS]:
            yield f"network: {problem_text(problem, self.observed.figure)}. {_FIXES[problem.kind]}."
        if self.require is not None and self.met is None:
            yield (
                f"network: the required {_percent(self.require)} is not checked: the rate of this instance type is not "
                "known. Set SMDP_NETWORK_GBIT to it"
            )

    def summary(self) -> str:
        """One line about all links."""
        count = len(self.problems)
        outcome = "no problem found" if not count else f"{count} problem{'' if count == 1 else 's'} found"
        measured = f"{len(self.links)} links of {len(self.observed.hosts)} hosts in {self.seconds:.1f} s"
        return ", ".join(part for part in (measured, _rates(self.links, self.observed.figure), outcome) if part)

    def failure(self) -> str:
        """The reason of a job that ends because of its network."""
        share = SLOW if self.require is None else self.require
        figure = self.observed.figure
        texts = "; ".join(problem_text(problem, figure) for problem in self.failing[:4])
        more = len(self.failing) - 4
        of = f" of {_gbit(figure.rail_gbit)} Gbit/s" if figure is not None else ""
        return (
            f"{CODE}: the network is below the required {_percent(share)}{of}: {texts}"
            f"{f'; and {more} more' if more > 0 else ''}"
        )


def problem_text(problem: Problem, figure: Figure | None) -> str:
    """One sentence without its full stop."""
    host, rail = problem.hosts[0], problem.rail
    texts = {
        "absent": f"{host} was not ready for the probe in time",
        "silent": f"{host} did not answer the probe in time",
        "late": f"{host} was ready {problem.seconds or 0.0:.1f} s after the first host",
        "rail": f"{host} has no interface {rail}, which the other hosts have",
        "adapters": f"{host} shows {problem.found} of {problem.expected} Elastic Fabric Adapters",
    }
    return texts.get(problem.kind) or _link_text(problem, figure)


def _link_text(problem: Problem, figure: Figure | None) -> str:
    rail = problem.rail
    if problem.kind == "unreachable":
        return f"{_place(problem)} cannot be used on {rail}: {problem.error or 'no answer'}"
    if problem.kind == "latency":
        return f"{_place(problem)} has a latency of {1000 * (problem.seconds or 0.0):.1f} ms on {rail}"
    comparison = "slow" if problem.kind == "slow" else "slower than those of other hosts"
    return f"{_place(problem)} is {comparison} on {rail}: {_rate(problem, figure)}"


def _place(problem: Problem) -> str:
    if len(problem.hosts) == 2:
        between = "from {} to {}" if problem.direction else "between {} and {}"
        return f"the link {between.format(*problem.hosts)}"
    direction = {"sends": "outgoing ", "receives": "incoming "}.get(problem.direction, "")
    return f"the {direction}link of {problem.hosts[0]}"


def _rate(problem: Problem, figure: Figure | None) -> str:
    if problem.gbit is None:
        return "no rate"
    if figure is None or problem.share is None:
        return f"{_gbit(problem.gbit)} Gbit/s"
    return f"{_gbit(problem.gbit)} of {_gbit(figure.rail_gbit)} Gbit/s ({_percent(problem.share)})"


def _rates(links: Sequence[Link], figure: Figure | None) -> str:
    rates = sorted(link.gbit for link in links if link.gbit is not None)
    latencies = sorted(link.latency for link in links if link.latency is not None)
    if not rates:
        return ""
    of = f" of {_gbit(figure.rail_gbit)}" if figure is not None else ""
    text = f"{_gbit(rates[0])} to {_gbit(rates[-1])}{of} Gbit/s"
    return f"{text}, latency up to {1000 * latencies[-1]:.2f} ms" if latencies else text


def _link(link: Link) -> dict[str, Any]:
    return {
        "from": link.source,
        "to": link.target,
        "rail": link.rail,
        "gbit": _rounded(link.gbit),
        "share": _rounded(link.share),
        "latency_ms": _rounded(1000 * link.latency) if link.latency is not None else None,
        "verdict": link.verdict,
    }


def _problem(problem: Problem, figure: Figure | None) -> dict[str, Any]:
    return {
        "kind": problem.kind,
        "hosts": list(problem.hosts),
        "rail": problem.rail or None,
        "text": problem_text(problem, figure),
        "fix": _FIXES[problem.kind],
        "fails": fails(problem),
    }


def _rounded(value: float | None) -> float | None:
    return float(f"{value:.4g}") if value is not None else None


def _gbit(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
