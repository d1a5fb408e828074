"""A Python file of a training script, read without running it."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from smdp_launch.source.commandline.arguments import Declarations
from smdp_launch.source.commandline.declarations import declarations
from smdp_launch.source.commandline.options import Option, constants, literal, options
from smdp_launch.source.script.channels import CHANNEL_FOLDER
from smdp_launch.source.script.training import Training, read_training
from smdp_launch.source.syntax.scopes import Call, Nodes, Scope, dotted, is_main_guard

#: Bytes. Longer scripts are not read. The slowest script of this size takes about half a second.
MAX_SCRIPT = 128 << 10

#: The framework that the import of a package shows.
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
#: The imports of classes that save to the checkpoint folder.
_CHECKPOINTS = re.compile(r"smdp_engine\.checkpoint(\.(\*|\w*Checkpoints))?")
_PLATFORM_NAME = re.compile(r"(SM|SMDP|SAGEMAKER)_[A-Z0-9_.-]*[A-Z0-9]")

#: How the container starts an entry point, or why it cannot.
EntryKind = Literal["python", "executable", "shell", "crlf", "notebook", "unmarked python", "data"]


class Mention(NamedTuple):
    """A name in a script, and its first line."""

    name: str
    line: int


class ProcessGroup(NamedTuple):
    """A call of ``init_process_group``. ``backend`` is None if it is omitted or known only at run time."""

    line: int
    backend: str | None


class ScriptProblem(NamedTuple):
    """The reason why a script cannot be read.

    Args:
        line: None if the problem is not in a line.
        column: counts from 1.
        source: the line's text.
        is_syntax: Python refuses the file; otherwise only this reader does.
    """

    line: int | None
    reason: str
    column: int = 1
    source: str = ""
    is_syntax: bool = False


class Script(NamedTuple):
    """The contents of one Python file. All other fields are empty if there is a ``problem``.

    Args:
        imports: modules as they are imported, ``from a.b import c`` as ``a.b.c``; relative imports keep their dots.
        library: how it uses AWS's data-parallel library: its own ``module`` for PyTorch (releases 1.0 to 1.2,
            deprecated since 1.4), the torch.distributed ``backend`` (1.4 and later), or ``tensorflow``.
        environment: the environment variables that it reads.
        literal_paths: paths below /opt/ml in the code.
        always_imported: the imports that every run of the module executes.
        command_line: the command line that it declares.
        training: its calls for distributed training.
        lines: its text, for excerpts.
        definitions: the names that its top level defines: functions, classes, variables and imports.
    """

    problem: ScriptProblem | None = None
    imports: tuple[Mention, ...] = ()
    has_main: bool = False
    library: Literal["module", "backend", "tensorflow"] | None = None
    process_groups: tuple[ProcessGroup, ...] = ()
    options: tuple[Option, ...] = ()
    environment: tuple[Mention, ...] = ()
    literal_paths: tuple[Mention, ...] = ()
    always_imported: frozenset[str] = frozenset()
    command_line: Declarations = Declarations()
    training: Training = Training()
    lines: tuple[str, ...] = ()
    definitions: frozenset[str] = frozenset()

    @property
    def frameworks(self) -> list[str]:
        """``pytorch`` and ``tensorflow``, if it imports them, in the order of the imports."""
        tops = [one.name.partition(".")[0] for one in self.imports]
        frameworks = [_FRAMEWORKS[one] for one in tops if one in _FRAMEWORKS]
        frameworks += ["tensorflow" if self.library == "tensorflow" else "pytorch"] if self.library else []
        if self.uses_transformers:
            # Its classes for TensorFlow begin with TF; the others are for PyTorch or for both.
            is_tensorflow = any(re.match(r"transformers\.(.+\.)?TF[A-Z]", one.name) for one in self.imports)
            frameworks.append("tensorflow" if is_tensorflow else "pytorch")
        return list(dict.fromkeys(frameworks))

    @property
    def relative_import(self) -> Mention | None:
        """The first relative import that every run executes, which fails in an entry point: it is in no package."""
        if any("__package__" in one for one in self.lines):
            return None  # it may name its package
        names = (one for one in self.imports if one.name in self.always_imported)
        return next((one for one in names if one.name.startswith(".")), None)

    @property
    def uses_transformers(self) -> bool:
        return any(one.name.partition(".")[0] == "transformers" for one in self.imports)

    @property
    def channels(self) -> list[str]:
        """The channels whose folders it reads, in the order of the file."""
        variables = [
            (one.line, one.name.removeprefix("SM_CHANNEL_").lower())
            for one in self.environment
            if one.name.startswith("SM_CHANNEL_")
        ]
        folders = [(one.line, match[1]) for one in self.literal_paths if (match := CHANNEL_FOLDER.fullmatch(one.name))]
        return list(dict.fromkeys(name for _, name in sorted(variables + folders)))

    @property
    def keeps_checkpoints(self) -> bool:
        """Whether it names the folder whose checkpoints SageMaker uploads, or imports what saves there by default."""
        names = [one.name for one in (*self.environment, *self.literal_paths)]
        return any(_CHECKPOINTS.fullmatch(one.name) for one in self.imports) or any(
            "CHECKPOINT" in name or name.startswith("/opt/ml/checkpoints") for name in names
        )


def read_script(path: Path, python: tuple[int, int] | None = None) -> Script:
    """Read the Python file at ``path``. If it cannot be read, the script's ``problem`` is the reason.

    Args:
        python: the version that runs it; None if it is not known.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_SCRIPT + 1)
    except OSError as error:
        return Script(ScriptProblem(None, f"it cannot be read: {error.strerror or error}"))
    if len(raw) > MAX_SCRIPT:
        return Script(ScriptProblem(None, f"it has more than {MAX_SCRIPT} bytes"))
    return parse_script(raw, python)


