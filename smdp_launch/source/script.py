"""What a training script says about itself, read without running it."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from smdp_launch.source.options import Option, constants, dotted, literal, options

#: Bytes. Nobody writes a longer script by hand, and one of this size takes about a second.
MAX_SCRIPT = 256 << 10

#: Packages that a script of the framework imports.
_FRAMEWORKS = {
    "torch": "pytorch",
    "torchvision": "pytorch",
    "pytorch_lightning": "pytorch",
    "lightning": "pytorch",
    "accelerate": "pytorch",
    "deepspeed": "pytorch",
    "tensorflow": "tensorflow",
    "keras": "tensorflow",
}
_LIBRARY = "smdistributed.dataparallel"
_GENERATIONS: dict[str, Literal["module", "backend", "tensorflow"]] = {
    f"{_LIBRARY}.torch.distributed": "module",
    f"{_LIBRARY}.torch.parallel": "module",
    f"{_LIBRARY}.torch.torch_smddp": "backend",
    f"{_LIBRARY}.tensorflow": "tensorflow",
}
_ENVIRON = {"os.environ.get", "os.getenv", "environ.get", "getenv", "os.environ", "environ"}
_PLATFORM_NAME = re.compile(r"(SM|SMDP|SAGEMAKER)_[A-Z0-9_.-]*[A-Z0-9]")
_CHANNEL_FOLDER = re.compile(r"/opt/ml/input/data/([A-Za-z0-9._-]{1,64})(/.*)?", re.DOTALL)


@dataclass(frozen=True)
class Mention:
    """Something a script names, and the first line where it does."""

    name: str
    line: int


@dataclass(frozen=True)
class ProcessGroup:
    """A call of ``init_process_group``. ``backend`` is None where it is left out or only known at run time."""

    line: int
    backend: str | None


@dataclass(frozen=True)
class ScriptProblem:
    """Why a script cannot be understood. ``line`` is None where no line can be named."""

    line: int | None
    reason: str


@dataclass(frozen=True)
class Script:
    """What one Python file says. Everything is empty if there is a ``problem``.

    Args:
        imports: modules as they are imported, ``from a.b import c`` as ``a.b.c``; one from the file's own package
            begins with as many dots as it is written with.
        library: how it uses AWS's data-parallel library: its own ``module`` for PyTorch (releases 1.0 to 1.2,
            deprecated since 1.4), the torch.distributed ``backend`` (1.4 and later), or ``tensorflow``.
        environment: variables it reads.
        literal_paths: paths below /opt/ml that stand in the code.
    """

    problem: ScriptProblem | None = None
    imports: tuple[Mention, ...] = ()
    has_main: bool = False
    library: Literal["module", "backend", "tensorflow"] | None = None
    process_groups: tuple[ProcessGroup, ...] = ()
    options: tuple[Option, ...] = ()
    environment: tuple[Mention, ...] = ()
    literal_paths: tuple[Mention, ...] = ()

    @property
    def frameworks(self) -> list[str]:
        """``pytorch`` and ``tensorflow`` as far as it imports them, the first import first."""
        tops = [one.name.partition(".")[0] for one in self.imports]
        found = [_FRAMEWORKS[one] for one in tops if one in _FRAMEWORKS]
        found += ["tensorflow" if self.library == "tensorflow" else "pytorch"] if self.library else []
        if self.uses_transformers:
            # Its classes for TensorFlow begin with TF; the others are PyTorch's or nobody's.
            theirs = any(re.match(r"transformers\.(.+\.)?TF[A-Z]", one.name) for one in self.imports)
            found.append("tensorflow" if theirs else "pytorch")
        return list(dict.fromkeys(found))

    @property
    def uses_transformers(self) -> bool:
        return any(one.name.partition(".")[0] == "transformers" for one in self.imports)

    @property
    def channels(self) -> list[str]:
        """The channels whose folders it asks for, in the order of the file."""
        asked = [
            (one.line, one.name.removeprefix("SM_CHANNEL_").lower())
            for one in self.environment
            if one.name.startswith("SM_CHANNEL_")
        ]
        folders = [(one.line, match[1]) for one in self.literal_paths if (match := _CHANNEL_FOLDER.fullmatch(one.name))]
        return list(dict.fromkeys(name for _, name in sorted(asked + folders)))

    @property
    def keeps_checkpoints(self) -> bool:
        """It names the folder that SageMaker keeps while a job runs."""
        names = [one.name for one in (*self.environment, *self.literal_paths)]
        return any("CHECKPOINT" in name or name.startswith("/opt/ml/checkpoints") for name in names)


def read_script(path: Path) -> Script:
    """Read the Python file at ``path``; what keeps it from being read is the script's ``problem``."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_SCRIPT + 1)
    except OSError as error:
        return Script(ScriptProblem(None, f"it cannot be read: {error.strerror or error}"))
    if len(raw) > MAX_SCRIPT:
        return Script(ScriptProblem(None, f"it has more than {MAX_SCRIPT} bytes"))
    return parse_script(raw)


