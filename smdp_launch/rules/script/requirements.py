"""Requirements that put something else in the place of what the image and its engine were built with."""

from __future__ import annotations

import re
from collections.abc import Iterator

from smdp_launch.catalog.frameworks import TITLES, build, numpy_2_since, parts
from smdp_launch.diagnostics import Severity, Span
from smdp_launch.rules.base import image_contents
from smdp_launch.rules.base.facts import Facts, Finding, rule
from smdp_launch.source.requirements import REQUIREMENTS_FILE, Requirement

_PACKAGES = {"pytorch": ("torch",), "tensorflow": ("tensorflow", "tensorflow-gpu", "tensorflow-cpu")}
#: Packages that are made for one CUDA, whose major version their name ends with: nvidia-cublas-cu12, cupy-cuda11x,
#: cupy-cuda118, nvidia-dali-cuda120.
_FOR_CUDA = re.compile(r"(?:nvidia-.+|cupy|torch-tensorrt|onnxruntime-gpu)-cu(?:da)?(1\d)(?:\d|x)?")
_RELEASE = re.compile(r"\d+(\.\d+){0,5}")


@rule("SMDP449", "script.source", "framework.name", "framework.version", "engine", "image", severity=Severity.WARNING)
def packages_of_the_image(facts: Facts) -> Iterator[Finding]:
    for one in facts.requirements.packages:
        if ";" in one.text or not one.text:
            continue  # what holds under a condition, or is a URL, is the writer's decision
        problem = _framework_problem(facts, one) or _cuda_problem(facts, one) or _numpy_problem(facts, one)
        if problem is not None:
            yield _finding(facts, one, *problem)


def _framework_problem(facts: Facts, one: Requirement) -> tuple[str, str] | None:
    name = facts.spec.framework.name
    version = _version(facts)
    if one.name not in _PACKAGES[name] or version is None:
        return None
    title = TITLES[name]
    replaces = f"pip replaces {title} {version}, for which the image and its engine were built"
    if one.name == "tensorflow-cpu":
        return f"{one.text} takes the place of the image's TensorFlow for GPUs", "leave the line out"
    local = next((value.partition("+")[2] for _, value in one.clauses if "+" in value), "")
    cuda = image_contents.cuda(facts)
    if local and (local == "cpu" or (cuda is not None and local != f"cu{cuda.replace('.', '')}")):
        return f"{one.text} is a build for {local}: {replaces}", "leave the line out"
    if not _allows(one, version):
        help_ = "leave the line out"
        if one.pin in image_contents.suitable_versions(facts):
            help_ += f', or write `version: "{one.pin}"` in `framework`'
        return f"{one.text}: {replaces}", help_
    return None


def _cuda_problem(facts: Facts, one: Requirement) -> tuple[str, str] | None:
    match, cuda = _FOR_CUDA.fullmatch(one.name), image_contents.cuda(facts)
    if match is None or cuda is None or cuda.split(".")[0] == match[1]:
        return None
    message = f"{one.name} is made for CUDA {match[1]}, and the image has CUDA {cuda}"
    return message, f"require the package for CUDA {cuda.split('.')[0]}, or leave the line out"


def _numpy_problem(facts: Facts, one: Requirement) -> tuple[str, str] | None:
    name, version = facts.spec.framework.name, _version(facts)
    if one.name != "numpy" or version is None or parts(version) >= parts(numpy_2_since(name)):
        return None
    # Any version of NumPy 1 that the clauses allow is one of these, or close enough to one.
    if any(_allows(one, f"1.{minor}.{patch}") for minor in range(30) for patch in (0, 1, 2, 3, 4, 5, 6)):
        return None
    message = f"{one.text} asks for NumPy 2, and {TITLES[name]} {version} was compiled for NumPy 1"
    return message, "write numpy<2"


def _version(facts: Facts) -> str | None:
    """The framework's whole version in the job's image, if there is such a build."""
    framework = facts.spec.framework
    if facts.spec.engine == "native":
        ours = image_contents.native_version(framework.name, framework.version)
        if ours is not None:
            return ours
    found = build(framework.name, framework.version)
    return found.version if found is not None else None


def _allows(one: Requirement, version: str) -> bool:
    """Do the clauses allow ``version``? Yes where one of them is of a form that is not known."""
    return all(_clause_allows(operator, value, version) for operator, value in one.clauses)


def _clause_allows(operator: str, value: str, version: str) -> bool:
    wanted, has_wildcard = value.partition("+")[0].removesuffix(".*"), value.endswith(".*")
    if not _RELEASE.fullmatch(wanted):
        return True
    asked, there = parts(wanted), parts(version)
    length = max(len(asked), len(there))
    whole, have = asked + (0,) * (length - len(asked)), there + (0,) * (length - len(there))
    is_same = there[: len(asked)] == asked if has_wildcard else whole == have
    return {
        "==": is_same,
        "===": is_same,
        "!=": not is_same,
        "~=": have >= whole and there[: len(asked) - 1] == asked[:-1],
        ">=": have >= whole,
        "<=": have <= whole,
        ">": have > whole,
        "<": have < whole,
    }[operator]


def _finding(facts: Facts, one: Requirement, message: str, help_: str) -> Finding:
    file = str(facts.source.folder / REQUIREMENTS_FILE) if facts.source is not None else REQUIREMENTS_FILE
    return Finding((), message, help_, text=one.text, place=Span(file, one.line, 1, len(one.text) + 1, one.text))