def entry_kind(path: Path) -> EntryKind:
    """How the container starts an entry point that is not a ``.py`` file: as a shell script, unless its first bytes
    name another interpreter or are those of a binary."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return "shell"  # another rule reports files that cannot be read
    first = head.partition(b"\n")[0]
    if head.startswith((b"#!", b"\x7fELF")):
        return "crlf" if head.startswith(b"#!") and first.endswith(b"\r") else "executable"
    if path.suffix == ".ipynb":
        return "notebook"
    if path.suffix not in _SHELL_SUFFIXES:
        return "data"
    if not path.suffix and _imports_modules(head):
        return "unmarked python"
    return "crlf" if first.endswith(b"\r") else "shell"


_HEAD = 64 << 10
_SHELL_SUFFIXES = ("", ".sh", ".bash")


def _imports_modules(head: bytes) -> bool:
    """Whether the text is Python that imports something. A shell script never is."""
    try:
        tree = ast.parse(head)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(isinstance(one, ast.Import | ast.ImportFrom) for one in tree.body)


def parse_script(raw: bytes, python: tuple[int, int] | None = None) -> Script:
    """Read the text of a script. Its encoding is determined as Python does it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(raw, feature_version=_features(python))
    except SyntaxError as error:
        return Script(_syntax_problem(error, raw, python))
    except ValueError as error:
        # A null byte, which Python refuses too.
        return Script(ScriptProblem(1, f"not Python 3: {error}", is_syntax=True))
    except (RecursionError, MemoryError) as error:
        return Script(ScriptProblem(None, f"not Python 3: {str(error) or 'nested too deeply'}"))
    try:
        text = _decoded(raw)
        return text if isinstance(text, Script) else _script(tree, text.split("\n"))
    except RecursionError:
        return Script(ScriptProblem(None, "nested too deeply"))


def _decoded(raw: bytes) -> str | Script:
    """The text of a file that the parser accepts. Python refuses wrong bytes in comments, which the parser skips."""
    try:
        return importlib.util.decode_source(raw)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        return Script(ScriptProblem(line, f"not Python 3: its encoding is not {error.encoding}", is_syntax=True))
    except SyntaxError:
        return Script(ScriptProblem(1, "not Python 3: it is not UTF-8, and names no other encoding", is_syntax=True))


# The oldest grammar that ``ast.parse`` supports in every Python version that this package supports.
_OLDEST = (3, 7)

#: Error messages of Python for text that is wrong in every version of Python, newer versions included.
_ALWAYS_WRONG = re.compile(
    r"was never closed|unmatched '|expected an indented block|unexpected indent|unindent does not match"
    r"|inconsistent use of|unterminated triple-quoted string|Missing parentheses in call to|cannot assign to"
    r"|leading zeros in decimal|codec can't decode|invalid non-printable character|expected ':'"
)


def _features(python: tuple[int, int] | None) -> tuple[int, int] | None:
    """The grammar to parse with: that of the job's Python, if it is older than the Python that runs this code."""
    if python is None or python >= sys.version_info[:2]:
        return None
    return max(python, _OLDEST)


