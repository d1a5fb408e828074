"""Checks Dockerfiles: `check_dockerfiles.py FILE...` prints `file:line: RULE what is wrong` and ends with 1 for any.

The rules are those of hadolint (whose names they bear) that matter to an image people train with and pay for, and some
of the house's own (SMDP). A line `# check ignore=RULE (reason)` above an instruction lets it through, with a reason.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

INSTRUCTIONS = {
    "ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "ONBUILD", "RUN",
    "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR",
}  # fmt: skip
_SECRET = re.compile(r"(?i)passw|secret|token|api_?key|access_?key|private_?key|credential")
_IGNORE = re.compile(r"# check ignore=(?P<rules>[A-Z0-9,]+) \((?P<reason>[^)]{10,})\)")
_PIP_OPTION_WITH_VALUE = {"--find-links", "--target", "--wheel-dir", "--index-url", "--extra-index-url", "-r", "-c"}


@dataclass
class Instruction:
    """``line`` is where it begins, counted from 1; ``stage`` counts the FROMs so far."""

    name: str
    text: str
    line: int
    stage: int
    ignored: frozenset[str] = frozenset()


@dataclass
class Dockerfile:
    instructions: list[Instruction] = field(default_factory=list)

    def named(self, *names: str) -> list[Instruction]:
        return [one for one in self.instructions if one.name in names]

    @property
    def last_stage(self) -> int:
        return max((one.stage for one in self.instructions), default=0)


Finding = tuple[Instruction, str, str]
Rule = Callable[[Dockerfile], Iterator[Finding]]


def parse(text: str) -> Dockerfile:
    """Instructions with their continued lines joined and comments left out."""
    found, stage = Dockerfile(), 0
    pending, start, ignored = "", 0, frozenset[str]()
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if line.startswith("#") or (not line and pending):
            match = _IGNORE.fullmatch(line)
            ignored = frozenset(match["rules"].split(",")) if match else ignored
            continue
        if not line:
            continue
        start = start if pending else number
        pending += line.removesuffix("\\") + " "
        if line.endswith("\\"):
            continue
        name, _, rest = pending.strip().partition(" ")
        stage += name.upper() == "FROM"
        found.instructions.append(Instruction(name, rest.strip(), start, stage, ignored))
        pending, ignored = "", frozenset()
    return found


def check(text: str) -> list[tuple[int, str, str]]:
    """Line, rule and message of each finding, in order."""
    dockerfile = parse(text)
    found = [one for rule in _RULES for one in rule(dockerfile) if one[1] not in one[0].ignored]
    return sorted((instruction.line, rule, message) for instruction, rule, message in found)


def _known_instructions(file: Dockerfile) -> Iterator[Finding]:
    for one in file.instructions:
        if one.name not in INSTRUCTIONS:
            yield one, "DL1000", f"{one.name!r} is no instruction"


def _pinned_base(file: Dockerfile) -> Iterator[Finding]:
    defaults = dict(one.text.partition("=")[::2] for one in file.named("ARG"))
    stages: set[str] = set()
    for one in file.named("FROM"):
        words = [word for word in one.text.split() if not word.startswith("--")]
        image = re.sub(r"\$\{?(\w+)\}?", lambda found: defaults.get(found[1], ""), words[0])
        tag = image.rpartition("/")[2].partition(":")[2]
        if image not in stages and image != "scratch" and "@sha256:" not in image:
            if not tag:
                yield one, "DL3006", f"the base {words[0]!r} has no tag"
            elif tag == "latest":
                yield one, "DL3007", f"the base {words[0]!r} is whatever is latest"
        stages.add(image)  # told once
        if len(words) == 3 and words[1].upper() == "AS":
            stages.add(words[2])


def _add(file: Dockerfile) -> Iterator[Finding]:
    for one in file.named("ADD"):
        rule = "SMDP1" if re.search(r"\b(?:https?|git)://", one.text) else "DL3020"
        yield one, rule, "COPY says what it does; what comes from elsewhere is fetched and checked in a RUN"


def _apt(file: Dockerfile) -> Iterator[Finding]:
    for one in file.named("RUN"):
        if not re.search(r"\bapt(?:-get)? +(?:-\S+ +)*install\b", one.text):
            if re.search(r"\bapt-get +update\b", one.text):
                yield one, "DL3009", "lists are fetched where nothing is installed"
            continue
        if re.search(r"\bapt +(?:-\S+ +)*install\b", one.text):
            yield one, "DL3027", "apt is for people, apt-get for scripts"
        for install in re.findall(r"\bapt-get +[^&;|]*install\b[^&;|]*", one.text):
            if "-y" not in install:
                yield one, "DL3014", "apt-get install asks, and nobody is there: -y"
            if "--no-install-recommends" not in install:
                yield one, "DL3015", "recommended packages come along: --no-install-recommends"
        if not re.search(r"rm -rf [^&;|]*/var/lib/apt/lists", one.text):
            yield one, "DL3009", "the package lists stay in the layer: rm -rf /var/lib/apt/lists/*"


def _pip(file: Dockerfile) -> Iterator[Finding]:
    no_cache = any("PIP_NO_CACHE_DIR" in one.text for one in file.named("ENV"))
    for one in file.named("RUN"):
        for command in re.findall(r"\bpip3? install\b[^&;|]*", one.text):
            if "--no-cache-dir" not in command and not no_cache:
                yield one, "DL3042", "pip keeps a cache: --no-cache-dir"
            for package in _packages(command):
                if "==" not in package:
                    yield one, "DL3013", f"{package!r} is not pinned to a version"


def _packages(command: str) -> list[str]:
    """What a pip command installs, without options, files and folders."""
    words = [word.strip("\"'") for word in command.split()[2:]]
    found, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word in _PIP_OPTION_WITH_VALUE:
            skip = True
        elif word and not word.startswith(("-", "$", "/", ".")) and "/" not in word and not word.endswith(".whl"):
            found.append(word)
    return found


def _shell(file: Dockerfile) -> Iterator[Finding]:
    strict = False
    for one in file.instructions:
        if one.name == "FROM":
            strict = False
        if one.name == "SHELL":
            strict = "pipefail" in one.text
        if one.name == "RUN" and re.search(r"[^|]\|[^|]", one.text) and not strict:
            yield one, "DL4006", "a failure before the pipe is not seen: SHELL with -o pipefail"
        if one.name == "RUN" and re.match(r"(?:--\S+ +)*cd ", one.text):
            yield one, "DL3003", "WORKDIR changes the folder"
        if one.name == "RUN" and re.search(r"\bsudo\b", one.text):
            yield one, "DL3004", "sudo does odd things in a build"


def _folders(file: Dockerfile) -> Iterator[Finding]:
    for one in file.named("WORKDIR"):
        if not one.text.startswith(("/", "$")):
            yield one, "DL3000", "a WORKDIR that is not absolute hangs on what came before"
    for one in file.instructions:
        if one.name in ("COPY", "ADD", "WORKDIR", "VOLUME") and "/opt/ml" in one.text:
            yield one, "SMDP2", "the platform mounts over /opt/ml"


def _final_stage(file: Dockerfile) -> Iterator[Finding]:
    last = [one for one in file.instructions if one.stage == file.last_stage]
    if not last:
        return
    for name in ("USER", "WORKDIR", "LABEL", "CMD"):
        if not any(one.name == name for one in last):
            yield last[0], "SMDP3", f"the final stage does not say its {name}"
    for one in last:
        if one.name in ("CMD", "ENTRYPOINT") and not one.text.startswith("["):
            yield one, "DL3025", "the shell form does not hand signals on: use the JSON form"
        if one.name == "ENTRYPOINT" and "tini" in one.text:
            yield one, "SMDP4", "tini takes the platform's argument `train` for its own"
        if one.name == "COPY" and not re.search(r"--from=\S+", one.text):
            yield one, "SMDP5", "the final stage takes only what an earlier stage has made"
        if one.name == "RUN" and re.search(r"\b(?:g\+\+|gcc|build-essential|clang|cmake|\S+-dev)\b", one.text):
            yield one, "SMDP6", "a compiler or headers in the final stage"


def _secrets(file: Dockerfile) -> Iterator[Finding]:
    for one in file.named("ARG", "ENV", "LABEL"):
        for name in re.findall(r"(?:^|\s)([\w.]+)(?==|\s|$)", one.text):
            if _SECRET.search(name):
                yield one, "SMDP7", f"{name} would stay in the image for everybody to read"
    for one in file.instructions:
        if re.search(r"://[^/\s\"'@$]+:[^/\s\"'@$]+@", one.text):
            yield one, "SMDP7", "a login in an address stays in the image for everybody to read"


_RULES: tuple[Rule, ...] = (
    _known_instructions, _pinned_base, _add, _apt, _pip, _shell, _folders, _final_stage, _secrets,
)  # fmt: skip


def main(paths: list[str]) -> int:
    count = 0
    for path in paths:
        for line, rule, message in check(Path(path).read_text()):
            print(f"{path}:{line}: {rule} {message}")
            count += 1
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
