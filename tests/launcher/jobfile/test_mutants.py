"""One small error anywhere in a sound job file is reported at its place, or the service accepts the result.

The whole set takes minutes and runs with the soak tier; the fast tests take every fifteenth of it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from smdp_launch.checking.job import CheckedJob
from smdp_launch.diagnostics import Diagnostic, has_errors
from smdp_launch.jobfile.yaml.document import Document
from tests.support.job_files.good_files import FILES, checked, refused_by_service, request_of, workshop
from tests.support.job_files.mutation import OPERATORS, Mutant, mutants

#: These break YAML itself, and the parser can fail a line or more after the change.
STRUCTURAL = {"half_quoted", "shift", "no_colon", "unquote", "case_of_value", "typo_in_value"}
SAMPLE, SMALL_SAMPLE = 15, 44  # one of this many mutants is tested


@dataclass(frozen=True)
class Verdict:
    """``how``: diagnosed, accepted (the request is another), unchanged (the request is the same), or what is wrong."""

    how: str
    detail: str = ""

    @property
    def wrong(self) -> bool:
        return self.how not in {"diagnosed", "accepted", "unchanged"}


def judge(mutant: Mutant, path: Path, sound: dict[str, object]) -> Verdict:
    job = checked(path, mutant.text)
    if not has_errors(job.diagnostics):
        request = request_of(job)
        refused = refused_by_service(request)
        if refused:
            return Verdict("sent, and refused by the service", "; ".join(refused))
    if job.diagnostics:
        is_in_place = any(in_place(one, mutant, job) for one in job.diagnostics)
        return (
            Verdict("diagnosed") if is_in_place else Verdict("reported elsewhere", "\n".join(map(str, job.diagnostics)))
        )
    return Verdict("unchanged" if request == sound else "accepted")


def in_place(one: Diagnostic, mutant: Mutant, job: CheckedJob) -> bool:
    """On a line that was changed; for what is gone at its parents, and else in a sentence that names it."""
    line = one.span.line if one.span is not None else 0
    key = next(part for part in reversed(mutant.at) if isinstance(part, str))
    if line in mutant.lines or names(one, key):
        return True
    if one.code == "SMDP102" and mutant.operator in STRUCTURAL:
        return line >= mutant.lines.start
    return line in parents(mutant, job.loaded.document) and mutant.operator in {"delete", "typo_in_key", "case_of_key"}


def names(one: Diagnostic, key: str) -> bool:
    return re.search(rf"\b{re.escape(key)}\b", f"{one.message} {one.help} {one.text}") is not None


def parents(mutant: Mutant, document: Document) -> Iterable[int]:
    yield document.top.line
    for length in range(1, len(mutant.at)):
        yield document.entry(mutant.at[:length]).key.line


def run(every: int, folder: Path) -> None:
    """Judge the first of each operator's mutants, and every ``every``-th after it."""
    path = workshop(folder)
    table: Counter[tuple[str, str]] = Counter()
    wrong: list[str] = []
    made: Counter[str] = Counter()
    for file in FILES:
        text = file.read_text()
        sound = request_of(checked(path, text))
        for mutant in mutants(text):
            made[mutant.operator] += 1
            if (made[mutant.operator] - 1) % every:
                continue
            verdict = judge(mutant, path, sound)
            table[mutant.operator, verdict.how] += 1
            if verdict.wrong:
                where = f"{file.stem} {'.'.join(map(str, mutant.at))} {mutant.operator}"
                wrong.append(f"{where}: {verdict.how}: {verdict.detail}")
    show(table)
    assert wrong == []
    assert {operator for operator, _ in table} == {one.__name__ for one in OPERATORS}


def show(table: Counter[tuple[str, str]]) -> None:
    print(f"\n{'operator':<16}{'mutants':>9}{'diagnosed':>11}{'accepted':>10}{'unchanged':>11}")
    for operator in [*dict.fromkeys(name for name, _ in sorted(table)), "all"]:
        row = {
            how: sum(n for (name, is_), n in table.items() if operator in (name, "all") and is_ == how)
            for _, how in table
        }
        counts = [row.get(how, 0) for how in ("diagnosed", "accepted", "unchanged")]
        print(f"{operator:<16}{sum(row.values()):>9}{counts[0]:>11}{counts[1]:>10}{counts[2]:>11}")


@pytest.mark.parametrize("every", [SMALL_SAMPLE, pytest.param(SAMPLE, marks=pytest.mark.runs)])
def test_sample_of_small_errors_is_reported_in_place_or_harmless(tmp_path: Path, every: int) -> None:
    run(every, tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_every_small_error_is_reported_in_place_or_harmless(tmp_path: Path) -> None:
    run(1, tmp_path)