def _syntax_problem(error: SyntaxError, raw: bytes, python: tuple[int, int] | None) -> ScriptProblem:
    is_newer = python is not None and python > sys.version_info[:2]
    # For some errors ``error.text`` is cut or missing.
    lines = raw.decode("utf-8", errors="replace").splitlines()
    number = error.lineno or None
    source = lines[number - 1] if number is not None and number <= len(lines) else ""
    is_syntax = not is_newer or _ALWAYS_WRONG.search(error.msg) is not None
    column = min(max(1, error.offset or 1), len(source) + 1)
    return ScriptProblem(number, f"not Python 3: {error.msg}", column, source, is_syntax)


def _script(tree: ast.Module, lines: list[str]) -> Script:
    nodes = Nodes(tree)
    known = constants(tree, nodes)
    declared = options(nodes, known)
    docstrings = {id(one.value) for one in nodes.of(ast.Expr)}
    texts = [
        Mention(one.value, one.lineno)
        for one in nodes.of(ast.Constant)
        if isinstance(one.value, str) and id(one) not in docstrings
    ]
    imports = _first(_imports(nodes))
    always = _imports(nodes, always=True)
    groups = tuple(_process_groups(nodes.called("init_process_group", "init_distributed"), declared))
    platform = [one for one in texts if _PLATFORM_NAME.fullmatch(one.name)]
    environment = sorted([*_variables(nodes), *platform], key=lambda one: one.line)
    return Script(
        imports=imports,
        has_main=any(is_main_guard(node) for node in tree.body),
        library=_library([one.name for one in imports], groups),
        process_groups=groups,
        options=tuple(declared),
        environment=_first(environment),
        literal_paths=_first(one for one in texts if re.match(r"/opt/ml(/|$)", one.name)),
        always_imported=frozenset(one.name for one in always),
        command_line=declarations(nodes, {one.name for one in imports}, known),
        training=read_training(nodes, declared, known, lines),
        lines=tuple(lines),
        definitions=frozenset(_definitions(tree.body)),
    )


def _definitions(body: Iterable[ast.stmt]) -> Iterator[str]:
    """The names that the statements define, in all branches."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (one.asname or one.name.partition(".")[0] for one in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (one.id for one in targets if isinstance(one, ast.Name))
        else:
            for name in ("body", "orelse", "finalbody"):
                yield from _definitions(getattr(node, name, ()))
            for handler in getattr(node, "handlers", ()):
                yield from _definitions(handler.body)


def _first(mentions: Iterable[Mention]) -> tuple[Mention, ...]:
    return tuple({one.name: one for one in reversed(list(mentions))}.values())[::-1]


def _imports(nodes: Nodes, *, always: bool = False) -> list[Mention]:
    """The imports, in the order of the lines.

    Args:
        always: only the imports that every run executes.
    """
    placed: list[tuple[ast.Import | ast.ImportFrom, Scope]] = [*nodes.placed(ast.Import), *nodes.placed(ast.ImportFrom)]
    mentions: list[Mention] = []
    for node, scope in placed:
        if always and (scope.function is not None or scope.is_conditional):
            continue
        module = ""
        if isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            module += "" if module.endswith(".") else "."
        mentions += [Mention(f"{module}{one.name}", node.lineno) for one in node.names]
    return sorted(mentions, key=lambda one: one.line)


def _library(
    imports: Iterable[str], groups: Iterable[ProcessGroup]
) -> Literal["module", "backend", "tensorflow"] | None:
    for name in imports:
        for module, generation in _GENERATIONS.items():
            if name == module or name.startswith(f"{module}."):
                return generation
    return "backend" if any(one.backend == "smddp" for one in groups) else None


def _process_groups(calls: Iterable[Call], known: Iterable[Option]) -> Iterator[ProcessGroup]:
    defaults = {one.name.replace("-", "_"): one.default for one in known}
    for node, _, _, path in calls:
        if path:
            by_name = {one.arg: one.value for one in node.keywords}
            backend = by_name.get("backend", by_name.get("dist_backend", node.args[0] if node.args else None))
            value = literal(backend, {}) if backend is not None else None
            if isinstance(backend, ast.Attribute):
                value = defaults.get(backend.attr)
            yield ProcessGroup(node.lineno, value if isinstance(value, str) else None)


def _variables(nodes: Nodes) -> Iterator[Mention]:
    """The variables that the script reads with os.environ and os.getenv."""
    calls = nodes.called("get", "getenv", "environ")
    names = [one.node.args[0] for one in calls if one.node.args and one.path in _ENVIRON]
    names += [
        one.slice for one in nodes.of(ast.Subscript) if isinstance(one.ctx, ast.Load) and dotted(one.value) in _ENVIRON
    ]
    for name in names:
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            yield Mention(name.value, name.lineno)
