"""Finds the call that makes an estimator or a model trainer in a script or notebook, and the call that starts it."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smdp_launch.draft.sdk_call.changed import changed
from smdp_launch.draft.sdk_call.values import Made, Values
from smdp_launch.source.syntax.scopes import dotted, tail

#: Classes of the SDK, version 2, and of version 3.
ESTIMATORS = ("PyTorch", "TensorFlow", "HuggingFace", "Estimator")
TRAINER = "ModelTrainer"
TUNER = "HyperparameterTuner"
#: The order of the arguments in version 2 (sagemaker 2.257.7); those after them are always named.
_POSITIONS = {
    "PyTorch": (
        *("entry_point", "framework_version", "py_version", "source_dir", "hyperparameters", "image_uri"),
        "distribution",
    ),
    "TensorFlow": ("py_version", "framework_version", "model_dir", "image_uri", "distribution"),
    "HuggingFace": (
        *("py_version", "entry_point", "transformers_version", "tensorflow_version", "pytorch_version", "source_dir"),
        *("hyperparameters", "image_uri", "distribution"),
    ),
    "Estimator": (
        *("image_uri", "role", "instance_count", "instance_type", "keep_alive_period_in_seconds", "volume_size"),
        *("volume_kms_key", "max_run", "input_mode", "output_path", "output_kms_key", "base_job_name"),
        *("sagemaker_session", "hyperparameters", "tags", "subnets", "security_group_ids"),
    ),
}
#: A call with one of these arguments is the SDK's, without an import of it: other packages have classes of these names.
_ARGUMENTS = frozenset(
    {"entry_point", "source_dir", "instance_type", "train_instance_type", "image_uri", "training_image", "source_code"}
)
#: Larger files are not read.
_LARGEST = 20 << 20
_REGIONS = ("region", "aws_region", "region_name")
_MAGIC = re.compile(r"^\s*[%!?]")


class Unreadable(Exception):
    """The file has no call that can be read; the message says why."""


@dataclass(frozen=True)
class Found:
    """A call with what belongs to it.

    Args:
        made: the call that makes the estimator or trainer, with the changes of the lines up to the start.
        place: such as ``line 12`` or ``cell 3, line 4``.
        started: the call of ``fit`` or ``train``; None without one, or if it is not clear which one it is.
        starts: the places of the calls that may be it.
        tuner: the place of the call that makes its ``HyperparameterTuner``; None without one.
        with_: the calls of ``with_retry_strategy`` and similar methods, by name.
        region: the region that the file names; None without one.
        others: the places of more such calls.
        skipped: the places of cells that are no Python.
        lost: changes of the object that are not in ``made``, with their places.
    """

    made: Made
    place: str
    started: Made | None
    starts: tuple[str, ...]
    tuner: str | None
    with_: dict[str, Made]
    region: str | None
    others: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Cell:
    first: int
    number: int


def find_call(path: Path) -> Found:
    """The first estimator or model trainer in a script or notebook.

    Raises:
        Unreadable: there is none, or the file cannot be read.
    """
    tree, cells, skipped = _read(path)
    values = Values(tree, lambda line: _place(line, cells))
    named = sorted(_named_as_in_the_sdk(tree), key=lambda one: (one.lineno, one.col_offset))
    imported = _imported(tree)
    calls = [one for one in named if _is_of_the_sdk(one, imported)]
    recipes = [f"{_place(one.lineno, cells)} (from_recipe, which is not converted)" for one in _recipes(tree)]
    if not calls:
        what = f"{', '.join(ESTIMATORS)} or {TRAINER} of the SageMaker Python SDK"
        other = f"; {_unlike_the_sdk(named[0], cells)}" if named else ""
        other = f"; {recipes[0]}" if recipes else other
        raise Unreadable(f"{path} has no call of {what}{other}{_but(skipped)}")
    first = calls[0]
    chain = {name: values.arguments(call) for name, call in _chained(tree, first).items()}
    tuners = _tuners(tree, first, calls[1:])
    starts = _starts(tree, first, calls[1:], tuners)
    start = starts[0] if len(starts) == 1 else None
    started = values.arguments(start) if start is not None else None
    region = _region(tree, values)
    made, lost = changed(tree, values, _named(tail(first.func), values.arguments(first)), first, calls[1:], start)
    return Found(
        made,
        _place(first.lineno, cells),
        started,
        tuple(_place(_line(one), cells) for one in starts),
        _place(tuners[0].lineno, cells) if tuners else None,
        chain,
        region,
        (*(_place(one.lineno, cells) for one in calls[1:]), *recipes),
        tuple(skipped),
        tuple(dict.fromkeys((*lost, *values.lost))),
    )


def _but(skipped: list[str]) -> str:
    return f"; {', '.join(skipped)} cannot be read as Python" if skipped else ""


def _read(path: Path) -> tuple[ast.Module, list[_Cell], list[str]]:
    try:
        if path.stat().st_size > _LARGEST:
            raise Unreadable(f"{path} is larger than {_LARGEST >> 20} MiB")
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise Unreadable(f"{path} cannot be read: {error}") from error
    if path.suffix != ".ipynb":
        try:
            return ast.parse(text), [], []
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise Unreadable(f"{path} is no Python: {error}") from error
    return _read_notebook(path, text)


def _read_notebook(path: Path, text: str) -> tuple[ast.Module, list[_Cell], list[str]]:
    try:
        listed = json.loads(text)["cells"]
        sources = [(number, _source(one)) for number, one in enumerate(listed, 1) if one["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Unreadable(f"{path} is no notebook of Jupyter: {error!r}") from error
    module, cells, skipped = ast.Module([], []), [], []
    line = 0
    for number, source in sources:
        cells.append(_Cell(line, number))
        try:
            parsed = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            skipped.append(f"cell {number}")
            parsed = ast.Module([], [])
        ast.increment_lineno(parsed, line)
        module.body += parsed.body
        line += source.count("\n") + 1
    return module, cells, skipped


def _source(cell: Any) -> str:
    """The Python of a cell. Commands of IPython are left out, and a cell that is one as a whole."""
    source = cell["source"]
    text = source if isinstance(source, str) else "".join(source)
    if text.lstrip().startswith("%%"):
        return "\n" * text.count("\n")
    return "\n".join("" if _MAGIC.match(line) else line for line in text.split("\n"))


def _named_as_in_the_sdk(tree: ast.Module) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and tail(node.func) in (*ESTIMATORS, TRAINER):
            yield node


def _recipes(tree: ast.Module) -> list[ast.Call]:
    calls = (one for one in ast.walk(tree) if isinstance(one, ast.Call))
    return sorted((one for one in calls if dotted(one.func).endswith(f"{TRAINER}.from_recipe")), key=_line)


def _imported(tree: ast.Module) -> set[str]:
    """The names that the file imports from the SDK."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {one.asname or "sagemaker" for one in node.names if one.name.split(".")[0] == "sagemaker"}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "sagemaker":
            names |= {one.asname or one.name for one in node.names}
    return names


