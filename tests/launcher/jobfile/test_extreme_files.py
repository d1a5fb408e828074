"""Any bytes in a job file give diagnostics or a sound job, never a traceback, in limited time and memory."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from smdp_launch.checking.job import CheckedJob, check_job
from smdp_launch.cli.render.diagnostics import diagnostics_text
from smdp_launch.jobfile.yaml.parser import MAX_BYTES
from tests.conftest import JOB, ROOT, write_job
from tests.support import command
from tests.support.job_files.extreme_files import FILES
from tests.support.job_files.good_files import FILES as GOOD
from tests.support.properties import examples

# Seconds of a processor, and bytes. The time allows for a busy machine with two threads on one core.
# tools/fuzz_job_file.py prints the actual times.
CPU_LIMIT = 8
MEMORY_LIMIT = 500_000_000

#: Pieces from which the most interesting files are made.
TOKENS = st.sampled_from(
    [
        *(":", "-", "?", ",", "[", "]", "{", "}", "#", "&a ", "*a", "!", "|", ">", "'", '"', "%", "@", "`", "~", "<<"),
        *("\n", "\n  ", ": ", "- ", " ", "\t", "\\", "${", "}", "=", "/", "..", "...", "---", "\r", "\x00", "\x85"),
        *("null", "true", "1e999", "-0", "0x_", "0o8", ".nan", "1_0", "2026-11-21", "${HOME}", "${X:-y}", "é"),
        *("\u2028", "\ud800", "\ufeff", "\U0001f600", "s3://b/c"),
        *sorted({word for word in JOB.replace(":", " ").split() if word.isalnum()}),
    ]
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("extreme")
    write_job(folder)
    return folder


def judge(folder: Path, content: bytes) -> CheckedJob:
    path = folder / "job.yaml"
    path.write_bytes(content)
    job = check_job(path, environ={"X": "1"})
    json.dumps(job.to_json())
    if job.diagnostics:
        diagnostics_text(job.diagnostics)
    else:
        job.require()
    lines = content.count(b"\n") + content.count(b"\r") + 1 + sum(map(content.count, (b"\x85", b"\xa8", b"\xa9")))
    for one in job.diagnostics:
        assert one.span is None or 1 <= one.span.line <= lines, one
        assert one.span is None or 1 <= one.span.column <= one.span.end_column, one
    return job


many = examples(150, suppress_health_check=[HealthCheck.function_scoped_fixture])


@many
@given(st.binary(max_size=300))
def test_random_bytes(folder: Path, content: bytes) -> None:
    judge(folder, content)


@many
@given(st.lists(TOKENS, max_size=60).map("".join))
def test_random_pieces_of_yaml(folder: Path, text: str) -> None:
    judge(folder, text.encode("utf-8", "surrogatepass"))


@many
@given(st.sampled_from(GOOD), st.data())
def test_sound_files_with_pieces_put_in_or_taken_out(folder: Path, file: Path, data: st.DataObject) -> None:
    text = file.read_text()
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = start + data.draw(st.integers(0, 12))
        text = text[:start] + "".join(data.draw(st.lists(TOKENS, max_size=4))) + text[end:]
    judge(folder, text.encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-be", "utf-32", "latin-1", "cp500", "utf-7"])
def test_other_encodings(folder: Path, codec: str) -> None:
    judge(folder, f"{JOB}# é\n".encode(codec))


def refused(folder: Path, make: object, *arguments: str) -> str:
    """The standard error for the file that ``make`` returns, which is refused within the limits."""
    assert callable(make)
    content = make().encode()
    assert len(content) <= MAX_BYTES
    (folder / "job.yaml").write_bytes(content)

    limits = {resource.RLIMIT_CPU: CPU_LIMIT, resource.RLIMIT_DATA: MEMORY_LIMIT}
    ran = command.run(folder, "validate", *arguments, limits=limits)
    assert ran.returncode == 3, ran.stderr[-2000:]
    assert "Traceback" not in ran.stderr
    assert "Warning" not in ran.stderr
    return ran.stderr


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(make, id=name, marks=[pytest.mark.runs] if number % 3 else [])
        for number, (name, make) in enumerate(FILES.items())
    ],
)
def test_large_and_extreme_files_are_refused_within_limits(job_folder: Path, make: object) -> None:
    shown = refused(job_folder, make)
    assert len(shown) < 200_000
    assert max(map(len, shown.splitlines())) < 4000  # a control character is shown as six characters


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(make, id=name, marks=[pytest.mark.soak] if number % 6 else [])
        for number, (name, make) in enumerate(FILES.items())
    ],
)
def test_large_and_extreme_files_are_refused_within_limits_as_json(job_folder: Path, make: object) -> None:
    refused(job_folder, make, "--json")


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_ten_minutes_of_guided_fuzzing_find_no_failure(tmp_path: Path) -> None:
    tool = ROOT / "tools/fuzz_job_file.py"
    seconds = os.environ.get("SMDP_FUZZ_SECONDS", "600")
    ran = subprocess.run([sys.executable, tool, "--seconds", seconds], capture_output=True, text=True, check=False)
    print(ran.stdout)
    assert ran.returncode == 0, ran.stdout + ran.stderr[-4000:]
