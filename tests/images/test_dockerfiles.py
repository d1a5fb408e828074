"""The check of Dockerfiles reports errors, and reports none in the project's Dockerfiles."""

from __future__ import annotations

import re

import pytest

from tests.conftest import ROOT
from tools.check_dockerfiles import check

SOUND = """\
ARG BASE=debian:12
FROM ${BASE} AS build
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
COPY src /src
RUN pip install --no-cache-dir pip==25.3
FROM ${BASE}
COPY --from=build /built /built
USER root
WORKDIR /
LABEL a="b"
CMD ["train"]
"""
COMPILER = "RUN apt-get update && apt-get install -y --no-install-recommends gcc && rm -rf /var/lib/apt/lists/*"


def test_correct_dockerfile_passes() -> None:
    assert check(SOUND) == []


@pytest.mark.parametrize("name", ["pytorch/Dockerfile", "pytorch/Dockerfile.dlc", "tensorflow/Dockerfile"])
def test_project_dockerfiles_pass(name: str) -> None:
    assert check((ROOT / "containers" / name).read_text()) == []


def test_final_stages_differ_only_in_labels() -> None:
    """The last stages of the frameworks differ only in their labels."""

    def last(framework: str) -> list[str]:
        text = (ROOT / "containers" / framework / "Dockerfile").read_text()
        said = re.compile(r"LABEL .*|ARG \w+=.*|# .*|    (?:smdp|org)\..*")
        return [line for line in text[text.rindex("FROM ") :].splitlines() if not said.fullmatch(line)]

    assert last("tensorflow") == last("pytorch")


@pytest.mark.parametrize(
    ("before", "after", "rule", "line"),
    [
        ("BASE=debian:12", "BASE=debian", "DL3006", 2),
        ("BASE=debian:12", "BASE=debian:latest", "DL3007", 2),
        ("COPY src /src", "ADD https://example.com/a.tar /src", "SMDP1", 5),
        ("COPY src /src", "ADD src /src", "DL3020", 5),
        (" && rm -rf /var/lib/apt/lists/*", "", "DL3009", 4),
        (" -y ", " ", "DL3014", 4),
        (" --no-install-recommends", "", "DL3015", 4),
        ("apt-get install", "apt install", "DL3027", 4),
        ("pip==25.3", "requests", "DL3013", 6),
        ("--no-cache-dir ", "", "DL3042", 6),
        ('SHELL ["/bin/bash", "-o", "pipefail", "-c"]', "RUN cat a | sort", "DL4006", 3),
        ("COPY src /src", "RUN cd /tmp && ls", "DL3003", 5),
        ("COPY src /src", "RUN sudo ls", "DL3004", 5),
        ("WORKDIR /\n", "WORKDIR here\n", "DL3000", 10),
        ("WORKDIR /\n", "WORKDIR /opt/ml/code\n", "SMDP2", 10),
        ("USER root\n", "", "SMDP3", 7),
        ("WORKDIR /\n", "", "SMDP3", 7),
        ("CMD [", "CMD train [", "DL3025", 12),
        ('LABEL a="b"', 'LABEL a="b"\nENTRYPOINT ["tini", "--"]', "SMDP4", 12),
        ("COPY --from=build /built /built", "COPY . /src", "SMDP5", 8),
        ("USER root", f"{COMPILER}\nUSER root", "SMDP6", 9),
        ("COPY src /src", "ARG HUB_TOKEN", "SMDP7", 5),
        ("COPY src /src", "ENV DB_PASSWORD=abc", "SMDP7", 5),
        ("COPY src /src", "RUN curl https://me:word@example.com/", "SMDP7", 5),
        ("COPY src /src", "COPPY src /src", "DL1000", 5),
    ],
)  # fmt: skip
def test_each_error_is_reported_at_its_line(before: str, after: str, rule: str, line: int) -> None:
    assert before in SOUND
    found = [(at, name) for at, name, _ in check(SOUND.replace(before, after))]
    assert found == [(line, rule)]


def test_exception_needs_a_reason() -> None:
    def rules(comment: str) -> list[str]:
        text = SOUND.replace("COPY src /src", f"{comment}\nRUN cd /tmp && ls")
        return [name for _, name, _ in check(text)]

    assert rules("# check ignore=DL3003 (the tool insists on it)") == []
    assert rules("# check ignore=DL3003") == ["DL3003"]
    assert rules("# check ignore=DL3004 (another rule's reason)") == ["DL3003"]


def test_line_is_start_of_instruction() -> None:
    text = SOUND.replace("COPY src /src", "# a comment\nRUN true \\\n    # within\n    && cd x \\\n\n    && sudo ls")
    assert [(at, name) for at, name, _ in check(text)] == [(6, "DL3004")]
