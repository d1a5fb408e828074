"""Finds the call that makes an estimator or a model trainer in a script or notebook, and the call that starts it."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smdp_launch.draft.sdk_call.values import Made, Values
from smdp_launch.source.syntax.scopes import tail

#: Classes of the SDK, version 2, and of version 3.
ESTIMATORS = ("PyTorch", "TensorFlow", "HuggingFace", "Estimator")
TRAINER = "ModelTrainer"
#: A call with one of these arguments is the SDK's: other packages have classes of these names.
_ARGUMENTS = frozenset(
    {"entry_point", "source_dir", "instance_type", "train_instance_type", "image_uri", "training_image", "source_code"}
)
#: Larger files are not read.
_LARGEST = 20 << 20
_MAGIC = re.compile(r"^\s*[%!?]")


class Unreadable(Exception):
    """The file has no call that can be read; the message says why."""


@dataclass(frozen=True)
class Found:
    """A call with what belongs to it.

    Args:
        made: the call that makes the estimator or trainer.
        place: such as ``line 12`` or ``cell 3, line 4``.
        started: the call of ``fit`` or ``train``; None without one.
        with_: the calls of ``with_retry_strategy`` and similar methods, by name.
        region: the region that the file names; None without one.
        others: the places of more such calls.
        skipped: the places of cells that are no Python.
    """

    made: Made
    place: str
    started: Made | None
    with_: dict[str, Made]
    region: str | None
    others: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()


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
    values = Values(tree)
    calls = sorted(_making(tree), key=lambda one: (one.lineno, one.col_offset))
    if not calls:
        what = f"{', '.join(ESTIMATORS)} or {TRAINER} of the SageMaker Python SDK"
        raise Unreadable(f"{path} has no call of {what}{_but(skipped)}")
    first = calls[0]
    made = values.of(first)
    chain = {name: _arguments(call, values) for name, call in _chained(tree, first).items()}
    return Found(
        Made(tail(first.func), made.given, made.named),
        _place(first.lineno, cells),
        _started(tree, first, values),
        chain,
        _region(tree, values),
        tuple(_place(one.lineno, cells) for one in calls[1:]),
        tuple(skipped),
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


def _making(tree: ast.Module) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and tail(node.func) in (*ESTIMATORS, TRAINER):
            named = {one.arg for one in node.keywords}
            if named & _ARGUMENTS or None in named:
                yield node


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


def _started(tree: ast.Module, made: ast.Call, values: Values) -> Made | None:
    starts = [one for one in _methods(tree, made) if tail(one.func) in ("fit", "train")]
    return _arguments(starts[0], values) if starts else None


def _arguments(call: ast.Call, values: Values) -> Made:
    given = [values.of(one) for one in call.args if not isinstance(one, ast.Starred)]
    return Made(tail(call.func), given, {one.arg: values.of(one.value) for one in call.keywords if one.arg})


def _region(tree: ast.Module, values: Values) -> str | None:
    """The value of ``region_name=`` in a call, or of the name ``region``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            names = {one.id for one in node.targets if isinstance(one, ast.Name)}
            found = values.of(node.value) if names & {"region", "aws_region", "region_name"} else None
        else:
            is_region = isinstance(node, ast.keyword) and node.arg == "region_name"
            found = values.of(node.value) if is_region and isinstance(node, ast.keyword) else None
        if isinstance(found, str) and re.fullmatch(r"[a-z]{2,}(-[a-z]+)+-\d+", found):
            return found
    return None