def parse_script(raw: bytes) -> Script:
    """What the text of a script says; its encoding is found as Python finds it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(raw)
    except SyntaxError as error:
        return Script(ScriptProblem(error.lineno or None, f"not Python 3: {error.msg}"))
    except (ValueError, RecursionError, MemoryError) as error:
        return Script(ScriptProblem(None, f"not Python 3: {str(error) or 'nested too deeply'}"))
    return _described(tree)


def _described(tree: ast.Module) -> Script:
    nodes = sorted(ast.walk(tree), key=lambda node: (getattr(node, "lineno", 0), getattr(node, "col_offset", 0)))
    known = constants(tree)
    found = options(nodes, known)
    prose = _prose(nodes)
    texts = [
        Mention(node.value, node.lineno)
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose
    ]
    imports = _first(_imports(nodes))
    groups = tuple(_process_groups(nodes, found))
    platform = [one for one in texts if _PLATFORM_NAME.fullmatch(one.name)]
    environment = sorted([*_variables(nodes), *platform], key=lambda one: one.line)
    return Script(
        imports=imports,
        has_main=any(_is_main_guard(node) for node in tree.body),
        library=_library([one.name for one in imports], groups),
        process_groups=groups,
        options=tuple(found),
        environment=_first(environment),
        literal_paths=_first(one for one in texts if re.match(r"/opt/ml(/|$)", one.name)),
    )


def _first(mentions: Iterable[Mention]) -> tuple[Mention, ...]:
    return tuple({one.name: one for one in reversed(list(mentions))}.values())[::-1]


def _prose(nodes: Iterable[ast.AST]) -> set[int]:
    """Strings that stand alone as statements: docstrings and the like."""
    return {id(node.value) for node in nodes if isinstance(node, ast.Expr)}


def _imports(nodes: Iterable[ast.AST]) -> Iterator[Mention]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (Mention(one.name, node.lineno) for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            joint = "" if module.endswith(".") else "."
            yield from (Mention(f"{module}{joint}{one.name}", node.lineno) for one in node.names)


def _is_main_guard(node: ast.stmt) -> bool:
    if not (isinstance(node, ast.If) and isinstance(node.test, ast.Compare)):
        return False
    sides = [node.test.left, *node.test.comparators]
    return any(dotted(one) == "__name__" for one in sides) and any(
        isinstance(one, ast.Constant) and one.value == "__main__" for one in sides
    )


def _library(
    imports: Iterable[str], groups: Iterable[ProcessGroup]
) -> Literal["module", "backend", "tensorflow"] | None:
    for name in imports:
        for module, generation in _GENERATIONS.items():
            if name == module or name.startswith(f"{module}."):
                return generation
    return "backend" if any(one.backend == "smddp" for one in groups) else None


def _process_groups(nodes: Iterable[ast.AST], known: Iterable[Option]) -> Iterator[ProcessGroup]:
    defaults = {one.name.replace("-", "_"): one.default for one in known}
    for node in nodes:
        if isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] in (
            "init_process_group",
            "init_distributed",
        ):
            given = {one.arg: one.value for one in node.keywords}
            backend = given.get("backend", given.get("dist_backend", node.args[0] if node.args else None))
            value = literal(backend, {}) if backend is not None else None
            if isinstance(backend, ast.Attribute):
                value = defaults.get(backend.attr)
            yield ProcessGroup(node.lineno, value if isinstance(value, str) else None)


def _variables(nodes: Iterable[ast.AST]) -> Iterator[Mention]:
    """Variables read through os.environ and os.getenv."""
    for node in nodes:
        name: ast.AST | None = None
        if isinstance(node, ast.Call) and dotted(node.func) in _ENVIRON and node.args:
            name = node.args[0]
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and dotted(node.value) in _ENVIRON:
            name = node.slice
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            yield Mention(name.value, name.lineno)