def _is_of_the_sdk(call: ast.Call, imported: set[str]) -> bool:
    named = {one.arg for one in call.keywords}
    return bool(named & _ARGUMENTS) or None in named or dotted(call.func).partition(".")[0] in imported


def _unlike_the_sdk(call: ast.Call, cells: list[_Cell]) -> str:
    names = ", ".join(sorted(_ARGUMENTS))
    return (
        f"the {tail(call.func)} in {_place(call.lineno, cells)} is not imported from sagemaker, and has none of these "
        f"arguments by name: {names}"
    )


def _place(line: int, cells: list[_Cell]) -> str:
    before = [one for one in cells if one.first < line]
    return f"cell {before[-1].number}, line {line - before[-1].first}" if before else f"line {line}"


def _names_of(tree: ast.Module, made: ast.Call) -> set[str]:
    """The names that are assigned the object of the call ``made``, or of a chain of methods on it."""
    return {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and made in ast.walk(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _methods(tree: ast.Module, made: ast.Call) -> Iterator[ast.Call]:
    """The calls of methods of the object that ``made`` makes, in the order of the file."""
    names = _names_of(tree, made)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node is not made:
            owner = node.func.value
            while isinstance(owner, ast.Call) and owner is not made and isinstance(owner.func, ast.Attribute):
                owner = owner.func.value
            if owner is made or (isinstance(owner, ast.Name) and owner.id in names):
                yield node


def _chained(tree: ast.Module, made: ast.Call) -> dict[str, ast.Call]:
    return {tail(one.func): one for one in _methods(tree, made) if tail(one.func).startswith("with_")}


def _named(name: str, made: Made) -> Made:
    """The call with names for its positional arguments."""
    # Version 1 of the SDK has the same first argument, and another order of the others.
    is_first = any(one.startswith("train_") for one in made.named)
    names = _POSITIONS.get(name, ())[: 1 if is_first else None]
    named = dict(zip(names, made.given, strict=False))
    places = dict.fromkeys(named, made.place) | dict(made.places)
    # Further positional arguments are not read.
    rest = made.given[len(names) :]
    return Made(name, rest, named | dict(made.named), made.place, places)


def _tuners(tree: ast.Module, made: ast.Call, others: list[ast.Call]) -> list[ast.Call]:
    """The calls that make a tuner of the object that ``made`` makes, as far as is known."""
    calls = (one for one in ast.walk(tree) if isinstance(one, ast.Call))
    tuners = [one for one in calls if TUNER in (tail(one.func), dotted(one.func).rpartition(".")[0].split(".")[-1])]
    return [one for one in tuners if _tunes(tree, one, made) or not any(_tunes(tree, one, each) for each in others)]


def _tunes(tree: ast.Module, tuner: ast.Call, made: ast.Call) -> bool:
    names = _names_of(tree, made)
    return any(node is made or (isinstance(node, ast.Name) and node.id in names) for node in ast.walk(tuner))


def _starts(tree: ast.Module, made: ast.Call, others: list[ast.Call], tuners: list[ast.Call]) -> list[ast.Call]:
    """The first call that starts the object or its tuner. Without one, the calls that start no other known object:
    the object may come from a function or a list."""
    method = "train" if tail(made.func) == TRAINER else "fit"
    for owner in (made, *tuners):
        own = [one for one in _methods(tree, owner) if tail(one.func) == method]
        if own:
            return [min(own, key=_line)]
    theirs = {one for other in others for one in _methods(tree, other)}
    calls = (one for one in ast.walk(tree) if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute))
    return sorted((one for one in calls if tail(one.func) == method and one not in theirs), key=_line)


def _line(call: ast.Call) -> int:
    """The line of a method's name: a chain of methods begins lines above it."""
    return call.func.end_lineno or call.lineno


def _region(tree: ast.Module, values: Values) -> str | None:
    """The only value of ``region_name=`` in calls, and of the name ``region``."""
    found = set()
    for node in ast.walk(tree):
        names = node.targets if isinstance(node, ast.Assign) else []
        is_region = isinstance(node, ast.keyword) and node.arg == "region_name"
        if is_region or any(isinstance(one, ast.Name) and one.id in _REGIONS for one in names):
            value = values.of(node.value)  # type: ignore[attr-defined]
            is_known = isinstance(value, str) and re.fullmatch(r"[a-z]{2,}(-[a-z]+)+-\d+", value)
            found.add(value if is_known else None)
    return found.pop() if len(found) == 1 else None
