"""Requirements that replace packages of the image, or that pip cannot find."""

from __future__ import annotations

import re
from collections.abc import Iterator
from posixpath import normpath

from smdp_launch.catalog.engines import TORCH_DISTRIBUTED
from smdp_launch.catalog.frameworks import TITLES, build, native_image, numpy_2_since, parts
from smdp_launch.diagnostics import Severity, Span
from smdp_launch.rules.base import image_contents
from smdp_launch.rules.base.facts import Facts, Problem, rule
from smdp_launch.source.ignore import IGNORE_FILE
from smdp_launch.source.requirements import REQUIREMENTS_FILE, Requirement

_PACKAGES = {"pytorch": ("torch",), "tensorflow": ("tensorflow", "tensorflow-gpu", "tensorflow-cpu")}
#: Packages that are made for one CUDA, whose major version their name ends with: nvidia-cublas-cu12, cupy-cuda11x,
#: cupy-cuda118, nvidia-dali-cuda120.
_FOR_CUDA = re.compile(r"(?:nvidia-.+|cupy|torch-tensorrt|onnxruntime-gpu)-cu(?:da)?(1\d)(?:\d|x)?")
_REMOVE = "remove the line"
_MOVE = "correct the path, or move the file or folder into the source folder"


@rule("SMDP449", "script.source", "framework.name", "framework.version", "engine", "image", severity=Severity.WARNING)
def packages_of_the_image(facts: Facts) -> Iterator[Problem]:
    for one in facts.requirements.packages:
        if ";" in one.text or not one.text:
            continue  # a conditional requirement or a URL is not checked
        texts = _framework_problem(facts, one) or _cuda_problem(facts, one) or _numpy_problem(facts, one)
        if texts is not None:
            yield _problem(facts, one, *texts)


@rule("SMDP458", "script.source")
def local_requirements(facts: Facts) -> Iterator[Problem]:
    tree = facts.source
    if facts.entry_kind not in ("python", None):
        return  # pip does not run for a command
    for path, line, text in facts.requirements.paths if tree is not None and tree.complete else ():
        name = normpath(path)
        if (
            tree is None
            or name == "."
            or any(one.name == name or one.name.startswith(f"{name}/") for one in tree.files)
        ):
            continue
        message, help_ = f"{REQUIREMENTS_FILE} names {path}, which is not in the source folder", _MOVE
        if tree.ignored.includes(name) or tree.ignored.includes(f"{name}/"):
            message = f"{REQUIREMENTS_FILE} names {path}, which is not uploaded with the source folder"
            help_ = f"change {IGNORE_FILE} so that it does not exclude {name}"
        place = Span(str(tree.folder / REQUIREMENTS_FILE), line, 1, len(text) + 1, text)
        yield Problem((), f"{message}: pip fails on every host", help_, text=text, place=place)


def _framework_problem(facts: Facts, one: Requirement) -> tuple[str, str] | None:
    name = facts.spec.framework.name
    version = _version(facts)
    if one.name not in _PACKAGES[name] or version is None:
        return None
    title = TITLES[name]
    replaces = f"pip replaces {title} {version}"
    replaces += (
        " of the image" if facts.spec.engine in TORCH_DISTRIBUTED else ", which the image's engine was built for"
    )
    if one.name == "tensorflow-cpu":
        return f"{one.text} replaces the image's TensorFlow for GPUs", _REMOVE
    local = next((value.partition("+")[2] for _, value in one.clauses if "+" in value), "")
    cuda = image_contents.cuda(facts)
    if local and (local == "cpu" or (cuda is not None and local != f"cu{cuda.replace('.', '')}")):
        return f"{one.text} is a build for {local}: {replaces}", _REMOVE
    if not one.allows(version):
        help_ = _REMOVE
        if one.pin in image_contents.suitable_versions(facts):
            help_ += f', or write `version: "{one.pin}"` in `framework`'
        return f"{one.text}: {replaces}", help_
    return None


def _cuda_problem(facts: Facts, one: Requirement) -> tuple[str, str] | None:
    match, cuda = _FOR_CUDA.fullmatch(one.name), image_contents.cuda(facts)
    if match is None or cuda is None or cuda.split(".")[0] == match[1]:
        return None
    message = f"{one.name} is for CUDA {match[1]}, but the image has CUDA {cuda}"
    return message, f"require the package for CUDA {cuda.split('.')[0]}, or {_REMOVE}"


def _numpy_problem(facts: Facts, one: Requirement) -> tuple[str, str] | None:
    name, version = facts.spec.framework.name, _version(facts)
    if one.name != "numpy" or version is None or parts(version) >= parts(numpy_2_since(name)):
        return None
    # These cover every release of NumPy 1.
    if one.allows(*(f"1.{minor}.{patch}" for minor in range(30) for patch in range(7))):
        return None
    message = f"{one.text} requires NumPy 2, but {TITLES[name]} {version} was compiled for NumPy 1"
    return message, "write numpy<2"


def _version(facts: Facts) -> str | None:
    """The framework's full version in the job's image, if there is such a build."""
    framework = facts.spec.framework
    if facts.spec.engine == "native":
        is_full = framework.version.count(".") == 2
        return framework.version if is_full else native_image(framework.name, framework.version)
    build_ = build(framework.name, framework.version)
    return build_.version if build_ is not None else None


def _problem(facts: Facts, one: Requirement, message: str, help_: str) -> Problem:
    file = str(facts.source.folder / REQUIREMENTS_FILE) if facts.source is not None else REQUIREMENTS_FILE
    return Problem((), message, help_, text=one.text, place=Span(file, one.line, 1, len(one.text) + 1, one.text))
