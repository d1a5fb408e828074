"""Check Dockerfiles: `check_dockerfiles.py FILE...` prints `file:line: RULE message`, and exits with 1 for any message.

The rules are those of hadolint, with its names, that matter for a training image, and some of our own (SMDP). A line
`# check ignore=RULE (reason)` above an instruction disables a rule for it.
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
    """One instruction.

    Args:
        line: its first line, from 1.
        stage: the number of FROMs so far.
    """

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


Problem = tuple[Instruction, str, str]
Rule = Callable[[Dockerfile], Iterator[Problem]]


def parse(text: str) -> Dockerfile:
    """Instructions with their continued lines joined and comments left out."""
    dockerfile, stage = Dockerfile(), 0
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
        dockerfile.instructions.append(Instruction(name, rest.strip(), start, stage, ignored))
        pending, ignored = "", frozenset()
    return dockerfile


def check(text: str) -> list[tuple[int, str, str]]:
    """Line, rule and message of each problem, in order."""
    dockerfile = parse(text)
    found = [one for rule in _RULES for one in rule(dockerfile) if one[1] not in one[0].ignored]
    return sorted((instruction.line, rule, message) for instruction, rule, message in found)


def _known_instructions(file: Dockerfile) -> Iterator[Problem]:
    for one in file.instructions:
        if one.name not in INSTRUCTIONS:
            yield one, "DL1000", f"{one.name!r} is not an instruction"


def _pinned_base(file: Dockerfile) -> Iterator[Problem]:
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
                yield one, "DL3007", f"the base {words[0]!r} changes with every release: write a version"
        stages.add(image)  # report it once
        if len(words) == 3 and words[1].upper() == "AS":
            stages.add(words[2])


def _add(file: Dockerfile) -> Iterator[Problem]:
    for one in file.named("ADD"):
        rule = "SMDP1" if re.search(r"\b(?:https?|git)://", one.text) else "DL3020"
        yield one, rule, "use COPY for files, and download and verify remote files in a RUN"


def _apt(file: Dockerfile) -> Iterator[Problem]:
    for one in file.named("RUN"):
        if not re.search(r"\bapt(?:-get)? +(?:-\S+ +)*install\b", one.text):
            if re.search(r"\bapt-get +update\b", one.text):
                yield one, "DL3009", "package lists are downloaded, but nothing is installed"
            continue
        if re.search(r"\bapt +(?:-\S+ +)*install\b", one.text):
            yield one, "DL3027", "apt is for interactive use: use apt-get"
        for install in re.findall(r"\bapt-get +[^&;|]*install\b[^&;|]*", one.text):
            if "-y" not in install:
                yield one, "DL3014", "apt-get install waits for an answer: add -y"
            if "--no-install-recommends" not in install:
                yield one, "DL3015", "recommended packages are installed too: add --no-install-recommends"
        if not re.search(r"rm -rf [^&;|]*/var/lib/apt/lists", one.text):
            yield one, "DL3009", "the package lists stay in the layer: add rm -rf /var/lib/apt/lists/*"


def _pip(file: Dockerfile) -> Iterator[Problem]:
    no_cache = any("PIP_NO_CACHE_DIR" in one.text for one in file.named("ENV"))
    for one in file.named("RUN"):
        for command in re.findall(r"\bpip3? install\b[^&;|]*", one.text):
            if "--no-cache-dir" not in command and not no_cache:
                yield one, "DL3042", "the pip cache stays in the layer: add --no-cache-dir"
            for package in _packages(command):
                if "==" not in package:
                    yield one, "DL3013", f"{package!r} is not pinned to a version"


def _packages(command: str) -> list[str]:
    """The packages of a pip command, without options, files and folders."""
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


def _shell(file: Dockerfile) -> Iterator[Problem]:
    strict = False
    for one in file.instructions:
        if one.name == "FROM":
            strict = False
        if one.name == "SHELL":
            strict = "pipefail" in one.text
        if one.name == "RUN" and re.search(r"[^|]\|[^|]", one.text) and not strict:
            yield one, "DL4006", "a failure before the pipe is ignored: use SHELL with -o pipefail"
        if one.name == "RUN" and re.match(r"(?:--\S+ +)*cd ", one.text):
            yield one, "DL3003", "use WORKDIR to change the folder"
        if one.name == "RUN" and re.search(r"\bsudo\b", one.text):
            yield one, "DL3004", "do not use sudo in a build"


def _folders(file: Dockerfile) -> Iterator[Problem]:
    for one in file.named("WORKDIR"):
        if not one.text.startswith(("/", "$")):
            yield one, "DL3000", "a relative WORKDIR depends on earlier instructions: use an absolute path"
    for one in file.instructions:
        if one.name in ("COPY", "ADD", "WORKDIR", "VOLUME") and "/opt/ml" in one.text:
            yield one, "SMDP2", "the platform mounts its own folder at /opt/ml"


def _final_stage(file: Dockerfile) -> Iterator[Problem]:
    last = [one for one in file.instructions if one.stage == file.last_stage]
    if not last:
        return
    for name in ("USER", "WORKDIR", "LABEL", "CMD"):
        if not any(one.name == name for one in last):
            yield last[0], "SMDP3", f"the final stage has no {name}"
    for one in last:
        if one.name in ("CMD", "ENTRYPOINT") and not one.text.startswith("["):
            yield one, "DL3025", "the shell form does not forward signals: use the JSON form"
        if one.name == "ENTRYPOINT" and "tini" in one.text:
            yield one, "SMDP4", "tini reads the platform's argument `train` as its own"
        if one.name == "COPY" and not re.search(r"--from=\S+", one.text):
            yield one, "SMDP5", "the final stage copies only from earlier stages: use --from"
        if one.name == "RUN" and re.search(r"\b(?:g\+\+|gcc|build-essential|clang|cmake|\S+-dev)\b", one.text):
            yield one, "SMDP6", "the final stage contains a compiler or headers"


def _secrets(file: Dockerfile) -> Iterator[Problem]:
    for one in file.named("ARG", "ENV", "LABEL"):
        for name in re.findall(r"(?:^|\s)([\w.]+)(?==|\s|$)", one.text):
            if _SECRET.search(name):
                yield one, "SMDP7", f"{name} stays in the image, readable for all its users"
    for one in file.instructions:
        if re.search(r"://[^/\s\"'@$]+:[^/\s\"'@$]+@", one.text):
            yield one, "SMDP7", "a login in an address stays in the image, readable for all its users"


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
